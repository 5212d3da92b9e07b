/* The calls between backward and update: gradients are squared. */
#include "codegen/stage/memory_layout.h"
#include "codegen/stage/stage_builder.h"

/* In double: of numbers that are finite the squares are, and their sum. */
static const Kernel *squares_kernel(StageBuilder *builder, int64_t elements, int64_t part)
{
    Kernel kernel;
    kernel_begin(&kernel, "Squares", 2, (int64_t[]){elements / part, part});
    int from = kernel_operand(&kernel, DTYPE_F32, (int64_t[]){part, 1});
    int to = kernel_operand(&kernel, DTYPE_F64, (int64_t[]){1, 0});
    Register value = kernel_convert(&kernel, DTYPE_F64, kernel_load(&kernel, from));
    Register sum = kernel_reduce(&kernel, KERNEL_SUM, kernel_binary(&kernel, KERNEL_MULTIPLY, value, value));
    kernel_begin_phase(&kernel, false);
    kernel_store(&kernel, to, sum);
    return stage_intern_kernel(builder, &kernel);
}

/* Adds a call to the list, of the layer that updates the parameter. All calls of the list are a wave. */
static void add_call(StageBuilder *builder, SkyCallList *list, const SkyParameter *parameter, const Kernel *kernel,
                     const SkyLocation *operands, uint32_t operand_count)
{
    Arena *arena = &builder->code->arena;
    const SkyStage *stage = &builder->code->stage;
    SkyCall *calls = (SkyCall *)list->calls;
    calls[list->count++] = (SkyCall){.operands = arena_copy(arena, operands, operand_count * sizeof *operands),
                                     .operand_count = operand_count,
                                     .layer = stage->lists[SKY_LIST_UPDATE].calls[parameter->update].layer,
                                     .units = 1,
                                     .name = arena_format(arena, "%s %s", parameter->value.name, kernel->label),
                                     .interpreted = kernel};
    calls[0].wave_count++;
}

void stage_list_gradient_calls(StageBuilder *builder)
{
    SkyStage *stage = &builder->code->stage;
    SkyCallList *squares = &stage->lists[SKY_LIST_SQUARES];
    squares->calls = arena_new_array(&builder->code->arena, SkyCall, stage->parameter_count);
    for (uint32_t p = 0; p < stage->parameter_count; p++) {
        SkyParameter *parameter = (SkyParameter *)&stage->parameters[p];
        int64_t elements = (int64_t)(parameter->value.bytes / sizeof(float)), part = lower_part(elements);
        SkyLocation operands[] = {parameter->gradient, parameter->gradient, parameter->value.location,
                                  parameter->states[0], parameter->states[1]};
        if (parameter->frozen) continue;
        parameter->squares = squares->count;
        parameter->square_parts = (uint32_t)(elements / part);
        operands[1] = (SkyLocation){.space = SKY_SPACE_STATE, .offset = stage->space_bytes[SKY_SPACE_STATE]};
        stage->space_bytes[SKY_SPACE_STATE] += align_bytes(parameter->square_parts * sizeof(double));
        add_call(builder, squares, parameter, squares_kernel(builder, elements, part), operands,
                 3 + parameter->state_count);
    }
}
