#include "base/random.h"

#include <math.h>
#include <string.h>

#include "base/hash.h"

enum { ROUNDS = 10, WORDS = 4 };

void random_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t words[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3], k0 = key[0], k1 = key[1];
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t a = (uint64_t)0xd2511f53 * c0, b = (uint64_t)0xcd9e8d57 * c2;
        c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
        c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)b;
        c3 = (uint32_t)a;
        k0 += 0x9e3779b9; /* keys run through Weyl sequences: the golden ratio's and sqrt(3) - 1's fractions of 2^32 */
        k1 += 0xbb67ae85;
    }
    words[0] = c0, words[1] = c1, words[2] = c2, words[3] = c3;
}

static void draw_block(RandomStream stream, uint64_t block, uint32_t words[WORDS])
{
    const uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), (uint32_t)stream.stream,
                                 (uint32_t)(stream.stream >> 32)};
    const uint32_t key[2] = {(uint32_t)stream.seed, (uint32_t)(stream.seed >> 32)};
    random_philox(counter, key, words);
}

RandomStream random_stream(uint64_t seed, const char *name)
{
    return (RandomStream){seed, hash_bytes(name, strlen(name)).low};
}

RandomStream random_substream(RandomStream parent, uint64_t number)
{
    unsigned char bytes[16]; /* little-endian on every machine */
    for (int i = 0; i < 8; i++) {
        bytes[i] = (unsigned char)(parent.stream >> 8 * i);
        bytes[8 + i] = (unsigned char)(number >> 8 * i);
    }
    return (RandomStream){parent.seed, hash_bytes(bytes, sizeof bytes).low};
}

uint32_t random_word(RandomStream stream, uint64_t index)
{
    uint32_t words[WORDS];
    draw_block(stream, index / WORDS, words);
    return words[index % WORDS];
}

float random_uniform(RandomStream stream, uint64_t index)
{
    return (float)(random_word(stream, index) >> 8) * 0x1p-24f;
}

/* Two normal numbers from two words. Half a step is added so that the logarithm never sees 0. */
static void box_muller(uint32_t a, uint32_t b, double normal[2])
{
    double radius = sqrt(-2 * log(((double)a + 0.5) * 0x1p-32)), angle = 6.283185307179586 * ((double)b * 0x1p-32);
    normal[0] = radius * cos(angle);
    normal[1] = radius * sin(angle);
}

double random_normal(RandomStream stream, uint64_t index)
{
    uint32_t words[WORDS];
    double normal[2];
    draw_block(stream, index / WORDS, words);
    const uint32_t *pair = words + (index % WORDS & 2);
    box_muller(pair[0], pair[1], normal);
    return normal[index % 2];
}

uint64_t random_below(RandomStream stream, uint64_t index, uint64_t bound)
{
    /* Draws beyond the largest multiple of the bound are repeated in a substream: exact, and still a function of the
     * index alone. */
    uint64_t limit = UINT64_MAX - UINT64_MAX % bound;
    for (uint64_t attempt = 0;; attempt++) {
        RandomStream source = attempt ? random_substream(stream, attempt) : stream;
        uint32_t words[WORDS];
        draw_block(source, index, words);
        uint64_t value = (uint64_t)words[1] << 32 | words[0];
        if (value < limit) return value % bound;
    }
}

uint32_t random_element(uint64_t key, uint64_t position)
{
    uint32_t x = ((uint32_t)key + (uint32_t)(position >> 1)) * RANDOM_SPREAD;
    x ^= x >> RANDOM_SHIFT1 ^ (uint32_t)(key >> 32);
    x *= RANDOM_MULTIPLIER1;
    x ^= x >> RANDOM_SHIFT2;
    x *= RANDOM_MULTIPLIER2;
    x ^= x >> RANDOM_SHIFT3;
    return x >> (position % 2 * RANDOM_ELEMENT_BITS) & (RANDOM_ELEMENT_RANGE - 1);
}

void random_fill_normal(RandomStream stream, uint64_t first, double standard_deviation, float *values, size_t count)
{
    for (size_t i = 0; i < count;) {
        if ((first + i) % WORDS || count - i < WORDS) {
            values[i] = (float)(standard_deviation * random_normal(stream, first + i));
            i++;
            continue;
        }
        uint32_t words[WORDS];
        double normal[WORDS];
        draw_block(stream, (first + i) / WORDS, words);
        box_muller(words[0], words[1], normal);
        box_muller(words[2], words[3], normal + 2);
        for (int j = 0; j < WORDS; j++) values[i++] = (float)(standard_deviation * normal[j]);
    }
}

void random_permutation(RandomStream stream, uint32_t *order, size_t count)
{
    for (size_t i = 0; i < count; i++) { /* Fisher and Yates, inside out */
        size_t j = (size_t)random_below(stream, i, i + 1);
        order[i] = order[j];
        order[j] = (uint32_t)i;
    }
}
