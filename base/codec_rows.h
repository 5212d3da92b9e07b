/* Encodes and decodes rows of float32 channels with the codecs of base/codec.h, bit for bit as compiled kernels do.
 *
 * bf16: channel by channel the upper half of the float32, rounded to the nearest, ties to even.
 *
 * q8, q6, q4, q3: the row is cut into tiles of 64 channels, of which the last is filled up with zeros. A tile is
 * rotated, x' = H64 x / 8, by a fast Walsh-Hadamard transform, which spreads outliers over the tile (Ashkboos et al.,
 * "QuaRot", 2024), and every x' becomes q = x' L / s rounded to the nearest, ties to even, where L = 2^(bits - 1) - 1
 * and the scale s is the largest |x'|. Back: x = H64 (q s / L) / 8.
 *
 * The scale is a bf16, rounded up: as wide as float32, for gradients are often smaller than the least float16, and no
 * |q| exceeds L. A tile without an |x'| of at least 2^-100 is zero (s = 0); one with a number that is not finite, or an
 * |x'| of 2^120 or more, comes back as NaNs, so that what went wrong is seen and not hidden.
 *
 * A tile's bytes are the scale, low byte first, then as many words of 64 bits as a channel has bits: word p holds bit p
 * of q + L of all channels, channel i as bit i, low byte first.
 *
 * Stochastic rounding: q is the larger neighbour as often as x' L / s is near it, so that the mean is right. What is
 * drawn for a channel is random_element (base/random.h) of a key and of `first` plus the channel's number. */
#ifndef BASE_CODEC_ROWS_H
#define BASE_CODEC_ROWS_H

#include "base/codec.h"

/* Emitters need these, too. */
#define CODEC_LEAST_BITS ((uint32_t)(127 - 100) << 23) /* of 2^-100 as float32 */
#define CODEC_MOST_BITS ((uint32_t)(127 + 120) << 23)  /* of 2^120 */
#define CODEC_NAN 0x7fc0u                              /* as bf16 */
#define CODEC_ROUNDING 0x1.8p23f /* added to a number below 2^22, it leaves the nearest whole number in the low bits */

static inline int codec_levels(Codec codec) { return (1 << (codec_bits(codec) - 1)) - 1; } /* L */

typedef struct CodecRounding {
    bool stochastic;
    uint64_t key, first;
} CodecRounding;

/* `bytes` has codec_row_bytes of them. The codec is not CODEC_NONE. */
void codec_encode_row(Codec codec, const float *row, int64_t columns, CodecRounding rounding, uint8_t *bytes);
void codec_decode_row(Codec codec, const uint8_t *bytes, int64_t columns, float *row);

/* A tile of zeros, as it is coded: only such a tile has the scale 0. `bytes` are those of one tile. */
void codec_put_zero_tile(Codec codec, uint8_t *bytes);
static inline bool codec_is_zero_tile(const uint8_t *bytes) { return !bytes[0] && !bytes[1]; }

/* The largest size of a channel; a NaN is larger than all numbers. */
float codec_largest(const float *row, int64_t columns);

/* Error feedback (Seide et al., "1-Bit Stochastic Gradient Descent", 2014): codes values + residual (NULL: nothing),
 * rounded to the nearest; `values` become what they decode to, `lost` (may be `residual`; NULL: of no use) what was
 * lost, which is 0 where it is not finite. Of q8 to q3, tiles without a channel larger than `least` are coded as
 * zero. */
void codec_feed_back(Codec codec, float *values, const float *residual, float *lost, int64_t columns, float least,
                     uint8_t *bytes);

#endif
