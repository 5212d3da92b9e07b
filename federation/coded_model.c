#include "federation/coded_model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/codec_rows.h"
#include "base/hash.h"
#include "base/wide.h"
#include "federation/messages.h"

WIDE static void find_change(const float *old, const float *values, const float *remainder, size_t count, float *change)
{
    for (size_t i = 0; i < count; i++) change[i] = (float)((double)values[i] + (double)remainder[i] - (double)old[i]);
}

WIDE static void add_change(const float *old, const float *change, size_t count, float *values, float *remainder)
{
    for (size_t i = 0; i < count; i++) {
        double wanted = (double)values[i] + (double)remainder[i];
        values[i] = old[i] + change[i];
        remainder[i] = (float)(wanted - (double)values[i]);
    }
}

static bool is_finite(const float *values, size_t count) { return isfinite(codec_largest(values, (int64_t)count)); }

bool coded_model_make(RowRule rule, const float *old, float *values, float *remainder, size_t count, Buffer *bytes)
{
    FREED float *change = memory_allocate(count * sizeof *change);
    if (rule.codec == CODEC_NONE) {
        for (size_t i = 0; i < count; i++) values[i] = (float)((double)values[i] + (double)remainder[i]);
        memset(remainder, 0, count * sizeof *remainder);
        return is_finite(values, count);
    }
    find_change(old, values, remainder, count, change);
    coded_row_make(rule, change, NULL, NULL, count, bytes);
    add_change(old, change, count, values, remainder);
    return is_finite(values, count) && is_finite(remainder, count);
}

static Hash read_hash(const unsigned char *bytes) { return (Hash){get_u64(bytes), get_u64(bytes + 8)}; }

bool coded_model_put(RowRule rule, const float *values, size_t all, const Buffer *bytes, uint64_t first, uint64_t count,
                     Buffer *message)
{
    unsigned char head[CODED_MODEL_HEAD];
    if (first > all || count == 0 || count > all - first || first % CODEC_TILE) return false;
    if (count % CODEC_TILE && count != all - first) return false;
    Hash hash = hash_bytes(values + first, count * sizeof *values);
    put_u64(head, hash.high);
    put_u64(head + 8, hash.low);
    buffer_append(message, head, sizeof head);
    coded_row_put(rule, bytes->bytes + codec_row_bytes(rule.codec, (int64_t)first), count, message);
    return true;
}

enum { AT_ONCE = 64 * CODEC_TILE }; /* small enough to stay in a cache */

ChangeState coded_model_take(RowRule rule, const float *old, float *values, size_t count, const unsigned char *message,
                             size_t size)
{
    Buffer row = {0};
    bool finite = size >= CODED_MODEL_HEAD &&
                  coded_row_take(rule, message + CODED_MODEL_HEAD, size - CODED_MODEL_HEAD, count, &row);
    const int64_t parts = finite ? (int64_t)((count + AT_ONCE - 1) / AT_ONCE) : 0;
#pragma omp parallel for schedule(static) reduction(& : finite) if (parts > 1)
    for (int64_t p = 0; p < parts; p++) {
        float change[AT_ONCE];
        size_t at = (size_t)p * AT_ONCE, here = count - at < AT_ONCE ? count - at : AT_ONCE;
        codec_decode_row(rule.codec, (const uint8_t *)row.bytes + codec_row_bytes(rule.codec, (int64_t)at),
                         (int64_t)here, change);
        for (size_t i = 0; i < here; i++) values[at + i] = old[at + i] + change[i];
        finite &= is_finite(values + at, here);
    }
    buffer_free(&row);
    if (!finite) return CHANGE_INVALID;
    return hash_equal(hash_bytes(values, count * sizeof *values), read_hash(message)) ? CHANGE_TAKEN
                                                                                      : CHANGE_OF_ANOTHER_START;
}
