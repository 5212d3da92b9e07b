/* Sizes of the blocks, tiles and units of a matrix product on AMX tiles (amx_gemm.h). */
#ifndef CODEGEN_KERNELS_AMX_GEMM_PLAN_H
#define CODEGEN_KERNELS_AMX_GEMM_PLAN_H

#include "codegen/kernels/bf16_blocks.h"
#include "codegen/kernels/work_units.h"
#include "graph/kernel/kernel.h"

enum {
    AMX_MAX_PARTS = 3 /* of a float32 */
};

typedef struct AmxPlan {
    KernelGemm match;
    int parts; /* of every factor: 1 if it is rounded, 3 if it is split, 2 if it is split and the rest left out */
    int64_t rows, columns, depth;
    int vectors;          /* blocks of B in a panel */
    int tile_rows;        /* rows multiplied at a time */
    int64_t depth_block;  /* of k; a multiple of BLOCK_DEPTH; the last block may be shorter */
    int64_t unit_rows;    /* multiple of the tile's and of BLOCK_SIDE */
    int64_t unit_columns; /* multiple of the panel's */
    bool keeps_b;         /* reordered panels in an operand of their own, after the first run */
    bool joins_units;     /* the only two, where a call is given both: it reorders once what they have in common */
    int64_t most_rows, most_columns; /* of a unit or of both */
    size_t a_bytes, b_bytes;         /* of the thread's scratch: reordered A, a reordered panel of B, */
    size_t sum_bytes;                /* sums between blocks of k: panel after panel, all rows of the unit */
    size_t tile_bytes;               /* and a finished tile */
    Units units;
    int64_t nanoseconds; /* rough */
} AmxPlan;

/* A block's parts follow one another. */
static inline int64_t amx_step_bytes(const AmxPlan *plan) { return (int64_t)plan->parts * BLOCK_BYTES; }
static inline int64_t amx_panel_columns(const AmxPlan *plan) { return (int64_t)plan->vectors * BLOCK_SIDE; }

/* False if the kernel is no such product, is better served otherwise, or the target has no such instructions. */
bool amx_plan(AmxPlan *plan, const Kernel *kernel, const Target *target);

#endif
