/* Reordering of panels for matrix products. */
#ifndef CODEGEN_KERNELS_GEMM_REORDER_H
#define CODEGEN_KERNELS_GEMM_REORDER_H

#include "codegen/kernels/gemm_plan.h"

/* A panel of B: `depth` rows of `vectors` vectors; only the first `tail` lanes of the last vector exist (0: all), the
 * others become zero. */
typedef struct PanelShape {
    int vectors, tail;
    int64_t depth;
    Ir limit; /* only so many of the rows count; NULL: all */
} PanelShape;

/* Emits the reordering of the panel that starts at `source`, an element of operand B, into `reordered`. */
void gemm_reorder_b(Emit *emit, const Kernel *kernel, const GemmPlan *plan, const PanelShape *panel, Ir source,
                    Ir reordered);

/* Emits the reordering of `rows` rows (a value; only the last unit's count is no multiple of the tile) of A, at the
 * first of `depth` k, or of `limit` of them: tile after tile, for every k the tile's rows. */
void gemm_reorder_a(Emit *emit, const Kernel *kernel, const GemmPlan *plan, int64_t depth, Ir limit, Ir rows, Ir source,
                    Ir reordered);

#endif
