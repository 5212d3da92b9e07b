/* Kernel descriptions become OpenCL C 1.2, for devices whose driver compiles it.
 *
 * Every kernel has its shapes as constants, so the text is all that a driver needs to know. A work unit of a kernel is
 * an element of a map, an outer iteration of other kernels, and a tile of a matrix product; units are numbered as on
 * the CPU: along the first axis last. What is summed, is summed in a fixed order, so a device computes the same bits
 * again.
 *
 * An operand is a buffer and where in it the operand starts, in bytes; a start may be negative where blocks (SkyCall)
 * are numbered from another one than the first. Then follow the first unit and the end, as longs. */
#ifndef CODEGEN_OPENCL_OPENCL_SOURCE_H
#define CODEGEN_OPENCL_OPENCL_SOURCE_H

#include "base/diagnostics.h"
#include "graph/kernel/kernel.h"

/* How a kernel's work is cut. */
typedef struct OpenClUnits {
    int64_t count;       /* of the kernel; 0: nothing to do */
    int64_t outermost;   /* how many of them have the same index of axis 0; 0: it is cut otherwise */
    uint32_t work_group; /* work items of a unit, that form a work group; 0: a unit is one work item */
} OpenClUnits;

OpenClUnits opencl_units(const Kernel *kernel);

/* NULL, or what about the kernel no OpenCL device can do yet, as an object of "needs". */
const char *opencl_lacks(const Kernel *kernel);
/* Whether the device must have float64. */
bool opencl_uses_doubles(const Kernel *kernel);

/* The name of the kernel's function: by its hash. */
void opencl_symbol(const Kernel *kernel, char symbol[40]);
/* What all kernels of a program need, before them; `doubles`: one of them does. */
void opencl_emit_prelude(bool doubles, Buffer *text);
void opencl_emit_kernel(const Kernel *kernel, Buffer *text);

#endif
