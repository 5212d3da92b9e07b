/* Sizes of the blocks, tiles and units of a matrix product by VDPBF16PS (pair_gemm.h). */
#ifndef CODEGEN_KERNELS_PAIR_GEMM_PLAN_H
#define CODEGEN_KERNELS_PAIR_GEMM_PLAN_H

#include "codegen/kernels/bf16_blocks.h"
#include "codegen/kernels/hidden_sums.h"
#include "codegen/kernels/work_units.h"
#include "graph/kernel/kernel.h"

enum { PAIR_MAX_VECTORS = 4 };

typedef struct PairPlan {
    KernelGemm match;
    int64_t rows, columns, depth;
    int vectors;         /* of a panel of B */
    int tile_rows;       /* multiplied at a time */
    int64_t depth_block; /* of k; a multiple of BLOCK_DEPTH; the last block may be shorter */
    bool a_in_place;     /* memory has the rows of A as reordering would leave them */
    int64_t row_pitch;   /* bytes from one of them to the next */
    bool keeps_b;        /* reordered panels in an operand of their own, after the first run */
    HiddenSums hidden;
    bool skips_zeros;     /* of A, at both ends of a tile's k (zero_range.h) */
    int64_t unit_rows;    /* a multiple of the tile's */
    int64_t unit_columns; /* a multiple of the panel's */
    size_t a_bytes;       /* of the thread's scratch: reordered A, if it is, */
    size_t b_bytes;       /* one of two panels of B, a block of k each, */
    size_t sum_bytes;     /* a panel's sums between blocks of k */
    size_t tile_bytes;    /* and a finished tile */
    Units units;          /* that of columns runs fastest */
    int64_t nanoseconds;  /* rough */
} PairPlan;

static inline int64_t pair_panel_columns(const PairPlan *plan) { return (int64_t)plan->vectors * BLOCK_SIDE; }
static inline size_t pair_scratch_bytes(const PairPlan *plan)
{
    return plan->a_bytes + 2 * plan->b_bytes + plan->sum_bytes + plan->tile_bytes;
}

/* False if the kernel is no such product, or the target has no such instruction or a better one. */
bool pair_plan(PairPlan *plan, const Kernel *kernel, const Target *target);

#endif
