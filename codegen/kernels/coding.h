/* Kernels of class CODING (base/codec_rows.h): a unit is a row, which is coded 64 channels at a time, in vectors
 * of so many lanes that LLVM cuts into the target's. */
#ifndef CODEGEN_KERNELS_CODING_H
#define CODEGEN_KERNELS_CODING_H

#include "codegen/kernels/emit.h"
#include "codegen/kernels/work_units.h"
#include "graph/kernel/kernel.h"

typedef struct CodingPlan {
    Units units;
    int64_t nanoseconds; /* rough */
} CodingPlan;

/* False if the kernel is of another class. */
bool coding_plan(CodingPlan *plan, const Kernel *kernel, const Target *target);
void coding_emit(Emit *emit, const Kernel *kernel, const CodingPlan *plan, const char *symbol);

#endif
