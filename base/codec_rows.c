#include "base/codec_rows.h"

#include <math.h>
#include <string.h>

#include "base/random.h"

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

float codec_largest(const float *row, int64_t columns)
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
static void rotate(float tile[CODEC_TILE])
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
static uint64_t transpose_bits(uint64_t x)
{
    uint64_t t = (x ^ x >> 7) & 0x00aa00aa00aa00aa;
    x ^= t ^ t << 7;
    t = (x ^ x >> 14) & 0x0000cccc0000cccc;
    x ^= t ^ t << 14;
    t = (x ^ x >> 28) & 0x00000000f0f0f0f0;
    return x ^ t ^ t << 28;
}

/* Eight channels' codes, a byte each, as bits of the words, and back. */
static void write_codes(uint64_t codes, int bits, uint8_t *words)
{
    codes = transpose_bits(codes);
    for (int bit = 0; bit < bits; bit++) words[8 * bit] = (uint8_t)(codes >> 8 * bit);
}

static uint64_t read_codes(const uint8_t *words, int bits)
{
    uint64_t codes = 0;
    for (int bit = 0; bit < bits; bit++) codes |= (uint64_t)words[8 * bit] << 8 * bit;
    return transpose_bits(codes);
}

void codec_put_zero_tile(Codec codec, uint8_t *bytes)
{
    size_t ones = (size_t)codec_bits(codec) - 1;
    memset(bytes, 0, 2);
    memset(bytes + 2, 0xff, 8 * ones);
    memset(bytes + 2 + 8 * ones, 0, 8);
}

/* The bits of the bf16 that scales a tile whose largest |x'| has these. */
static uint32_t scale_of(uint32_t largest)
{
    if (largest < CODEC_LEAST_BITS) return 0;
    return largest >= CODEC_MOST_BITS ? CODEC_NAN : (largest + 0xffff) >> 16;
}

static bool is_zero(const float tile[CODEC_TILE])
{
    uint32_t any = 0;
    for (int i = 0; i < CODEC_TILE; i++) any |= bits_of(tile[i]);
    return !(any & INT32_MAX);
}

static void encode_tile(Codec codec, float tile[CODEC_TILE], CodecRounding rounding, int64_t channel, uint8_t *bytes)
{
    int levels = codec_levels(codec), bits = codec_bits(codec);
    uint32_t largest = 0;
    if (is_zero(tile)) {
        codec_put_zero_tile(codec, bytes);
        return;
    }
    rotate(tile);
    for (int i = 0; i < CODEC_TILE; i++) {
        tile[i] *= 0.125f;
        uint32_t size = bits_of(tile[i]) & 0x7fffffff;
        if (size > largest) largest = size;
    }
    uint32_t scale = scale_of(largest);
    bool counts = scale && scale != CODEC_NAN;
    float factor = counts ? (float)levels / float_of(scale << 16) : 0;
    int32_t q[CODEC_TILE];
    for (int i = 0; i < CODEC_TILE; i++) tile[i] = counts ? tile[i] * factor : 0;
    if (rounding.stochastic)
        for (int i = 0; i < CODEC_TILE; i++)
            q[i] = ((int32_t)(tile[i] * 0x1p16f) + (int32_t)drawn(rounding, channel + i)) >> 16;
    else
        for (int i = 0; i < CODEC_TILE; i++)
            q[i] = (int32_t)(bits_of(tile[i] + CODEC_ROUNDING) - bits_of(CODEC_ROUNDING));
    bytes[0] = (uint8_t)scale;
    bytes[1] = (uint8_t)(scale >> 8);
    for (int i = 0; i < CODEC_TILE; i += 8) {
        uint64_t codes = 0;
        for (int c = 0; c < 8; c++) codes |= (uint64_t)(uint8_t)(q[i + c] + levels) << 8 * c;
        write_codes(codes, bits, bytes + 2 + i / 8);
    }
}

static void decode_tile(Codec codec, const uint8_t *bytes, float tile[CODEC_TILE])
{
    int levels = codec_levels(codec), bits = codec_bits(codec);
    float scale = float_of((uint32_t)bytes[0] << 16 | (uint32_t)bytes[1] << 24);
    float step = scale / (float)levels * 0.125f;
    for (int i = 0; i < CODEC_TILE; i += 8) {
        uint64_t codes = read_codes(bytes + 2 + i / 8, bits);
        for (int c = 0; c < 8; c++) tile[i + c] = (float)((int32_t)(codes >> 8 * c & 0xff) - levels) * step;
    }
    rotate(tile);
}

void codec_encode_row(Codec codec, const float *row, int64_t columns, CodecRounding rounding, uint8_t *bytes)
{
    if (codec == CODEC_BF16) {
        encode_bf16(row, columns, rounding, bytes);
        return;
    }
    for (int64_t first = 0; first < columns; first += CODEC_TILE) {
        float tile[CODEC_TILE] = {0};
        int64_t count = columns - first < CODEC_TILE ? columns - first : CODEC_TILE;
        memcpy(tile, row + first, (size_t)count * sizeof *tile);
        encode_tile(codec, tile, rounding, first, bytes);
        bytes += codec_row_bytes(codec, CODEC_TILE);
    }
}

void codec_decode_row(Codec codec, const uint8_t *bytes, int64_t columns, float *row)
{
    if (codec == CODEC_BF16) {
        decode_bf16(bytes, columns, row);
        return;
    }
    for (int64_t first = 0; first < columns; first += CODEC_TILE) {
        float tile[CODEC_TILE];
        int64_t count = columns - first < CODEC_TILE ? columns - first : CODEC_TILE;
        if (codec_is_zero_tile(bytes))
            memset(tile, 0, sizeof tile);
        else
            decode_tile(codec, bytes, tile);
        memcpy(row + first, tile, (size_t)count * sizeof *tile);
        bytes += codec_row_bytes(codec, CODEC_TILE);
    }
}

void codec_feed_back(Codec codec, float *values, float *residual, int64_t columns, float least, uint8_t *bytes)
{
    static const float zeros[CODEC_TILE];
    for (int64_t first = 0; first < columns; first += CODEC_TILE) {
        float wanted[CODEC_TILE];
        int64_t count = columns - first < CODEC_TILE ? columns - first : CODEC_TILE;
        for (int64_t i = 0; i < count; i++) wanted[i] = values[first + i] + residual[first + i];
        bool waits = least > 0 && codec_bits(codec) && codec_largest(wanted, count) <= least;
        codec_encode_row(codec, waits ? zeros : wanted, count, (CodecRounding){0}, bytes);
        codec_decode_row(codec, bytes, count, values + first);
        for (int64_t i = 0; i < count; i++) {
            float lost = wanted[i] - values[first + i];
            residual[first + i] = isfinite(lost) ? lost : 0;
        }
        bytes += codec_row_bytes(codec, CODEC_TILE);
    }
}
