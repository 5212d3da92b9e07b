/* How a kernel of class LOOP or SCATTER is vectorised (codegen/kernels/loop.h). */
#ifndef CODEGEN_KERNELS_LOOP_PLAN_H
#define CODEGEN_KERNELS_LOOP_PLAN_H

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

#endif
