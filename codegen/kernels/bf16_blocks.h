/* Reordering of a matrix product's factors into blocks of bf16: 16 rows (of A) or columns (of B) x 32 k, in which k
 * stands in pairs, as TDPBF16PS and VDPBF16PS want them. A block is 16 lines of 64 bytes: a block of A holds for
 * every row its 16 pairs, a block of B for every pair its 16 columns. Factors of float32 that are split have a block
 * for every part; factors that memory has as bf16 go into blocks as they are. */
#ifndef CODEGEN_KERNELS_BF16_BLOCKS_H
#define CODEGEN_KERNELS_BF16_BLOCKS_H

#include "codegen/kernels/factor.h"

enum {
    BLOCK_SIDE = 16,                    /* rows of A, columns of B */
    BLOCK_DEPTH = 32,                   /* k of a block */
    BLOCK_LINE_BYTES = 64,              /* of a block, an AMX tile, a vector */
    BLOCK_PAIRS = BLOCK_LINE_BYTES / 4, /* of a line */
    BLOCK_BYTES = BLOCK_SIDE * BLOCK_LINE_BYTES
};

/* Where lines stand, in bytes. */
typedef struct BlockLayout {
    int parts;          /* of the factor, a block each, BLOCK_BYTES from one to the next */
    int64_t line_pitch; /* from one line of a block to the next */
    int64_t step_pitch; /* from one block to the next along k */
    int64_t side_pitch; /* and along rows or columns; 0: blocks of all k stand before */
    bool in_cache;      /* what is read has been fetched before */
} BlockLayout;

/* void reorder(source, reordered, extent, depth): rounds or splits, and reorders `extent` rows of A or columns of B
 * by `depth` k, from the first one's address on; zeros after the end of k. What follows the last row or column in its
 * block is arbitrary. */
LLVMValueRef blocks_emit_reorder(Emit *emit, const Kernel *kernel, const KernelGemm *match, const BlockLayout *layout,
                                 bool is_b, const char *name);
LLVMTypeRef blocks_reorder_type(Emit *emit);

/* Operand `number`'s element, `base` being its first, at the unit's indices, but at `position` of the axis that moves
 * (-1: none does) and at k of the innermost one. */
Ir blocks_factor_address(Emit *emit, const Kernel *kernel, int number, Ir base, const Ir *index, int moving_axis,
                         Ir position, Ir k);

/* A panel of B that compiled code keeps (kernel_keep_b), and what says whether it is there. `depth_block` and `width`:
 * k and columns of a panel. */
bool blocks_keep_b(const Kernel *kernel, int64_t columns, int64_t depth, int64_t depth_block, int64_t width);
Ir blocks_kept_panel(Emit *emit, const Kernel *kernel, const Ir *operand, int64_t depth_block, int64_t width, Ir column,
                     Ir k);
Ir blocks_are_kept(Emit *emit, const Kernel *kernel, const Ir *operand);

#endif
