#include "federation/coded_update.h"

#include "base/codec_rows.h"
#include "federation/aggregate/fixed_point.h"
#include "federation/aggregate/sum_messages.h"

enum { WEIGHT_BYTES = 4 * FIXED_POINT_WEIGHT_WORDS };

size_t coded_update_bytes(Codec codec, size_t count)
{
    return WEIGHT_BYTES + (size_t)codec_row_bytes(codec, (int64_t)count);
}

int64_t coded_update_weight(const unsigned char *message)
{
    uint32_t words[FIXED_POINT_WEIGHT_WORDS];
    bool ok = true;
    for (int i = 0; i < FIXED_POINT_WEIGHT_WORDS; i++) {
        words[i] = get_u32(message + 4 * i);
        ok &= words[i] <= 0xffff; /* larger values only occur in sums */
    }
    return ok ? fixed_point_get_weight(words) : -1;
}

bool coded_update_read(Codec codec, const unsigned char *message, size_t size, size_t count, int exponent, bool cuts,
                       int sites, uint32_t *words)
{
    float values[64 * CODEC_TILE]; /* small enough to stay in a cache */
    const size_t most = sizeof values / sizeof *values;
    int64_t weight = size == coded_update_bytes(codec, count) ? coded_update_weight(message) : -1;
    bool ok = weight >= 0;
    for (size_t at = 0; at < count && ok; at += most) {
        size_t here = count - at < most ? count - at : most;
        int needed = 0;
        codec_decode_row(codec, message + WEIGHT_BYTES + codec_row_bytes(codec, (int64_t)at), (int64_t)here, values);
        ok = fixed_point_exponent(values, here, weight, &needed) && (cuts || needed <= exponent);
        if (ok && words) fixed_point_encode(words + at, values, here, weight, exponent, sites);
    }
    if (ok && words) fixed_point_put_weight(words + count, weight);
    return ok;
}
