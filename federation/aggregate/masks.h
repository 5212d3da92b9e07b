/* Words that hide values: what a generator makes of a seed, added to or subtracted from every word modulo 2^32. Who
 * does not know a seed cannot tell masked words from random ones; who adds up what was masked with a seed and its
 * opposite has the sum of what was hidden. */
#ifndef FEDERATION_AGGREGATE_MASKS_H
#define FEDERATION_AGGREGATE_MASKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MASK_SEED_BYTES = 32, MASK_BLOCK_WORDS = 16 };

typedef struct Mask {
    unsigned char seed[MASK_SEED_BYTES]; /* used once: the key of ChaCha20 */
    bool subtract;
} Mask;

/* Applies all masks to `count` words, of which the first is word `first`, a multiple of MASK_BLOCK_WORDS: word i gets
 * bytes 4 i ... 4 i + 3 of each stream, the least significant first. Threads share the work, which takes a few cycles a
 * byte and mask. */
void masks_apply(uint32_t *words, size_t first, size_t count, const Mask *masks, size_t mask_count);

#endif
