#include "federation/aggregate/masks.h"

#include <sodium.h>

/* The words masked at a time: they and their part of the stream fit into the nearest cache. */
enum { PART_BYTES = 8192, PART_WORDS = PART_BYTES / 4 };

static void mask_part(uint32_t *words, size_t count, size_t first, const Mask *mask)
{
    static const unsigned char zeros[PART_BYTES], nonce[crypto_stream_chacha20_NONCEBYTES];
    unsigned char stream[PART_BYTES];
    crypto_stream_chacha20_xor_ic(stream, zeros, count * 4, nonce, first / MASK_BLOCK_WORDS, mask->seed);
    for (size_t i = 0; i < count; i++) {
        const unsigned char *at = stream + 4 * i;
        uint32_t word = at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
        words[i] += mask->subtract ? 0 - word : word;
    }
}

void masks_apply(uint32_t *words, size_t first, size_t count, const Mask *masks, size_t mask_count)
{
    const int64_t parts = (int64_t)((count + PART_WORDS - 1) / PART_WORDS);
#pragma omp parallel for schedule(static) if (parts > 1)
    for (int64_t p = 0; p < parts; p++) {
        size_t at = (size_t)p * PART_WORDS, here = count - at < PART_WORDS ? count - at : PART_WORDS;
        for (size_t m = 0; m < mask_count; m++) mask_part(words + at, here, first + at, &masks[m]);
    }
}
