/* Updates in a codec (base/codec.h), as messages and as words of a sum. coded_row_make makes their rows; what it leaves
 * out is kept for the next one (member/feedback.h): error feedback (Seide et al., "1-bit stochastic gradient descent",
 * 2014; Karimireddy et al., "Error feedback fixes SignSGD", ICML 2019). Whatever the codec, all updates that were sent
 * and what is left come to the sum of the true ones, but for float32's rounding.
 *
 * As a message: the weight's words (aggregate/fixed_point.h), little-endian, then the bytes of one row of values; on
 * the wire, the row is as coded_row.h has it. */
#ifndef FEDERATION_CODED_UPDATE_H
#define FEDERATION_CODED_UPDATE_H

#include "federation/coded_row.h"

/* The size for `count` values: a piece of an update (update_pieces.h). */
size_t coded_update_bytes(Codec codec, size_t count);

/* What the message of such a size has as its weight; -1: not a weight. */
int64_t coded_update_weight(const unsigned char *message);

/* A message as words of a sum (fixed_point.h) of `sites` sites at `exponent`: FIXED_POINT_WEIGHT_WORDS more than
 * values; NULL: it is only checked. False: another size, values that are not finite or, unless it `cuts` them, beyond
 * the exponent, or a weight that is none. */
bool coded_update_read(Codec codec, const unsigned char *message, size_t size, size_t count, int exponent, bool cuts,
                       int sites, uint32_t *words);

#endif
