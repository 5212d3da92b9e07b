/* Kernels of class LOOP and SCATTER: nests of loops, vectorised along one axis.
 *
 * Along the inner axis if the operands are mostly contiguous there: reductions then run in several vectors that are
 * combined at the end of a row, in a fixed order. Along an outer axis (column sums, scatters, transposes) if that is
 * cheaper: one outer iteration per lane, the inner loop stays sequential; sums of wide rows are loop_columns.c's.
 * Otherwise not at all. */
#ifndef CODEGEN_KERNELS_LOOP_H
#define CODEGEN_KERNELS_LOOP_H

#include "codegen/kernels/loop_plan.h"

void loop_emit(Emit *emit, const Kernel *kernel, const LoopPlan *plan, const char *symbol);

#endif
