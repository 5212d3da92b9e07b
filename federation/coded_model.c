#include "federation/coded_model.h"

#include <math.h>
#include <stdlib.h>

#include "base/arena.h"
#include "base/codec_rows.h"
#include "base/hash.h"
#include "federation/messages.h"

bool coded_model_make(RowRule rule, const float *old, float *values, float *remainder, size_t count, Buffer *bytes)
{
    FREED float *change = memory_allocate(count * sizeof *change);
    bool finite = true;
    for (size_t i = 0; i < count; i++) change[i] = (float)((double)values[i] + (double)remainder[i] - (double)old[i]);
    if (rule.codec != CODEC_NONE) coded_row_make(rule, change, NULL, NULL, count, bytes);
    for (size_t i = 0; i < count; i++) {
        double wanted = (double)values[i] + (double)remainder[i];
        values[i] = rule.codec == CODEC_NONE ? (float)wanted : old[i] + change[i];
        remainder[i] = rule.codec == CODEC_NONE ? 0 : (float)(wanted - (double)values[i]);
        finite &= isfinite(values[i]) && isfinite(remainder[i]);
    }
    return finite;
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

ChangeState coded_model_take(RowRule rule, const float *old, float *values, size_t count, const unsigned char *message,
                             size_t size)
{
    Buffer row = {0};
    bool finite = size >= CODED_MODEL_HEAD &&
                  coded_row_take(rule, message + CODED_MODEL_HEAD, size - CODED_MODEL_HEAD, count, &row);
    float change[64 * CODEC_TILE]; /* small enough to stay in a cache */
    const size_t most = sizeof change / sizeof *change;
    for (size_t at = 0; at < count && finite; at += most) {
        size_t here = count - at < most ? count - at : most;
        codec_decode_row(rule.codec, (const uint8_t *)row.bytes + codec_row_bytes(rule.codec, (int64_t)at),
                         (int64_t)here, change);
        for (size_t i = 0; i < here; i++) values[at + i] = old[at + i] + change[i];
        finite = isfinite(codec_largest(values + at, (int64_t)here));
    }
    buffer_free(&row);
    if (!finite) return CHANGE_INVALID;
    return hash_equal(hash_bytes(values, count * sizeof *values), read_hash(message)) ? CHANGE_TAKEN
                                                                                      : CHANGE_OF_ANOTHER_START;
}
