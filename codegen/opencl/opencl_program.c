#include "codegen/opencl/opencl_program.h"

#include <stdlib.h>
#include <string.h>

#include "codegen/opencl/opencl_source.h"

/* The program's distinct functions, numbered as calls first name them. */
typedef struct Functions {
    SkyDeviceKernel *kernels;
    size_t count, capacity;
    Buffer text; /* after the prelude */
    bool doubles;
} Functions;

static uint32_t number_of(Functions *known, const Kernel *kernel, const OpenClUnits *units, Arena *arena)
{
    char symbol[40];
    size_t begin = known->text.size;
    opencl_emit_kernel(kernel, &known->text, symbol);
    for (size_t k = 0; k < known->count; k++)
        if (strcmp(known->kernels[k].name, symbol) == 0) {
            known->text.size = begin;
            return (uint32_t)k;
        }
    SkyDeviceKernel described = {.name = arena_string(arena, symbol),
                                 .label = arena_string(arena, kernel->label),
                                 .operand_count = (uint32_t)kernel->operand_count,
                                 .tile = {units->tile[0], units->tile[1]},
                                 .begin = begin,
                                 .bytes = known->text.size - begin};
    array_push(known->kernels, known->count, known->capacity, described);
    known->doubles |= opencl_uses_doubles(kernel);
    return (uint32_t)known->count - 1;
}

static void bind_call(SkyCall *call, Functions *known, Arena *arena)
{
    const Kernel *kernel = call->interpreted;
    OpenClUnits units = opencl_units(kernel);
    call->units = units.count;
    call->device_kernel = number_of(known, kernel, &units, arena) + 1;
    if (call->line_axis == 1 && units.step && units.count) {
        call->unit_extent = units.step;
        call->unit_count = units.per_step;
    }
    if (call->block_count && units.count % call->block_count)
        bug("call %s: its %lld work units are not of %u blocks", call->name, (long long)units.count, call->block_count);
}

void opencl_bind(SkyProgram *program, Arena *arena)
{
    Functions known = {0};
    FREED_WITH(buffer_free) Buffer text = {0};
    for (uint32_t s = 0; s < program->stage_count; s++)
        for (uint32_t c = 0; c < sky_call_count(&program->stages[s]); c++)
            bind_call((SkyCall *)sky_call(&program->stages[s], c), &known, arena);
    opencl_emit_prelude(known.doubles, &text);
    for (size_t k = 0; k < known.count; k++) known.kernels[k].begin += text.size;
    buffer_append(&text, known.text.bytes, known.text.size);
    program->device_kernels = arena_copy(arena, known.kernels, known.count * sizeof *known.kernels);
    program->device_kernel_count = (uint32_t)known.count;
    program->opencl_source = arena_string(arena, buffer_text(&text));
    buffer_free(&known.text);
    free(known.kernels);
}
