#include "federation/coded_row.h"

#include <math.h>

#include "base/codec_rows.h"

static size_t tiles_of(size_t count) { return (count + CODEC_TILE - 1) / CODEC_TILE; }

static bool folds(RowRule rule) { return rule.least > 0 && codec_bits(rule.codec); }

double coded_row_value_bytes(RowRule rule)
{
    double mark = folds(rule) ? 1.0 / 8 : 0;
    return ((double)codec_row_bytes(rule.codec, CODEC_TILE) + mark) / CODEC_TILE;
}

enum {
    AT_ONCE = 64 * CODEC_TILE, /* small enough to stay in a cache */
    THREADS_FROM = 64          /* so many parts */
};

static float largest_sum(const float *values, const float *left, size_t count)
{
    float largest = 0, sum[AT_ONCE];
    for (size_t at = 0; at < count; at += AT_ONCE) {
        size_t here = count - at < AT_ONCE ? count - at : AT_ONCE;
        for (size_t i = 0; i < here; i++) sum[i] = values[at + i] + (left ? left[at + i] : 0);
        float most = codec_largest(sum, (int64_t)here);
        if (!(most <= largest)) largest = most;
        if (!isfinite(largest)) return largest;
    }
    return largest;
}

bool coded_row_make(RowRule rule, float *values, const float *left, float *lost, size_t count, Buffer *row)
{
    float least = folds(rule) ? rule.least * largest_sum(values, left, count) : 0;
    uint8_t *bytes = buffer_extend(row, (size_t)codec_row_bytes(rule.codec, (int64_t)count));
    bool finite = true;
    const int64_t parts = (int64_t)((count + AT_ONCE - 1) / AT_ONCE);
#pragma omp parallel for schedule(static) reduction(& : finite) if (parts > THREADS_FROM)
    for (int64_t p = 0; p < parts; p++) {
        size_t at = (size_t)p * AT_ONCE, here = count - at < AT_ONCE ? count - at : AT_ONCE;
        codec_feed_back(rule.codec, values + at, left ? left + at : NULL, lost ? lost + at : NULL, (int64_t)here,
                        isfinite(least) ? least : 0, bytes + codec_row_bytes(rule.codec, (int64_t)at));
        finite &= isfinite(codec_largest(values + at, (int64_t)here));
    }
    return finite;
}

void coded_row_put(RowRule rule, const void *row, size_t count, Buffer *message)
{
    const unsigned char *bytes = row;
    size_t tile = (size_t)codec_row_bytes(rule.codec, CODEC_TILE), marks = message->size, tiles = tiles_of(count);
    if (!folds(rule)) {
        buffer_append(message, row, (size_t)codec_row_bytes(rule.codec, (int64_t)count));
        return;
    }
    for (size_t t = 0; t < tiles; t += 8) buffer_append(message, "", 1);
    for (size_t t = 0; t < tiles; t++, bytes += tile) {
        if (codec_is_zero_tile(bytes)) continue;
        message->bytes[marks + t / 8] |= (char)(1 << t % 8);
        buffer_append(message, bytes, tile);
    }
}

bool coded_row_take(RowRule rule, const unsigned char *message, size_t size, size_t count, Buffer *row)
{
    size_t tile = (size_t)codec_row_bytes(rule.codec, CODEC_TILE), tiles = tiles_of(count), marks = (tiles + 7) / 8,
           at = marks;
    uint8_t zero[CODEC_TILE + 2];
    if (!folds(rule)) {
        bool ok = size == (size_t)codec_row_bytes(rule.codec, (int64_t)count);
        if (ok) buffer_append(row, message, size);
        return ok;
    }
    if (size < marks || (tiles % 8 && message[marks - 1] >> tiles % 8)) return false;
    codec_put_zero_tile(rule.codec, zero);
    for (size_t t = 0; t < tiles; t++) {
        bool follows = message[t / 8] >> t % 8 & 1;
        if (follows && size - at < tile) return false;
        buffer_append(row, follows ? message + at : zero, tile);
        at += follows ? tile : 0;
    }
    return at == size;
}
