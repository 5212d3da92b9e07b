/* Shamir's shares against published ones, and by every choice of shares. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdbool.h>
#include <string.h>

#include "base/random.h"
#include "federation/aggregate/shamir.h"

/* draft-mcgrew-tss-03, section 9: two shares of "test" and a zero, threshold 2. */
static void the_published_shares_give_the_published_secret(void **state)
{
    (void)state;
    static const unsigned char numbers[] = {1, 2}, first[] = {0xb9, 0xfa, 0x07, 0xe1, 0x85},
                               second[] = {0xf5, 0x40, 0x9b, 0x45, 0x11};
    const unsigned char *shares[] = {first, second};
    unsigned char secret[5], made[10], random[5];
    shamir_join(numbers, shares, 2, 5, secret);
    assert_memory_equal(secret, "test", 5);
    for (int i = 0; i < 5; i++) random[i] = first[i] ^ secret[i]; /* the coefficient of x, as the share of 1 shows it */
    shamir_split(secret, 5, 2, 2, random, made);
    assert_memory_equal(made, first, 5);
    assert_memory_equal(made + 5, second, 5);
}

/* FIPS 197, section 4.2: {57} x {83} = {c1} and {57} x {13} = {fe}. A line through the secret 0 with slope {57} has
 * these values at {83} and {13}. */
static void the_field_is_that_of_aes(void **state)
{
    (void)state;
    static const unsigned char zero = 0, slope = 0x57;
    static unsigned char shares[0x83];
    shamir_split(&zero, 1, 2, 0x83, &slope, shares);
    assert_int_equal(shares[0x83 - 1], 0xc1);
    assert_int_equal(shares[0x13 - 1], 0xfe);
}

enum { SITES = 7, BYTES = 32 };

static int bits_of(unsigned set)
{
    int count = 0;
    for (; set; set &= set - 1) count++;
    return count;
}

static void join_set(unsigned set, const unsigned char *shares, unsigned char *secret)
{
    unsigned char numbers[SITES];
    const unsigned char *chosen[SITES];
    int count = 0;
    for (int i = 0; i < SITES; i++)
        if (set >> i & 1) {
            numbers[count] = (unsigned char)(i + 1);
            chosen[count++] = shares + (size_t)i * BYTES;
        }
    shamir_join(numbers, chosen, count, BYTES, secret);
}

static void exactly_the_sets_of_the_threshold_give_the_secret(void **state)
{
    (void)state;
    uint64_t draws = 7;
    unsigned char secret[BYTES], random[SITES * BYTES], shares[SITES * BYTES], joined[BYTES];
    for (int i = 0; i < BYTES; i++) secret[i] = (unsigned char)(random_draw(&draws) >> 40);
    for (size_t i = 0; i < sizeof random; i++) random[i] = (unsigned char)(random_draw(&draws) >> 40);
    for (int threshold = 1; threshold <= SITES; threshold++) {
        shamir_split(secret, BYTES, threshold, SITES, random, shares);
        for (unsigned set = 1; set < 1u << SITES; set++) {
            join_set(set, shares, joined);
            assert_int_equal(memcmp(joined, secret, BYTES) == 0, bits_of(set) >= threshold);
        }
    }
}

/* With one share less than it takes, every secret is possible: for each of the 256 there is the share of one more site
 * that gives it. */
static void fewer_shares_say_nothing(void **state)
{
    (void)state;
    static const unsigned char secret = 0x2a, random[] = {0x91, 0x07};
    unsigned char shares[3], numbers[] = {1, 2, 3};
    bool possible[256] = {false};
    shamir_split(&secret, 1, 3, 3, random, shares);
    for (int guess = 0; guess < 256; guess++) {
        unsigned char third = (unsigned char)guess, joined;
        const unsigned char *chosen[] = {&shares[0], &shares[1], &third};
        shamir_join(numbers, chosen, 3, 1, &joined);
        possible[joined] = true;
    }
    for (int value = 0; value < 256; value++) assert_true(possible[value]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_published_shares_give_the_published_secret),
        cmocka_unit_test(the_field_is_that_of_aes),
        cmocka_unit_test(exactly_the_sets_of_the_threshold_give_the_secret),
        cmocka_unit_test(fewer_shares_say_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
