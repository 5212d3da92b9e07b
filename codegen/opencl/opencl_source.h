/* Kernel descriptions become OpenCL C 1.2, for devices whose driver compiles it.
 *
 * Every kernel has its shapes as constants, so the text is all that a driver needs to know. opencl_cut.h
 * says what a work unit is; units are numbered as on the CPU: along the first axis last. What is summed, is summed in a
 * fixed order, so a device computes the same bits again.
 *
 * What suits the device is given when it compiles the text, as macros (prelude.cl): the items of a group that shares a
 * row, and of a product what one item computes and how deep a tile is.
 *
 * An operand is a buffer and where in it the operand starts, in bytes; a start may be negative where blocks (SkyCall)
 * are numbered from another one than the first. Then follow the first unit and the end, as longs. */
#ifndef CODEGEN_OPENCL_OPENCL_SOURCE_H
#define CODEGEN_OPENCL_OPENCL_SOURCE_H

#include "base/diagnostics.h"
#include "graph/kernel/kernel.h"

/* How a kernel's work is cut. */
typedef struct OpenClUnits {
    int64_t count;           /* of the kernel; 0: nothing to do */
    uint32_t step, per_step; /* how far a unit reaches along axis 0, and how many reach as far; 0: it has all of it */
    uint32_t tile[2];        /* what computes a unit, as in SkyDeviceKernel */
} OpenClUnits;

OpenClUnits opencl_units(const Kernel *kernel);

/* Whether the device must have float64. */
bool opencl_uses_doubles(const Kernel *kernel);

/* What all kernels of a program need, before them; `doubles`: one of them does. */
void opencl_emit_prelude(bool doubles, Buffer *text);
/* The kernel's function and its name, which the function's text decides: kernels that differ only in how many units
 * they have share one. */
void opencl_emit_kernel(const Kernel *kernel, Buffer *text, char symbol[40]);

#endif
