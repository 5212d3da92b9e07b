/* Counter-based random numbers: Philox 4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2,
 * 3", SC 2011).
 *
 * A number is a pure function of (seed, stream, index): there is no state, so the order, process and thread of draws do
 * not matter. A stream is named by what it is for, such as "init/encoder.layer.0.attention.self.query.weight" or
 * "shuffle". */
#ifndef BASE_RANDOM_H
#define BASE_RANDOM_H

#include <stddef.h>
#include <stdint.h>

typedef struct RandomStream {
    uint64_t seed;   /* the key of Philox */
    uint64_t stream; /* the upper half of its counter; the lower half is the number of the block of four words */
} RandomStream;

/* The stream of that name (its hash). */
RandomStream random_stream(uint64_t seed, const char *name);
/* The stream within `parent` for, say, one step or one row. */
RandomStream random_substream(RandomStream parent, uint64_t number);

/* Philox itself: four words from a counter and a key (both least significant word first). */
void random_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t words[4]);

uint32_t random_word(RandomStream stream, uint64_t index);
float random_uniform(RandomStream stream, uint64_t index); /* in [0, 1), a multiple of 2^-24 */
double random_normal(RandomStream stream, uint64_t index); /* mean 0, variance 1: Box-Muller in double precision */
/* Without bias, in [0, bound); bound > 0. */
uint64_t random_below(RandomStream stream, uint64_t index, uint64_t bound);

/* For kernels, which draw a number for every element of a tensor: a cheaper function than Philox, in 32-bit arithmetic
 * that vectorises. A multiplication by 2^32 over the golden ratio spreads neighbouring counters (Knuth 3, 6.4). Two
 * rounds of multiply and shift follow, with the multipliers of Wellons' search for functions of low bias. A word is two
 * numbers: its low half that of an even position, its high half that of the next. As macros because code generation
 * emits the same arithmetic. */
#define RANDOM_SPREAD 0x9e3779b1u
#define RANDOM_MULTIPLIER1 0x21f0aaadu
#define RANDOM_MULTIPLIER2 0xd35a2d97u
#define RANDOM_SHIFT1 11
#define RANDOM_SHIFT2 15
#define RANDOM_SHIFT3 15
#define RANDOM_ELEMENT_BITS 16
#define RANDOM_ELEMENT_RANGE (1 << RANDOM_ELEMENT_BITS)
/* In 0 ... RANDOM_ELEMENT_RANGE - 1; the same for positions 2^33 apart. */
uint32_t random_element(uint64_t key, uint64_t position);

/* values[i] = standard_deviation * random_normal(stream, first + i). */
void random_fill_normal(RandomStream stream, uint64_t first, double standard_deviation, float *values, size_t count);
/* A permutation of 0 ... count - 1, each equally likely. */
void random_permutation(RandomStream stream, uint32_t *order, size_t count);

/* For searches and tests that draw one number after the other: Knuth's linear congruential generator (MMIX). Draws 64
 * bits from the state, which may start at any number; the high bits are the most random. */
static inline uint64_t random_draw(uint64_t *state)
{
    return *state = *state * 6364136223846793005u + 1442695040888963407u;
}

/* In [0, bound), nearly without bias for small bounds; bound > 0. */
static inline uint64_t random_draw_below(uint64_t *state, uint64_t bound) { return (random_draw(state) >> 33) % bound; }

#endif
