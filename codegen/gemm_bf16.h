/* Matrix products on processors that multiply bf16: by AMX tiles (TDPBF16PS) or by VDPBF16PS.
 *
 * Factors that are to be rounded to bf16 (KernelGemm.bf16) are; processors without such instructions run
 * codegen/gemm.h's code, which rounds the factors as it reads them.
 *
 * Factors of full float32 are split where there are AMX tiles, which multiply sixteen times as fast as the processor's
 * float32 units: a = a0 + a1 + a2 exactly, each part a bf16 of the 8 leading bits of what is left. Of the nine products
 * of parts, six are summed; the other three, a1 b2, a2 b1 and a2 b2, are together at most the last bit of a float32,
 * 2^-23 of |a b|, and mostly far less. Sums are of float32; the one kept is rounded six times per 32 k where fused
 * multiply-adds would round it 32 times: the result is closer to the exact one than theirs
 * (tests/test_codegen_gemm.c measures both). (Henry, Tang and Heinecke, "Leveraging
 * the bfloat16 Artificial Intelligence Datatype For Higher-Precision Computations", ARITH 2019.) What differs: an
 * infinite factor, or one above 3.396e38 whose leading part is, makes NaN, not infinity, in its row or column (zeros
 * for its other parts would not help: infinity times a part of the other factor that is 0 is NaN too), and parts and
 * sums below 2^-126 count as zero.
 *
 * Both factors are packed into blocks of 16 rows (of A) or columns (of B) x 32 k, 1 KiB a part, in which k stands
 * in pairs, as the instructions want them: a block of A holds for every row its 16 pairs, a block of B for every pair
 * its 16 columns. A unit packs its rows of A once per block of k, then takes panel after panel of B: packs it, and
 * multiplies it with tile after tile of rows. Sums wait in scratch memory between blocks of k; the epilogue reads a
 * finished tile row by row from a small buffer. The order of additions depends on neither units nor threads. */
#ifndef CODEGEN_GEMM_BF16_H
#define CODEGEN_GEMM_BF16_H

#include "codegen/emit.h"
#include "codegen/work_units.h"
#include "graph/kernel.h"

enum {
    BF16_BLOCK = 16, /* rows of A, columns of B */
    BF16_STEP = 32,  /* k of a block */
    BF16_BLOCK_BYTES = BF16_BLOCK * BF16_STEP * 2,
    BF16_MAX_VECTORS = 4, /* blocks of a panel of B */
    BF16_MAX_PARTS = 3    /* of a float32 */
};

typedef struct Bf16Plan {
    KernelGemm match;
    bool tiles; /* AMX; else VDPBF16PS */
    int parts;  /* of every factor: 1 if it is rounded, 3 if it is split */
    int64_t rows, columns, depth;
    int vectors;          /* blocks of B in a panel */
    int tile_rows;        /* rows multiplied at a time */
    int64_t depth_block;  /* of k; a multiple of BF16_STEP; the last block may be shorter */
    int64_t unit_rows;    /* multiple of the tile's and of BF16_BLOCK */
    int64_t unit_columns; /* multiple of the panel's */
    bool joins_units;     /* the only two, where a call is given both: it packs once what they have in common */
    int64_t most_rows, most_columns; /* of a unit or of both */
    size_t a_bytes, b_bytes;         /* of the thread's scratch: packed A, a packed panel of B, */
    size_t sum_bytes;                /* sums between blocks of k: panel after panel, all rows of the unit */
    size_t tile_bytes;               /* and a finished tile */
    Units units;
    int64_t nanoseconds; /* rough */
} Bf16Plan;

/* A block's parts follow one another. */
static inline int64_t bf16_step_bytes(const Bf16Plan *plan) { return (int64_t)plan->parts * BF16_BLOCK_BYTES; }
static inline int64_t bf16_panel_columns(const Bf16Plan *plan) { return (int64_t)plan->vectors * BF16_BLOCK; }

/* False if the kernel is no such product, is better served otherwise, or the target has no such instructions. */
bool bf16_plan(Bf16Plan *plan, const Kernel *kernel, const Target *target);
void bf16_emit(Emit *emit, const Kernel *kernel, const Bf16Plan *plan, const char *symbol);

/* --- Parts ----------------------------------------------------------------------------------------------------------
 */

/* void pack(source, packed, extent, depth): rounds or splits, and packs `extent` rows of A or columns of B by `depth`
 * k, from the first one's address on. Blocks follow one another along k, then along the rows or columns, zeros behind
 * the end of k. What lies behind the last row or column of its block is arbitrary. */
LLVMValueRef bf16_emit_pack(Emit *emit, const Kernel *kernel, const Bf16Plan *plan, bool is_b, const char *name);
LLVMTypeRef bf16_pack_type(Emit *emit);

typedef enum Bf16PanelParameter {
    BF16_OPERANDS, /* the kernel's operand array */
    BF16_A,        /* packed */
    BF16_B,        /* packed */
    BF16_SUMS,     /* of the panel, its columns side by side: where they are kept between blocks of k */
    BF16_TILE,
    BF16_NEXT,  /* what will be packed next: the first element of the next panel of B */
    BF16_BEGIN, /* rows begin ... end - 1 */
    BF16_END,
    BF16_COLUMN, /* the panel's first */
    BF16_STEPS,  /* of k in this block */
    BF16_FIRST,  /* whether it is the first block of k, and the last */
    BF16_LAST,
    BF16_BATCH /* from here on: the index of every axis; those of row, column and k are ignored */
} Bf16PanelParameter;

/* Multiplies the unit's rows with one panel of `vectors` blocks, of whose last `tail` columns exist (0: all). */
LLVMValueRef bf16_emit_panel(Emit *emit, const Kernel *kernel, const Bf16Plan *plan, int vectors, int tail,
                             const char *name);
LLVMTypeRef bf16_panel_type(Emit *emit, const Kernel *kernel);

#endif
