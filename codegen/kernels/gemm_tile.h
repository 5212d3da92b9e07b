/* The innermost part of a matrix product: a panel function, which multiplies some rows of A with one reordered panel.
 */
#ifndef CODEGEN_KERNELS_GEMM_TILE_H
#define CODEGEN_KERNELS_GEMM_TILE_H

#include "codegen/kernels/gemm_plan.h"

typedef struct Panel {
    int vectors, tail; /* lanes of the last vector that count; 0: all */
    int64_t depth;     /* of this block of k, or the most that a limited sum has in one */
    bool first, last;  /* among the blocks of k */
    /* From this block of A and of the panel's source to those that are needed next, in elements. */
    int64_t next_a, next_source;
} Panel;

enum {
    PANEL_OPERANDS, /* the kernel's operand array */
    PANEL_A,        /* row 0 of A, or the reordered row `begin`, at the block's first k */
    PANEL_A_SOURCE, /* row `begin` of A in place */
    PANEL_B,        /* the panel, reordered or in place */
    PANEL_SOURCE,   /* where the panel was reordered from */
    PANEL_SUMS,     /* where sums are kept between blocks: the panel's first element of row `begin` */
    PANEL_BEGIN,    /* rows begin ... end - 1 */
    PANEL_END,
    PANEL_COLUMN, /* the panel's first column */
    PANEL_DEPTH,  /* of this block of k, where the sum is limited */
    PANEL_BATCH   /* from here on: the index of every axis; those of row, column and k are ignored */
};

LLVMTypeRef gemm_panel_type(Emit *emit, const Kernel *kernel);
LLVMValueRef gemm_emit_panel(Emit *emit, const Kernel *kernel, const GemmPlan *plan, const Panel *panel,
                             const char *name);

#endif
