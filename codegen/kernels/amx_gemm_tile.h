/* The innermost part of a matrix product on AMX tiles: the rows of a unit times one panel of B. */
#ifndef CODEGEN_KERNELS_AMX_GEMM_TILE_H
#define CODEGEN_KERNELS_AMX_GEMM_TILE_H

#include "codegen/kernels/amx_gemm_plan.h"

typedef enum AmxPanelParameter {
    AMX_OPERANDS, /* the kernel's operand array */
    AMX_A,        /* reordered */
    AMX_B,        /* reordered */
    AMX_SUMS,     /* of the panel, its columns side by side: where they are kept between blocks of k */
    AMX_TILE,
    AMX_NEXT,  /* what will be reordered next: the first element of the next panel of B */
    AMX_BEGIN, /* rows begin ... end - 1 */
    AMX_END,
    AMX_COLUMN, /* the panel's first */
    AMX_STEPS,  /* of k in this block */
    AMX_FIRST,  /* whether it is the first block of k, and the last */
    AMX_LAST,
    AMX_KEPT, /* whether the next panel is kept already: it is not reordered, but read */
    AMX_BATCH /* from here on: the index of every axis; those of row, column and k are ignored */
} AmxPanelParameter;

/* Multiplies the unit's rows with one panel of `vectors` blocks, of whose last `tail` columns exist (0: all). */
LLVMValueRef amx_emit_panel(Emit *emit, const Kernel *kernel, const AmxPlan *plan, int vectors, int tail,
                            const char *name);
LLVMTypeRef amx_panel_type(Emit *emit, const Kernel *kernel);

#endif
