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

static bool bind_call(SkyCall *call, Kernels *known, const char *device, Diagnostics *diagnostics)
{
    const Kernel *kernel = call->interpreted;
    const char *lacks = opencl_lacks(kernel);
    if (lacks)
        return diagnostics_error(
            diagnostics, EXIT_TOOLCHAIN, (Place){.object = call->name}, NULL,
            "device '%s' is reached by OpenCL, for which kernel '%s' is not built yet: it needs %s", device,
            kernel->label, lacks);
    OpenClUnits units = opencl_units(kernel);
    call->units = units.count;
    call->device_kernel = number_of(known, kernel) + 1;
    if (call->line_axis == 1 && units.outermost && units.count) {
        call->unit_extent = 1;
        call->unit_count = (uint32_t)units.outermost;
    }
    if (call->block_count && units.count % call->block_count)
        bug("call %s: its %lld work units are not of %u blocks", call->name, (long long)units.count, call->block_count);
    return true;
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
        opencl_emit_kernel(known->kernels[k], &text);
        kernels[k] = (SkyDeviceKernel){.name = arena_string(arena, symbol),
                                       .operand_count = (uint32_t)known->kernels[k]->operand_count,
                                       .work_group = opencl_units(known->kernels[k]).work_group};
    }
    program->device_kernels = kernels;
    program->device_kernel_count = (uint32_t)known->count;
    program->opencl_source = arena_string(arena, buffer_text(&text));
    buffer_free(&text);
}

bool opencl_bind(SkyProgram *program, Arena *arena, Diagnostics *diagnostics)
{
    Kernels known = {0};
    bool ok = true;
    for (uint32_t s = 0; s < program->stage_count; s++)
        for (uint32_t c = 0; c < sky_call_count(&program->stages[s]) && ok; c++)
            ok = bind_call((SkyCall *)sky_call(&program->stages[s], c), &known, program->device_name, diagnostics);
    if (ok) describe(program, &known, arena);
    free(known.kernels);
    free(known.hashes);
    return ok;
}
