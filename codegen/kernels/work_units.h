/* Work units: how a kernel's iterations are cut into independent pieces, numbered from 0. A unit covers `step`
 * iterations of each unit axis (the last one may cover fewer) and all of every other axis. What a unit computes never
 * depends on which other units the same call runs. */
#ifndef CODEGEN_KERNELS_WORK_UNITS_H
#define CODEGEN_KERNELS_WORK_UNITS_H

#include "codegen/kernels/emit.h"
#include "graph/kernel/kernel.h"

typedef struct UnitAxis {
    int axis;
    int64_t extent, step, count;
} UnitAxis;

typedef struct Units {
    UnitAxis axes[KERNEL_MAX_AXES]; /* the last one runs fastest */
    int axis_count;
    int64_t total;
} Units;

void units_init(Units *units);
/* With a unit for every matrix of a batch of matrix products, whose number it returns. */
int64_t units_init_batches(Units *units, const Kernel *kernel, const KernelGemm *match);
/* Where of `axis` there may be something to compute: its extent, and no further than the limit of a SkyKernel if that
 * is one of its sum, and this is the inner axis, or else if units are numbered along it first. */
Ir units_emit_limit(Emit *emit, const Kernel *kernel, const Units *units, int axis);

/* Of a matrix product whose units begin at multiples of its rows' step: how many rows a unit has, at most, and where
 * all end. As many units as have some share the rows before the limit of a SkyKernel evenly, in tiles of `granule`,
 * if none would be left without; index[axis] becomes the unit's first one then. */
typedef struct UnitRows {
    Ir step, limit;
} UnitRows;
UnitRows units_emit_rows(Emit *emit, const Kernel *kernel, const Units *units, int axis, int64_t granule, Ir *index);

void units_add(Units *units, int axis, int64_t extent, int64_t step);

/* Emits the loop over units begin ... end - 1, from the parameters of a SkyKernel, and sets index[axis] of every unit
 * axis to its first iteration. End it with emit_loop_end. */
void units_emit_loop(Emit *emit, const Units *units, EmitLoop *loop, Ir index[KERNEL_MAX_AXES]);

#endif
