/* Matrix products of factors that are to be rounded to bf16 (KernelGemm.bf16), by VDPBF16PS, which adds the products of
 * two pairs to each of 16 sums; processors without it run codegen/kernels/gemm.h's code, which rounds the factors as it
 * reads them, those with AMX codegen/kernels/packed_gemm.h's.
 *
 * A tile of rows x vectors of sums stays in registers while k runs. All of a unit's rows of A are packed first, row by
 * row, k in pairs: an element of A is a broadcast pair. B is packed panel by panel, of one tile's width: for every pair
 * of k its columns side by side. The panel that is being used stays in the second-level cache; while it is, the tiles
 * pack the next one, each a share, whose lines the tile before has prefetched. So memory is read at an even rate
 * beside the products, and B, A and the epilogue's operands once.
 *
 * Units that a call is given together share their packed rows of A. Long sums are cut into blocks of k, between which a
 * panel's sums wait in scratch memory: their order depends on neither units nor threads. */
#ifndef CODEGEN_KERNELS_PAIR_GEMM_H
#define CODEGEN_KERNELS_PAIR_GEMM_H

#include "codegen/kernels/packed_blocks.h"
#include "codegen/kernels/work_units.h"

enum { PAIR_MAX_VECTORS = 4 };

typedef struct PairPlan {
    KernelGemm match;
    int64_t rows, columns, depth;
    int vectors;          /* of a panel of B */
    int tile_rows;        /* multiplied at a time */
    int64_t depth_block;  /* of k; a multiple of PACKED_STEP; the last block may be shorter */
    int64_t row_pitch;    /* bytes of a packed row of A */
    int64_t unit_rows;    /* a multiple of the tile's */
    int64_t unit_columns; /* a multiple of the panel's */
    size_t a_bytes;       /* of the thread's scratch: packed A, */
    size_t b_bytes;       /* one of two panels of B, a block of k each, */
    size_t sum_bytes;     /* a panel's sums between blocks of k */
    size_t tile_bytes;    /* and a finished tile */
    Units units;          /* that of columns runs fastest */
    int64_t nanoseconds;  /* rough */
} PairPlan;

static inline int64_t pair_panel_columns(const PairPlan *plan) { return (int64_t)plan->vectors * PACKED_BLOCK; }
static inline size_t pair_scratch_bytes(const PairPlan *plan)
{
    return plan->a_bytes + 2 * plan->b_bytes + plan->sum_bytes + plan->tile_bytes;
}

/* False if the kernel is no such product, or the target has no such instruction or a better one. */
bool pair_plan(PairPlan *plan, const Kernel *kernel, const Target *target);
void pair_emit(Emit *emit, const Kernel *kernel, const PairPlan *plan, const char *symbol);

/* ---- Parts ---- */

typedef enum PairPanelParameter {
    PAIR_OPERANDS, /* the kernel's operand array */
    PAIR_A,        /* packed: the unit's first row at the block of k */
    PAIR_B,        /* packed */
    PAIR_SUMS,     /* of the panel */
    PAIR_TILE,
    PAIR_NEXT_SOURCE, /* the first element of the panel that is packed meanwhile, */
    PAIR_NEXT_B,      /* and where it is packed to */
    PAIR_BEGIN,       /* rows begin ... end - 1 */
    PAIR_END,
    PAIR_COLUMN,      /* the panel's first */
    PAIR_STEPS,       /* of k in this block */
    PAIR_NEXT_EXTENT, /* columns and k of the next panel; 0: there is none */
    PAIR_NEXT_DEPTH,
    PAIR_FIRST, /* whether it is the first block of k, and the last */
    PAIR_LAST,
    PAIR_BATCH /* from here on: the index of every axis; those of row, column and k are ignored */
} PairPanelParameter;

/* Multiplies the unit's rows with one panel of `vectors` vectors, of whose last `tail` columns exist (0: all). `pack_b`
 * packs a piece of B. */
LLVMValueRef pair_emit_panel(Emit *emit, const Kernel *kernel, const PairPlan *plan, LLVMValueRef pack_b, int vectors,
                             int tail, const char *name);
LLVMTypeRef pair_panel_type(Emit *emit, const Kernel *kernel);

#endif
