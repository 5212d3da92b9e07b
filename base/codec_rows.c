#include "base/codec_rows.h"

#include <math.h>
#include <string.h>

#include "base/random.h"
#include "base/wide.h"

#define INLINE static inline __attribute__((always_inline)) /* into each function that is WIDE */

static uint32_t bits_of(float number)
{
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits)
{
    float number;
    memcpy(&number, &bits, sizeof number);
    return number;
}

WIDE float codec_largest(const float *row, int64_t columns)
{
    int32_t largest = 0; /* the bits of a size, which are as large as it is */
    for (int64_t i = 0; i < columns; i++) {
        int32_t bits;
        memcpy(&bits, &row[i], sizeof bits);
        bits &= INT32_MAX;
        largest = bits > largest ? bits : largest;
    }
    return float_of((uint32_t)largest);
}

static uint32_t drawn(CodecRounding rounding, int64_t channel)
{
    return random_element(rounding.key, rounding.first + (uint64_t)channel);
}

/* ---- bf16 ---- */

static void encode_bf16(const float *row, int64_t columns, CodecRounding rounding, uint8_t *bytes)
{
    for (int64_t i = 0; i < columns; i++) {
        uint32_t bits = bits_of(row[i]);
        uint32_t added = rounding.stochastic ? drawn(rounding, i) : 0x7fff + (bits >> 16 & 1);
        uint32_t rounded = (bits & 0x7fffffff) > 0x7f800000 ? CODEC_NAN : (bits + added) >> 16;
        if ((bits & 0x7fffffff) == 0x7f800000) rounded = bits >> 16;
        bytes[2 * i] = (uint8_t)rounded;
        bytes[2 * i + 1] = (uint8_t)(rounded >> 8);
    }
}

static void decode_bf16(const uint8_t *bytes, int64_t columns, float *row)
{
    for (int64_t i = 0; i < columns; i++)
        row[i] = float_of((uint32_t)bytes[2 * i] << 16 | (uint32_t)bytes[2 * i + 1] << 24);
}

/* ---- Tiles ---- */

/* H64 without its factor: six steps, of which the one with distance d = 1, 2, 4 ... 32 replaces channels a and a + d by
 * their sum and difference. Here channels move so that a step always takes neighbours, in loops that vectorise: after
 * six moves each is in its place again. */
INLINE void rotate(float tile[CODEC_TILE])
{
    enum { HALF = CODEC_TILE / 2 };
    float moved[CODEC_TILE];
    for (int distance = 1; distance < CODEC_TILE; distance *= 4) {
        for (int i = 0; i < HALF; i++) moved[i] = tile[2 * i] + tile[2 * i + 1];
        for (int i = 0; i < HALF; i++) moved[i + HALF] = tile[2 * i] - tile[2 * i + 1];
        for (int i = 0; i < HALF; i++) tile[i] = moved[2 * i] + moved[2 * i + 1];
        for (int i = 0; i < HALF; i++) tile[i + HALF] = moved[2 * i] - moved[2 * i + 1];
    }
}

/* Bit j of byte i becomes bit i of byte j (Warren, "Hacker's Delight", 7-3). */
INLINE uint64_t transpose_bits(uint64_t x)
{
    uint64_t t = (x ^ x >> 7) & 0x00aa00aa00aa00aa;
    x ^= t ^ t << 7;
    t = (x ^ x >> 14) & 0x0000cccc0000cccc;
    x ^= t ^ t << 14;
    t = (x ^ x >> 28) & 0x00000000f0f0f0f0;
    return x ^ t ^ t << 28;
}

/* Byte j of word i becomes byte i of word j: each of three moves turns the six bits of a byte's place by one. */
INLINE void transpose_bytes(uint8_t bytes[CODEC_TILE])
{
    enum { HALF = CODEC_TILE / 2 };
    uint8_t moved[CODEC_TILE];
    for (int i = 0; i < HALF; i++) moved[2 * i] = bytes[i], moved[2 * i + 1] = bytes[i + HALF];
    for (int i = 0; i < HALF; i++) bytes[2 * i] = moved[i], bytes[2 * i + 1] = moved[i + HALF];
    for (int i = 0; i < HALF; i++) moved[2 * i] = bytes[i], moved[2 * i + 1] = bytes[i + HALF];
    memcpy(bytes, moved, sizeof moved);
}

