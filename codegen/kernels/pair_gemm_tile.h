/* The innermost part of a matrix product by VDPBF16PS: the rows of a unit times one panel of B. */
#ifndef CODEGEN_KERNELS_PAIR_GEMM_TILE_H
#define CODEGEN_KERNELS_PAIR_GEMM_TILE_H

#include "codegen/kernels/pair_gemm_plan.h"

typedef enum PairPanelParameter {
    PAIR_OPERANDS, /* the kernel's operand array */
    PAIR_A,        /* reordered: the unit's first row at the block of k */
    PAIR_B,        /* reordered */
    PAIR_SUMS,     /* of the panel */
    PAIR_TILE,
    PAIR_NEXT_SOURCE, /* the first element of the panel that is reordered meanwhile, */
    PAIR_NEXT_B,      /* and where it is reordered to */
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

/* Multiplies the unit's rows with one panel of `vectors` vectors, of whose last `tail` columns exist (0: all).
 * `reorder_b` reorders a piece of B. */
LLVMValueRef pair_emit_panel(Emit *emit, const Kernel *kernel, const PairPlan *plan, LLVMValueRef reorder_b,
                             int vectors, int tail, const char *name);
LLVMTypeRef pair_panel_type(Emit *emit, const Kernel *kernel);

#endif
