/* Matrix products on AMX tiles (TDPBF16PS), which multiply bf16.
 *
 * Factors that are to be rounded to bf16 (KernelGemm.bf16) are. Those of full float32 are split, since tiles multiply
 * sixteen times as fast as the processor's float32 units: a = a0 + a1 + a2 exactly, each part a bf16 of the 8 leading
 * bits of what is left. Of the nine products of parts, six are summed; the other three, a1 b2, a2 b1 and a2 b2, are
 * together at most the last bit of a float32, 2^-23 of |a b|, and mostly far less. Sums are of float32; the one kept is
 * rounded six times per 32 k where fused multiply-adds would round it 32 times: the result is closer to the exact one
 * than theirs (tests/codegen/kernels/test_codegen_gemm.c measures both). (Henry, Tang and Heinecke, "Leveraging the
 * bfloat16 Artificial Intelligence Datatype For Higher-Precision Computations", ARITH 2019.) What differs: an infinite
 * factor, or one above 3.396e38 whose leading part is, makes NaN, not infinity, in its row or column (zeros for its
 * other parts would not help: infinity times a part of the other factor that is 0 is NaN too), and parts and sums below
 * 2^-126 count as zero.
 *
 * Both factors are packed (codegen/kernels/packed_blocks.h), blocks one after the other along k. A unit packs its rows
 * of A once per block of k, then takes panel after panel of B: packs it, and multiplies it with tile after tile of
 * rows. Sums wait in scratch memory between blocks of k; the epilogue reads a finished tile row by row from a small
 * buffer. The order of additions depends on neither units nor threads. */
#ifndef CODEGEN_KERNELS_PACKED_GEMM_H
#define CODEGEN_KERNELS_PACKED_GEMM_H

#include "codegen/kernels/packed_blocks.h"
#include "codegen/kernels/work_units.h"
#include "graph/kernel/kernel.h"

enum {
    PACKED_MAX_PARTS = 3 /* of a float32 */
};

typedef struct PackedPlan {
    KernelGemm match;
    int parts; /* of every factor: 1 if it is rounded, 3 if it is split */
    int64_t rows, columns, depth;
    int vectors;          /* blocks of B in a panel */
    int tile_rows;        /* rows multiplied at a time */
    int64_t depth_block;  /* of k; a multiple of PACKED_STEP; the last block may be shorter */
    int64_t unit_rows;    /* multiple of the tile's and of PACKED_BLOCK */
    int64_t unit_columns; /* multiple of the panel's */
    bool joins_units;     /* the only two, where a call is given both: it packs once what they have in common */
    int64_t most_rows, most_columns; /* of a unit or of both */
    size_t a_bytes, b_bytes;         /* of the thread's scratch: packed A, a packed panel of B, */
    size_t sum_bytes;                /* sums between blocks of k: panel after panel, all rows of the unit */
    size_t tile_bytes;               /* and a finished tile */
    Units units;
    int64_t nanoseconds; /* rough */
} PackedPlan;

/* A block's parts follow one another. */
static inline int64_t packed_step_bytes(const PackedPlan *plan) { return (int64_t)plan->parts * PACKED_BLOCK_BYTES; }
static inline int64_t packed_panel_columns(const PackedPlan *plan) { return (int64_t)plan->vectors * PACKED_BLOCK; }

/* False if the kernel is no such product, is better served otherwise, or the target has no such instructions. */
bool packed_plan(PackedPlan *plan, const Kernel *kernel, const Target *target);
void packed_emit(Emit *emit, const Kernel *kernel, const PackedPlan *plan, const char *symbol);

/* ---- Parts ---- */

typedef enum PackedPanelParameter {
    PACKED_OPERANDS, /* the kernel's operand array */
    PACKED_A,        /* packed */
    PACKED_B,        /* packed */
    PACKED_SUMS,     /* of the panel, its columns side by side: where they are kept between blocks of k */
    PACKED_TILE,
    PACKED_NEXT,  /* what will be packed next: the first element of the next panel of B */
    PACKED_BEGIN, /* rows begin ... end - 1 */
    PACKED_END,
    PACKED_COLUMN, /* the panel's first */
    PACKED_STEPS,  /* of k in this block */
    PACKED_FIRST,  /* whether it is the first block of k, and the last */
    PACKED_LAST,
    PACKED_BATCH /* from here on: the index of every axis; those of row, column and k are ignored */
} PackedPanelParameter;

/* Multiplies the unit's rows with one panel of `vectors` blocks, of whose last `tail` columns exist (0: all). */
LLVMValueRef packed_emit_panel(Emit *emit, const Kernel *kernel, const PackedPlan *plan, int vectors, int tail,
                               const char *name);
LLVMTypeRef packed_panel_type(Emit *emit, const Kernel *kernel);

#endif
