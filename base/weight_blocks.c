#include "base/weight_blocks.h"

#include <math.h>
#include <string.h>

static int most(DType dtype) { return dtype == DTYPE_Q8 ? 127 : 7; }

/* The least bf16 that is not below; the largest one where there is none. */
static uint16_t scale_above(float scale)
{
    uint32_t bits;
    memcpy(&bits, &scale, sizeof bits);
    uint32_t high = (bits >> 16) + ((bits & 0xffff) != 0);
    return (uint16_t)(high > 0x7f7f ? 0x7f7f : high);
}

static void encode_block(DType dtype, const float *values, unsigned char *block)
{
    static const uint16_t not_a_number = 0x7fc0;
    float largest = 0;
    bool finite = true;
    for (int i = 0; i < DTYPE_BLOCK; i++) {
        largest = fmaxf(largest, fabsf(values[i]));
        finite &= isfinite(values[i]);
    }
    uint16_t scale = finite ? scale_above(largest / (float)most(dtype)) : not_a_number;
    memcpy(block, &scale, sizeof scale);
    unsigned char *codes = block + DTYPE_SCALE_BYTES;
    float step = (float)element_as_double(DTYPE_BF16, block, 0);
    memset(codes, 0, (size_t)dtype_bytes(dtype, DTYPE_BLOCK) - DTYPE_SCALE_BYTES);
    for (int i = 0; i < DTYPE_BLOCK; i++) {
        int q = step > 0 ? (int)rintf(values[i] / step) : 0;
        if (dtype == DTYPE_Q8)
            codes[i] = (unsigned char)q;
        else
            codes[i % 16] |= (unsigned char)((q + 8) << i / 16 * 4);
    }
}

void weight_blocks_encode(DType dtype, const float *values, int64_t count, void *bytes)
{
    for (int64_t i = 0; i < count / DTYPE_BLOCK; i++)
        encode_block(dtype, values + i * DTYPE_BLOCK, (unsigned char *)bytes + i * dtype_bytes(dtype, DTYPE_BLOCK));
}
