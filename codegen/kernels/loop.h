/* Kernels of class LOOP and SCATTER: nests of loops, vectorised along one axis.
 *
 * Along the inner axis if the operands are mostly contiguous there: reductions then run in several vectors that are
 * combined at the end of a row, in a fixed order. Along an outer axis (column sums, scatters, transposes) if that is
 * cheaper: one outer iteration per lane, the inner loop stays sequential; sums of wide rows are loop_columns.c's.
 * Otherwise not at all. */
#ifndef CODEGEN_KERNELS_LOOP_H
#define CODEGEN_KERNELS_LOOP_H

#include "codegen/kernels/body.h"
#include "codegen/kernels/work_units.h"
#include "graph/kernel/kernel.h"

typedef struct LoopPlan {
    int vector_axis; /* -1: scalar */
    int lanes;
    int copy_axis; /* what independent copies are made along: the vector axis, or an outer one; -1: none */
    int copies;
    int stepped_axis; /* the axis of which a unit covers more than one iteration, but not all; -1: none */
    int64_t columns;  /* > 0: a column sum, this many columns a unit, `copies` rows at a time (loop_columns.c) */
    bool streams;     /* over more memory than the caches hold: what is read later is prefetched */
    Units units;
    int64_t nanoseconds; /* rough */
} LoopPlan;

void loop_plan(LoopPlan *plan, const Kernel *kernel, const Target *target);
void loop_emit(Emit *emit, const Kernel *kernel, const LoopPlan *plan, const char *symbol);

/* Room on the stack for the sums of that many columns; to be called in the function's first block. */
Ir loop_columns_room(Body *body, int64_t columns);
/* One unit of a column sum: `columns` columns from the index of the vector axis on. `sums` has room for them. */
void loop_columns_emit(Body *body, Ir sums, int64_t columns);

#endif
