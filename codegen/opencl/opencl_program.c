#include "codegen/opencl/opencl_program.h"

#include <stdlib.h>
#include <string.h>

#include "codegen/opencl/opencl_source.h"

/* The program's distinct kernels, numbered as calls first name them. */
typedef struct Kernels {
    const Kernel **kernels;
    Hash *hashes;
    size_t count, capacity, hash_capacity;
} Kernels;

static uint32_t number_of(Kernels *known, const Kernel *kernel)
{
    Hash hash = kernel_hash(kernel);
    for (size_t k = 0; k < known->count; k++)
        if (memcmp(&known->hashes[k], &hash, sizeof hash) == 0) return (uint32_t)k;
    size_t same = known->count;
    array_push(known->hashes, same, known->hash_capacity, hash);
    array_push(known->kernels, known->count, known->capacity, kernel);
    return (uint32_t)known->count - 1;
}

static void bind_call(SkyCall *call, Kernels *known)
{
    const Kernel *kernel = call->interpreted;
    OpenClUnits units = opencl_units(kernel);
    call->units = units.count;
    call->device_kernel = number_of(known, kernel) + 1;
    if (call->line_axis == 1 && units.step && units.count) {
        call->unit_extent = units.step;
        call->unit_count = units.per_step;
    }
    if (call->block_count && units.count % call->block_count)
        bug("call %s: its %lld work units are not of %u blocks", call->name, (long long)units.count, call->block_count);
}

static void describe(SkyProgram *program, const Kernels *known, Arena *arena)
{
    SkyDeviceKernel *kernels = arena_new_array(arena, SkyDeviceKernel, known->count);
    Buffer text = {0};
    bool doubles = false;
    for (size_t k = 0; k < known->count; k++) doubles |= opencl_uses_doubles(known->kernels[k]);
    opencl_emit_prelude(doubles, &text);
    for (size_t k = 0; k < known->count; k++) {
        char symbol[40];
        opencl_symbol(known->kernels[k], symbol);
        OpenClUnits units = opencl_units(known->kernels[k]);
        kernels[k] = (SkyDeviceKernel){.name = arena_string(arena, symbol),
                                       .label = arena_string(arena, known->kernels[k]->label),
                                       .operand_count = (uint32_t)known->kernels[k]->operand_count,
                                       .tile = {units.tile[0], units.tile[1]},
                                       .begin = text.size};
        opencl_emit_kernel(known->kernels[k], &text);
        kernels[k].bytes = text.size - kernels[k].begin;
    }
    program->device_kernels = kernels;
    program->device_kernel_count = (uint32_t)known->count;
    program->opencl_source = arena_string(arena, buffer_text(&text));
    buffer_free(&text);
}

void opencl_bind(SkyProgram *program, Arena *arena)
{
    Kernels known = {0};
    for (uint32_t s = 0; s < program->stage_count; s++)
        for (uint32_t c = 0; c < sky_call_count(&program->stages[s]); c++)
            bind_call((SkyCall *)sky_call(&program->stages[s], c), &known);
    describe(program, &known, arena);
    free(known.kernels);
    free(known.hashes);
}
