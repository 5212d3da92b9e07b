#include "federation/coded_row.h"

#include <math.h>
#include <stdlib.h>

#include "base/arena.h"
#include "base/codec_rows.h"

static size_t tiles_of(size_t count) { return (count + CODEC_TILE - 1) / CODEC_TILE; }

static bool folds(RowRule rule) { return rule.least > 0 && codec_bits(rule.codec); }

double coded_row_value_bytes(RowRule rule)
{
    double mark = folds(rule) ? 1.0 / 8 : 0;
    return ((double)codec_row_bytes(rule.codec, CODEC_TILE) + mark) / CODEC_TILE;
}

void coded_row_make(RowRule rule, float *values, float *left, size_t count, Buffer *row)
{
    size_t size = (size_t)codec_row_bytes(rule.codec, (int64_t)count);
    float least = rule.least * codec_largest(values, (int64_t)count);
    uint8_t *bytes = memory_allocate(size);
    codec_feed_back(rule.codec, values, left, (int64_t)count, isfinite(least) ? least : 0, bytes);
    buffer_append(row, bytes, size);
    free(bytes);
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
