/* What the parts of the interpreter share; users call kernel_interpret of graph/kernel/kernel.h. */
#ifndef GRAPH_KERNEL_INTERPRET_H
#define GRAPH_KERNEL_INTERPRET_H

#include <stdlib.h>

#include "graph/kernel/interpret_arithmetic.h"
#include "graph/kernel/kernel.h"

typedef struct Interpreter {
    const Kernel *kernel;
    void *const *address;
    InterpreterLanes *lanes;               /* per register */
    int64_t index[KERNEL_MAX_AXES];        /* of the outer iteration */
    int64_t position[KERNEL_MAX_OPERANDS]; /* of the outer iteration, in elements from the operand's address */
} Interpreter;

/* `count` elements from `position` on, `stride` apart, as lanes. */
void interpret_load(InterpreterLanes *to, DType dtype, const void *data, int64_t position, int64_t stride, int count);
/* Runs a phase's instructions for `count` lanes, which are iterations start ... of `axis`. False: an access out of
 * range. */
bool interpret_lanes(Interpreter *run, const KernelPhase *phase, int axis, int64_t start, int count);
/* All phases, at the present outer iteration. */
bool interpret_phases(Interpreter *run);
/* Goes to the next outer iteration, leaving out the axes whose bits are set in `skipped`; false after the last one. */
bool interpret_step(Interpreter *run, unsigned skipped);
/* Runs a kernel of class GEMM, at the present index of the axes in `skipped`. */
bool interpret_gemm(Interpreter *run, const KernelGemm *gemm, unsigned skipped);

#endif
