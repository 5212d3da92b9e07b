/* What kernels compute, as text: the statements of their phases. What is around these decides which work item computes
 * what; here it is known by these names: bK and oK, a buffer and where operand K starts in it; qK, where it starts in
 * this unit, in bytes, of weights in blocks in elements; iA, the index of axis A; rR, register R. */
#ifndef CODEGEN_OPENCL_OPENCL_BODY_H
#define CODEGEN_OPENCL_OPENCL_BODY_H

#include "base/diagnostics.h"
#include "graph/kernel/kernel.h"

typedef struct OpenClBody {
    const Kernel *kernel;
    Buffer *text;
    bool map;   /* a work item has one element: nothing loops over the inner axis */
    bool group; /* a work group has an outer iteration, whose inner axis its items share: `item` is their number */
} OpenClBody;

/* The type of a register. */
const char *opencl_register_type(DType type);

/* An element of the operand in its register type; `elements` is an expression, counted from qK. */
void opencl_print_element(const OpenClBody *body, int operand, const char *elements);
/* Declares all registers. */
void opencl_print_registers(const OpenClBody *body);
void opencl_print_phase(const OpenClBody *body, const KernelPhase *phase);

#endif
