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

/* H64 without its factor. Every step replaces channels a and b, a < b, by a + b and a - b. */
static void rotate(float tile[CODEC_TILE])
{
    for (int distance = 1; distance < CODEC_TILE; distance *= 2)
        for (int i = 0; i < CODEC_TILE; i++) {
            if (i & distance) continue;
            float low = tile[i], high = tile[i + distance];
            tile[i] = low + high;
            tile[i + distance] = low - high;
        }
}

/* The bits of the bf16 that scales a tile whose largest |x'| has these. */
static uint32_t scale_of(uint32_t largest)
{
    if (largest < CODEC_LEAST_BITS) return 0;
    return largest >= CODEC_MOST_BITS ? CODEC_NAN : (largest + 0xffff) >> 16;
}

static void encode_tile(Codec codec, float tile[CODEC_TILE], CodecRounding rounding, int64_t channel, uint8_t *bytes)
{
    uint32_t largest = 0;
    rotate(tile);
    for (int i = 0; i < CODEC_TILE; i++) {
        tile[i] *= 0.125f;
        uint32_t size = bits_of(tile[i]) & 0x7fffffff;
        if (size > largest) largest = size;
    }
    uint32_t scale = scale_of(largest);
    bool counts = scale && scale != CODEC_NAN;
    float factor = counts ? (float)codec_levels(codec) / float_of(scale << 16) : 0;
    uint64_t words[8] = {0};
    for (int i = 0; i < CODEC_TILE; i++) {
        float value = counts ? tile[i] * factor : 0;
        int32_t q;
        if (rounding.stochastic)
            q = ((int32_t)(value * 0x1p16f) + (int32_t)drawn(rounding, channel + i)) >> 16;
        else
            q = (int32_t)(bits_of(value + CODEC_ROUNDING) - bits_of(CODEC_ROUNDING));
        uint64_t code = (uint64_t)(q + codec_levels(codec));
        for (int bit = 0; bit < codec_bits(codec); bit++) words[bit] |= (code >> bit & 1) << i;
    }
    bytes[0] = (uint8_t)scale;
    bytes[1] = (uint8_t)(scale >> 8);
    for (int i = 0; i < 8 * codec_bits(codec); i++) bytes[2 + i] = (uint8_t)(words[i / 8] >> 8 * (i % 8));
}

static void decode_tile(Codec codec, const uint8_t *bytes, float tile[CODEC_TILE])
{
    float scale = float_of((uint32_t)bytes[0] << 16 | (uint32_t)bytes[1] << 24);
    float step = scale / (float)codec_levels(codec) * 0.125f;
    uint64_t words[8] = {0};
    for (int i = 0; i < 8 * codec_bits(codec); i++) words[i / 8] |= (uint64_t)bytes[2 + i] << 8 * (i % 8);
    for (int i = 0; i < CODEC_TILE; i++) {
        int32_t code = 0;
        for (int bit = 0; bit < codec_bits(codec); bit++) code |= (int32_t)(words[bit] >> i & 1) << bit;
        tile[i] = (float)(code - codec_levels(codec)) * step;
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
        decode_tile(codec, bytes, tile);
        memcpy(row + first, tile, (size_t)count * sizeof *tile);
        bytes += codec_row_bytes(codec, CODEC_TILE);
    }
}

void codec_feed_back(Codec codec, float *values, float *residual, int64_t columns, uint8_t *bytes)
{
    for (int64_t first = 0; first < columns; first += CODEC_TILE) {
        float wanted[CODEC_TILE];
        int64_t count = columns - first < CODEC_TILE ? columns - first : CODEC_TILE;
        for (int64_t i = 0; i < count; i++) wanted[i] = values[first + i] + residual[first + i];
        codec_encode_row(codec, wanted, count, (CodecRounding){0}, bytes);
        codec_decode_row(codec, bytes, count, values + first);
        for (int64_t i = 0; i < count; i++) {
            float lost = wanted[i] - values[first + i];
            residual[first + i] = isfinite(lost) ? lost : 0;
        }
        bytes += codec_row_bytes(codec, CODEC_TILE);
    }
}
