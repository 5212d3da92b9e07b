/* The calls between backward and update: uses of shared parameters are added up, and gradients squared. */
#include "codegen/stage/memory_layout.h"
#include "codegen/stage/stage_builder.h"

static const Kernel *add_use_kernel(StageBuilder *builder, int64_t elements)
{
    Kernel kernel;
    kernel_begin(&kernel, "AddUse", 1, &elements);
    int sum = kernel_operand(&kernel, DTYPE_F32, (int64_t[]){1}),
        use = kernel_operand(&kernel, DTYPE_F32, (int64_t[]){1});
    kernel_store_add(&kernel, sum, kernel_load(&kernel, use));
    kernel_store(&kernel, use, kernel_constant(&kernel, DTYPE_F32, 0)); /* as an update leaves its gradient */
    return stage_intern_kernel(builder, &kernel);
}

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

/* Adds a call to the list, of the layer that updates the parameter. All calls of these lists are a wave. */
static void add_call(StageBuilder *builder, SkyCallList *list, const SkyParameter *parameter, const Kernel *kernel,
                     const SkyLocation *operands, uint32_t operand_count)
{
    Arena *arena = &builder->code->arena;
    const SkyStage *stage = &builder->code->stage;
    SkyCall *calls = (SkyCall *)list->calls;
    calls[list->count++] = (SkyCall){
        .operands = arena_copy(arena, operands, operand_count * sizeof *operands),
        .operand_count = operand_count,
        .layer = parameter->frozen ? stage->first_layer : stage->lists[SKY_LIST_UPDATE].calls[parameter->update].layer,
        .units = 1,
        .name = arena_format(arena, "%s %s", parameter->value.name, kernel->label),
        .interpreted = kernel};
    calls[0].wave_count++;
}

void stage_list_gradient_calls(StageBuilder *builder)
{
    SkyStage *stage = &builder->code->stage;
    SkyCallList *adds = &stage->lists[SKY_LIST_ADD_USE], *squares = &stage->lists[SKY_LIST_SQUARES];
    adds->calls = arena_new_array(&builder->code->arena, SkyCall, stage->parameter_count);
    squares->calls = arena_new_array(&builder->code->arena, SkyCall, stage->parameter_count);
    for (uint32_t p = 0; p < stage->parameter_count; p++) {
        SkyParameter *parameter = (SkyParameter *)&stage->parameters[p];
        int64_t elements = (int64_t)(parameter->value.bytes / sizeof(float)), part = lower_part(elements);
        SkyLocation operands[] = {parameter->gradient, parameter->gradient, parameter->value.location,
                                  parameter->states[0], parameter->states[1]};
        parameter->add_use = adds->count;
        if (parameter->use_count) add_call(builder, adds, parameter, add_use_kernel(builder, elements), operands, 2);
        if (parameter->frozen) continue;
        parameter->squares = squares->count;
        parameter->square_parts = (uint32_t)(elements / part);
        operands[1] = (SkyLocation){.space = SKY_SPACE_STATE, .offset = stage->space_bytes[SKY_SPACE_STATE]};
        stage->space_bytes[SKY_SPACE_STATE] += align_bytes(parameter->square_parts * sizeof(double));
        add_call(builder, squares, parameter, squares_kernel(builder, elements, part), operands,
                 3 + parameter->state_count);
    }
}