/* All channels' codes, a byte each, as words of one bit each, and back. */
INLINE void write_codes(uint8_t codes[CODEC_TILE], int bits, uint8_t *words)
{
    uint64_t groups[CODEC_TILE / 8];
    memcpy(groups, codes, sizeof groups);
    for (int i = 0; i < CODEC_TILE / 8; i++) groups[i] = transpose_bits(groups[i]);
    memcpy(codes, groups, sizeof groups);
    transpose_bytes(codes);
    memcpy(words, codes, 8 * (size_t)bits);
}

INLINE void read_codes(const uint8_t *words, int bits, uint8_t codes[CODEC_TILE])
{
    uint64_t groups[CODEC_TILE / 8];
    memset(codes, 0, CODEC_TILE);
    memcpy(codes, words, 8 * (size_t)bits);
    transpose_bytes(codes);
    memcpy(groups, codes, sizeof groups);
    for (int i = 0; i < CODEC_TILE / 8; i++) groups[i] = transpose_bits(groups[i]);
    memcpy(codes, groups, sizeof groups);
}

void codec_put_zero_tile(Codec codec, uint8_t *bytes)
{
    size_t ones = (size_t)codec_bits(codec) - 1;
    memset(bytes, 0, 2);
    memset(bytes + 2, 0xff, 8 * ones);
    memset(bytes + 2 + 8 * ones, 0, 8);
}

/* The bits of the bf16 that scales a tile whose largest |x'| has these. */
INLINE uint32_t scale_of(uint32_t largest)
{
    if (largest < CODEC_LEAST_BITS) return 0;
    return largest >= CODEC_MOST_BITS ? CODEC_NAN : (largest + 0xffff) >> 16;
}

INLINE bool is_zero(const float tile[CODEC_TILE])
{
    uint32_t any = 0;
    for (int i = 0; i < CODEC_TILE; i++) any |= bits_of(tile[i]);
    return !(any & INT32_MAX);
}

/* A codec, as tiles need it. */
typedef struct TileForm {
    Codec codec;
    int bits, levels;
    size_t bytes;
} TileForm;

static TileForm form_of(Codec codec)
{
    return (TileForm){codec, codec_bits(codec), codec_levels(codec), (size_t)codec_row_bytes(codec, CODEC_TILE)};
}

/* Writes a tile, and what its channels are in whole numbers. Returns the scale's bits. */
INLINE uint32_t encode_tile(TileForm form, float tile[CODEC_TILE], CodecRounding rounding, int64_t channel,
                            int32_t q[CODEC_TILE], uint8_t *bytes)
{
    int32_t largest = 0; /* of sizes' bits, which are as large as they are */
    rotate(tile);
    for (int i = 0; i < CODEC_TILE; i++) {
        tile[i] *= 0.125f;
        int32_t size = (int32_t)(bits_of(tile[i]) & INT32_MAX);
        largest = size > largest ? size : largest;
    }
    uint32_t scale = scale_of((uint32_t)largest);
    bool counts = scale && scale != CODEC_NAN;
    float factor = counts ? (float)form.levels / float_of(scale << 16) : 0;
    for (int i = 0; i < CODEC_TILE; i++) tile[i] = counts ? tile[i] * factor : 0;
    if (rounding.stochastic)
        for (int i = 0; i < CODEC_TILE; i++)
            q[i] = ((int32_t)(tile[i] * 0x1p16f) + (int32_t)drawn(rounding, channel + i)) >> 16;
    else
        for (int i = 0; i < CODEC_TILE; i++)
            q[i] = (int32_t)(bits_of(tile[i] + CODEC_ROUNDING) - bits_of(CODEC_ROUNDING));
    uint8_t codes[CODEC_TILE];
    for (int i = 0; i < CODEC_TILE; i++) codes[i] = (uint8_t)(q[i] + form.levels);
    bytes[0] = (uint8_t)scale;
    bytes[1] = (uint8_t)(scale >> 8);
    write_codes(codes, form.bits, bytes + 2);
    return scale;
}

/* The channels of whole numbers. */
INLINE void restore_tile(TileForm form, uint32_t scale, const int32_t q[CODEC_TILE], float tile[CODEC_TILE])
{
    float step = float_of(scale << 16) / (float)form.levels * 0.125f;
    for (int i = 0; i < CODEC_TILE; i++) tile[i] = (float)q[i] * step;
    rotate(tile);
}

