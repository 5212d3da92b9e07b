#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "base/random.h"

/* The known answers that the authors of Philox publish with their implementation. */
static void philox_gives_the_published_words(void **state)
{
    (void)state;
    static const struct {
        uint32_t counter[4], key[2], words[4];
    } cases[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t words[4];
        random_philox(cases[i].counter, cases[i].key, words);
        assert_memory_equal(words, cases[i].words, sizeof words);
    }
}

static void streams_are_independent_of_order_and_of_each_other(void **state)
{
    (void)state;
    RandomStream a = random_stream(7, "a"), b = random_stream(7, "b"), other = random_stream(8, "a");
    assert_true(random_word(a, 5) != random_word(b, 5));
    assert_true(random_word(a, 5) != random_word(other, 5));
    assert_true(random_word(random_substream(a, 1), 5) != random_word(random_substream(a, 2), 5));
    float whole[23], pieces[23];
    random_fill_normal(a, 2, 0.02, whole, 23);
    for (size_t i = 23; i-- > 0;) random_fill_normal(a, 2 + i, 0.02, pieces + i, 1);
    assert_memory_equal(whole, pieces, sizeof whole);
}

static void numbers_have_the_moments_of_their_distribution(void **state)
{
    (void)state;
    enum { COUNT = 200000 };
    RandomStream stream = random_stream(1, "moments");
    double uniform = 0, sum = 0, squares = 0, fourth = 0, lagged = 0, previous = 0;
    for (uint64_t i = 0; i < COUNT; i++) {
        float u = random_uniform(stream, i);
        assert_true(u >= 0 && u < 1);
        uniform += u;
        double x = random_normal(stream, i);
        sum += x;
        squares += x * x;
        fourth += x * x * x * x;
        lagged += x * previous;
        previous = x;
    }
    /* Five standard errors of each estimate. */
    assert_true(fabs(uniform / COUNT - 0.5) < 5 * sqrt(1.0 / 12 / COUNT));
    assert_true(fabs(sum / COUNT) < 5 * sqrt(1.0 / COUNT));
    assert_true(fabs(squares / COUNT - 1) < 5 * sqrt(2.0 / COUNT));
    assert_true(fabs(fourth / COUNT - 3) < 5 * sqrt(96.0 / COUNT));
    assert_true(fabs(lagged / COUNT) < 5 * sqrt(1.0 / COUNT));
}

static void permutations_are_permutations_and_evenly_drawn(void **state)
{
    (void)state;
    enum { COUNT = 1000, TRIALS = 12000 };
    uint32_t order[COUNT];
    unsigned char seen[COUNT] = {0};
    random_permutation(random_stream(3, "shuffle"), order, COUNT);
    for (size_t i = 0; i < COUNT; i++) {
        assert_true(order[i] < COUNT && !seen[order[i]]);
        seen[order[i]] = 1;
    }
    int of_three[6] = {0};
    for (uint64_t trial = 0; trial < TRIALS; trial++) {
        random_permutation(random_substream(random_stream(3, "shuffle"), trial), order, 3);
        of_three[2 * order[0] + (order[1] > order[2])]++;
    }
    for (int i = 0; i < 6; i++) assert_in_range(of_three[i], TRIALS / 6 - 220, TRIALS / 6 + 220);
}

static void bounded_numbers_stay_below_their_bound(void **state)
{
    (void)state;
    RandomStream stream = random_stream(0, "below");
    /* With this bound a third of the draws has to be repeated. */
    uint64_t bound = (UINT64_C(1) << 63) + (UINT64_C(1) << 61);
    for (uint64_t i = 0; i < 1000; i++) {
        assert_true(random_below(stream, i, bound) < bound);
        assert_int_equal(random_below(stream, i, 1), 0);
    }
}

/* Dropping a tenth: how often, how often two at a distance, how often two of different keys. */
static void elements_are_dropped_independently(void **state)
{
    (void)state;
    enum { COUNT = 1 << 18, DISTANCES = 140, KEYS = 8 };
    static unsigned char dropped[2][COUNT];
    const uint32_t bound = (uint32_t)(0.1 * RANDOM_ELEMENT_RANGE);
    RandomStream stream = random_stream(3, "elements");
    for (int k = 0; k < KEYS; k++) {
        uint64_t key = (uint64_t)random_word(stream, (uint64_t)k)
                       << (k % 2 ? 32 : 0); /* differ in one half at a time */
        double one = 0, two = 0;
        for (uint32_t i = 0; i < COUNT; i++) {
            one += dropped[k % 2][i] = random_element(key, i) < bound;
            two += dropped[0][i] & dropped[1][i];
        }
        assert_true(fabs(one - 0.1 * COUNT) < 5 * sqrt(0.09 * COUNT));
        if (k > 0) assert_true(fabs(two - 0.01 * COUNT) < 5 * sqrt(0.0099 * COUNT));
        for (uint32_t d = 1; d < DISTANCES; d++) {
            uint32_t distance = d < 40 ? d : d < 80 ? (d - 39) * 128 : (d - 79) * 1024; /* along a row, and of rows */
            double both = 0, pairs = COUNT - distance;
            for (uint32_t i = 0; i + distance < COUNT; i++) both += dropped[k % 2][i] & dropped[k % 2][i + distance];
            if (fabs(both - 0.01 * pairs) > 5 * sqrt(0.0099 * pairs))
                fail_msg("key %d, distance %u: %g pairs of %g", k, distance, both, pairs);
        }
    }
}

/* Chi-square of numbers, by their upper and lower bytes, and of pairs of upper bytes: of the halves of one word, of
 * neighbouring words, of rows, and of the same element in two steps (keys as steps draw them). */
static void elements_are_evenly_distributed(void **state)
{
    (void)state;
    enum { COUNT = 1 << 22, BINS = 1 << 16, KINDS = 6 };
    static const uint64_t distance[KINDS] = {0, 1, 1, 128, 1024, 0};
    static uint32_t found[BINS];
    for (int kind = 0; kind < KINDS; kind++) {
        uint64_t key[2];
        for (int step = 0; step < 2; step++) {
            RandomStream stream = random_substream(random_stream(5, "dropout"), (uint64_t)step);
            key[step] = (uint64_t)random_word(stream, 1) << 32 | random_word(stream, 0);
        }
        memset(found, 0, sizeof found);
        uint64_t apart = kind == 1 || kind == 2 ? 2 : 1, first = kind == 2;
        for (uint64_t i = 0; i < COUNT; i++) {
            uint32_t a = random_element(key[0], first + i * apart);
            uint32_t b = random_element(key[kind == KINDS - 1], first + i * apart + distance[kind]);
            found[kind == 0 ? a : (a & 0xff00) | b >> 8]++;
        }
        double square = 0, expected = (double)COUNT / BINS;
        for (int i = 0; i < BINS; i++) square += (found[i] - expected) * (found[i] - expected) / expected;
        double deviation = (square - (BINS - 1)) / sqrt(2.0 * (BINS - 1));
        if (fabs(deviation) > 5) fail_msg("kind %d: chi-square deviates by %g times its deviation", kind, deviation);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elements_are_evenly_distributed),
        cmocka_unit_test(elements_are_dropped_independently),
        cmocka_unit_test(philox_gives_the_published_words),
        cmocka_unit_test(streams_are_independent_of_order_and_of_each_other),
        cmocka_unit_test(numbers_have_the_moments_of_their_distribution),
        cmocka_unit_test(permutations_are_permutations_and_evenly_drawn),
        cmocka_unit_test(bounded_numbers_stay_below_their_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
