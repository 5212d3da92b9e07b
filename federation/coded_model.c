#include "federation/coded_model.h"

#include <math.h>
#include <stdlib.h>

#include "base/arena.h"
#include "base/codec_rows.h"
#include "base/hash.h"
#include "federation/messages.h"

bool coded_model_make(Codec codec, const float *old, float *values, float *remainder, size_t count, Buffer *bytes)
{
    float *change = memory_allocate(count * sizeof *change);
    bool finite = true;
    for (size_t i = 0; i < count; i++) change[i] = (float)((double)values[i] + (double)remainder[i] - (double)old[i]);
    if (codec != CODEC_NONE) {
        size_t size = (size_t)codec_row_bytes(codec, (int64_t)count);
        uint8_t *row = memory_allocate(size);
        codec_encode_row(codec, change, (int64_t)count, (CodecRounding){0}, row);
        codec_decode_row(codec, row, (int64_t)count, change);
        buffer_append(bytes, row, size);
        free(row);
    }
    for (size_t i = 0; i < count; i++) {
        double wanted = (double)values[i] + (double)remainder[i];
        values[i] = codec == CODEC_NONE ? (float)wanted : old[i] + change[i];
        remainder[i] = codec == CODEC_NONE ? 0 : (float)(wanted - (double)values[i]);
        finite &= isfinite(values[i]) && isfinite(remainder[i]);
    }
    free(change);
    return finite;
}

static Hash read_hash(const unsigned char *bytes) { return (Hash){get_u64(bytes), get_u64(bytes + 8)}; }

bool coded_model_put(Codec codec, const float *values, size_t all, const Buffer *bytes, uint64_t first, uint64_t count,
                     Buffer *message)
{
    unsigned char head[CODED_MODEL_HEAD];
    if (first > all || count == 0 || count > all - first || first % CODEC_TILE) return false;
    if (count % CODEC_TILE && count != all - first) return false;
    Hash hash = hash_bytes(values + first, count * sizeof *values);
    put_u64(head, hash.high);
    put_u64(head + 8, hash.low);
    buffer_append(message, head, sizeof head);
    buffer_append(message, bytes->bytes + codec_row_bytes(codec, (int64_t)first),
                  (size_t)codec_row_bytes(codec, (int64_t)count));
    return true;
}

ChangeState coded_model_take(Codec codec, const float *old, float *values, size_t count, const unsigned char *message,
                             size_t size)
{
    if (size != CODED_MODEL_HEAD + (size_t)codec_row_bytes(codec, (int64_t)count)) return CHANGE_INVALID;
    float *change = memory_allocate(count * sizeof *change);
    bool finite = true;
    codec_decode_row(codec, message + CODED_MODEL_HEAD, (int64_t)count, change);
    for (size_t i = 0; i < count; i++) {
        values[i] = old[i] + change[i];
        finite &= isfinite(values[i]);
    }
    free(change);
    if (!finite) return CHANGE_INVALID;
    return hash_equal(hash_bytes(values, count * sizeof *values), read_hash(message)) ? CHANGE_TAKEN
                                                                                      : CHANGE_OF_ANOTHER_START;
}