INLINE void decode_tile(TileForm form, const uint8_t *bytes, float tile[CODEC_TILE])
{
    uint8_t codes[CODEC_TILE];
    int32_t q[CODEC_TILE];
    read_codes(bytes + 2, form.bits, codes);
    for (int i = 0; i < CODEC_TILE; i++) q[i] = (int32_t)codes[i] - form.levels;
    restore_tile(form, bytes[0] | (uint32_t)bytes[1] << 8, q, tile);
}

WIDE void codec_encode_row(Codec codec, const float *row, int64_t columns, CodecRounding rounding, uint8_t *bytes)
{
    if (codec == CODEC_BF16) {
        encode_bf16(row, columns, rounding, bytes);
        return;
    }
    TileForm form = form_of(codec);
    for (int64_t first = 0; first < columns; first += CODEC_TILE, bytes += form.bytes) {
        float tile[CODEC_TILE] = {0};
        int32_t q[CODEC_TILE];
        int64_t count = columns - first < CODEC_TILE ? columns - first : CODEC_TILE;
        memcpy(tile, row + first, (size_t)count * sizeof *tile);
        if (is_zero(tile))
            codec_put_zero_tile(codec, bytes);
        else
            encode_tile(form, tile, rounding, first, q, bytes);
    }
}

WIDE void codec_decode_row(Codec codec, const uint8_t *bytes, int64_t columns, float *row)
{
    if (codec == CODEC_BF16) {
        decode_bf16(bytes, columns, row);
        return;
    }
    TileForm form = form_of(codec);
    for (int64_t first = 0; first < columns; first += CODEC_TILE, bytes += form.bytes) {
        float tile[CODEC_TILE] = {0};
        int64_t count = columns - first < CODEC_TILE ? columns - first : CODEC_TILE;
        if (!codec_is_zero_tile(bytes)) decode_tile(form, bytes, tile);
        memcpy(row + first, tile, (size_t)count * sizeof *tile);
    }
}

/* Of a tile: `wanted` is coded, and becomes what it decodes to. */
INLINE void pass_through(TileForm form, float wanted[CODEC_TILE], float least, uint8_t *bytes)
{
    int32_t q[CODEC_TILE];
    uint32_t scale = 0;
    bool waits = least > 0 && codec_largest(wanted, CODEC_TILE) <= least;
    if (waits || is_zero(wanted))
        codec_put_zero_tile(form.codec, bytes);
    else
        scale = encode_tile(form, wanted, (CodecRounding){0}, 0, q, bytes);
    if (scale)
        restore_tile(form, scale, q, wanted);
    else
        memset(wanted, 0, CODEC_TILE * sizeof *wanted);
}

INLINE void feed_back_bf16(const float wanted[CODEC_TILE], int64_t count, float decoded[CODEC_TILE], uint8_t *bytes)
{
    encode_bf16(wanted, count, (CodecRounding){0}, bytes);
    decode_bf16(bytes, count, decoded);
}

WIDE void codec_feed_back(Codec codec, float *values, const float *residual, float *lost, int64_t columns, float least,
                          uint8_t *bytes)
{
    bool tiles = codec != CODEC_BF16;
    TileForm form = tiles ? form_of(codec) : (TileForm){.bytes = 2 * CODEC_TILE};
    for (int64_t first = 0; first < columns; first += CODEC_TILE, bytes += form.bytes) {
        float wanted[CODEC_TILE] = {0}, decoded[CODEC_TILE];
        int64_t count = columns - first < CODEC_TILE ? columns - first : CODEC_TILE;
        for (int64_t i = 0; i < count; i++) wanted[i] = values[first + i] + (residual ? residual[first + i] : 0);
        memcpy(decoded, wanted, sizeof wanted);
        if (tiles)
            pass_through(form, decoded, least, bytes);
        else
            feed_back_bf16(wanted, count, decoded, bytes);
        memcpy(values + first, decoded, (size_t)count * sizeof *values);
        for (int64_t i = 0; i < count && lost; i++) {
            float missing = wanted[i] - decoded[i];
            lost[first + i] = isfinite(missing) ? missing : 0;
        }
    }
}
