/* Tile, block and unit sizes of a matrix product (codegen/kernels/gemm.h says what they are the sizes of). */
#ifndef CODEGEN_KERNELS_GEMM_PLAN_H
#define CODEGEN_KERNELS_GEMM_PLAN_H

#include "codegen/kernels/hidden_sums.h"
#include "codegen/kernels/work_units.h"
#include "graph/kernel/kernel.h"

typedef enum GemmB {
    GEMM_B_DIRECT,    /* read in place: contiguous along n, and not worth reordering */
    GEMM_B_COPIED,    /* reordered from rows that are contiguous along n */
    GEMM_B_TRANSPOSED /* reordered from columns, contiguous along k or not */
} GemmB;

typedef struct GemmPlan {
    KernelGemm match;
    DType type; /* of the sum: F32 or F64 */
    int64_t rows, columns, depth;
    int lanes;
    int vectors;      /* of a full panel */
    int accumulators; /* registers that a tile may take */
    GemmB b;
    bool rounds_a, rounds_b; /* to bf16, where they are not already */
    bool reorders_b_in_tile; /* COPIED: the first tile of a panel does, and nobody waits for it */
    HiddenSums hidden;
    bool skips_zeros;      /* of A, at both ends of a tile's k (zero_range.h) */
    bool reorder_a;        /* into tiles: where consecutive k would walk through too many cache lines */
    int64_t depth_block;   /* of k; the last block may be shorter */
    int64_t panel_columns; /* vectors * lanes */
    int64_t unit_rows, unit_columns;
    bool accumulates;   /* the epilogue is C += sum alone: C is where the sum starts */
    bool sums_in_place; /* the epilogue is a plain store of the sum: blocks of k accumulate in C */
    size_t b_bytes, a_bytes,
        sum_bytes; /* of the thread's scratch: reordered B, reordered A, sums between blocks of k */
    Units units;
    int64_t nanoseconds; /* rough */
} GemmPlan;

/* The height of a tile of so many vectors. */
int gemm_tile_rows(const GemmPlan *plan, int vectors);

/* False if the kernel is better served as a loop: not a matrix product at all, or a degenerate one. */
bool gemm_plan(GemmPlan *plan, const Kernel *kernel, const Target *target);

#endif
