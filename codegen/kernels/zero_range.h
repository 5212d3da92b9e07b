/* Where rows of a factor are 0 at both ends, as attention's are that keeps to the tokens of a row or to earlier ones
 * (KernelOperand.often_zero): a product of a tile of them sums up what lies between. The zeros add nothing, so sums are
 * the same bits. */
#ifndef CODEGEN_KERNELS_ZERO_RANGE_H
#define CODEGEN_KERNELS_ZERO_RANGE_H

#include "codegen/kernels/emit.h"

/* A step of k covers `pieces` vectors of `lanes` integers, of which `mask` (may be NULL) is looked at: one of every row
 * of the tile, or one of every k, which has all rows. */
typedef struct ZeroRange {
    LLVMTypeRef integer; /* as wide as an element */
    int lanes, pieces;
    Ir mask;
    int64_t step;                 /* of k, which divides its extent */
    int64_t k_bytes, piece_bytes; /* from one k, and from one vector, to the next */
} ZeroRange;

/* The k of the tile at `a`, of `depth`, before and from which on all elements are 0: multiples of the step. */
void zero_range_emit(Emit *emit, const ZeroRange *range, Ir a, Ir depth, Ir *first, Ir *end);

#endif
