/* Fusion of calls: an elementwise map joins the kernel that produces what it reads, as that kernel's epilogue (bias,
 * residual, activation and its derivative, scaling, accumulation of gradients), so that the intermediate is not stored
 * unless somebody else needs it. Calls of different layers are never fused: where a model is cut must not change what
 * is computed. */
#ifndef CODEGEN_STAGE_CALL_FUSION_H
#define CODEGEN_STAGE_CALL_FUSION_H

#include "codegen/stage/value_arrays.h"
#include "graph/ops/lower.h"

/* Fuses within lowering->calls[first ... end - 1]. `kept` has one flag per value id: true if the value must be in
 * memory afterwards (outputs, boundaries, what a later list of calls reads). Fused calls are marked dead. */
void fuse_calls(Lowering *lowering, size_t first, size_t end, const bool *kept, ValueArrays *arrays);

#endif
