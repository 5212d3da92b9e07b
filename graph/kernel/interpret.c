#include "graph/kernel/interpret.h"

/* All iterations at the present index of the axes in `skipped`. */
static bool interpret_rest(Interpreter *run, unsigned skipped)
{
    const Kernel *kernel = run->kernel;
    for (int axis = 0; axis < kernel->axis_count - 1; axis++)
        if (!kernel->extent[axis]) return true;
    run->lanes = memory_allocate(((size_t)kernel->instruction_count + 1) * sizeof *run->lanes);
    KernelGemm gemm;
    bool inside = true;
    if (kernel_match_gemm(kernel, &gemm)) {
        inside = interpret_gemm(run, &gemm, skipped);
    } else {
        do inside = interpret_phases(run);
        while (inside && interpret_step(run, skipped));
    }
    free(run->lanes);
    return inside;
}

bool kernel_interpret(const Kernel *kernel, void *const *address)
{
    Interpreter run = {.kernel = kernel, .address = address};
    return interpret_rest(&run, 0);
}

bool kernel_interpret_until(const Kernel *kernel, void *const *address, int64_t limit)
{
    Kernel whole = *kernel;
    int64_t *extent = &whole.extent[whole.axis_count - 1];
    if (kernel->limited && limit < *extent) *extent = limit;
    return kernel_interpret(&whole, address);
}

bool kernel_interpret_block(const Kernel *kernel, void *const *address, int64_t block)
{
    Interpreter run = {.kernel = kernel, .address = address};
    for (int axis = kernel->block_axes - 1; axis >= 0; axis--) {
        run.index[axis] = block % kernel->extent[axis];
        block /= kernel->extent[axis];
        for (int i = 0; i < kernel->operand_count; i++)
            run.position[i] += run.index[axis] * kernel->operands[i].stride[axis];
    }
    return interpret_rest(&run, (1u << kernel->block_axes) - 1);
}
