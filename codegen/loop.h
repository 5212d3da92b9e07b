/* Kernels of class LOOP and SCATTER: nests of loops, vectorised along one axis.
 *
 * Along the inner axis if the operands are mostly contiguous there: reductions then run in several vectors that are
 * combined at the end of a row, in a fixed order. Along an outer axis (column sums, scatters, transposes) if that is
 * cheaper: one outer iteration per lane, the inner loop stays sequential. Otherwise not at all. */
#ifndef CODEGEN_LOOP_H
#define CODEGEN_LOOP_H

#include "codegen/emit.h"
#include "codegen/work_units.h"
#include "graph/kernel.h"

typedef struct LoopPlan {
    int vector_axis; /* -1: scalar */
    int lanes;
    int copy_axis; /* what independent copies are made along: the vector axis, or an outer one; -1: none */
    int copies;
    int stepped_axis; /* the axis of which a unit covers more than one iteration, but not all; -1: none */
    bool streams;     /* over more memory than the caches hold: what is read later is prefetched */
    Units units;
    int64_t grain;
} LoopPlan;

void loop_plan(LoopPlan *plan, const Kernel *kernel, const Target *target);
void loop_emit(Emit *emit, const Kernel *kernel, const LoopPlan *plan, const char *symbol);

#endif
