/* Weights in blocks: DTYPE_BLOCK neighbouring elements are integers q times one scale, which is bf16. A block is its
 * scale, then the integers: of DTYPE_Q8 a byte each, -127 ... 127; of DTYPE_Q4 q + 8 in four bits, q being -7 ... 7,
 * element i < 16 in the low half of byte i and element 16 + i in its high half.
 *
 * The scale is the largest magnitude / 127 (or 7), rounded up, so that no integer is cut off; an element is at most
 * half a scale from what it was: 1/252 (or 1/13.9) of the largest of its block, rounding of the scale included. */
#ifndef BASE_WEIGHT_BLOCKS_H
#define BASE_WEIGHT_BLOCKS_H

#include "base/dtype.h"

/* `count` elements, a multiple of DTYPE_BLOCK. A block with a number that is not finite becomes NaN: a
 * broken weight must not look like a sound one. */
void weight_blocks_encode(DType dtype, const float *values, int64_t count, void *bytes);

#endif
