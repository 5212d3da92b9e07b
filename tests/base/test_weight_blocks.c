/* Weights in blocks: how far numbers are from what they were, and the block's layout. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/random.h"
#include "base/weight_blocks.h"

enum { BLOCKS = 200, COUNT = BLOCKS * DTYPE_BLOCK };

static float values[COUNT];
static unsigned char bytes[BLOCKS * (DTYPE_SCALE_BYTES + DTYPE_BLOCK)];

/* Every element is as near as weight_blocks.h says, whatever the size of its block's numbers. */
static void check_errors(DType dtype, double bound)
{
    uint64_t seed = 7;
    for (int i = 0; i < COUNT; i++) {
        double unit = (double)(random_draw(&seed) >> 11) * 0x1p-53 * 2 - 1;
        values[i] = (float)ldexp(unit, i / DTYPE_BLOCK % 200 - 100);
    }
    weight_blocks_encode(dtype, values, COUNT, bytes);
    double worst = 0;
    for (int i = 0; i < COUNT; i++) {
        double largest = 0;
        for (int k = 0; k < DTYPE_BLOCK; k++)
            largest = fmax(largest, fabs((double)values[i / DTYPE_BLOCK * DTYPE_BLOCK + k]));
        double error = fabs(element_as_double(dtype, bytes, i) - (double)values[i]);
        worst = fmax(worst, error / largest);
    }
    print_message("%s: worst error 1/%.1f of the largest of a block\n", dtype_name(dtype), 1 / worst);
    assert_true(worst <= bound);
    assert_true(worst >= 0.8 * bound); /* or the bound says nothing */
}

static void test_errors(void **state)
{
    (void)state;
    check_errors(DTYPE_Q8, 1 / 252.0);
    check_errors(DTYPE_Q4, 1 / 13.9);
}

static void test_layout(void **state)
{
    (void)state;
    assert_int_equal(dtype_bytes(DTYPE_Q8, 64), 68);
    assert_int_equal(dtype_bytes(DTYPE_Q4, 64), 36);
    for (int i = 0; i < DTYPE_BLOCK; i++) values[i] = (float)(i % 15 - 7);
    weight_blocks_encode(DTYPE_Q4, values, DTYPE_BLOCK, bytes);
    static const unsigned char one[] = {0x80, 0x3f}; /* bf16 */
    assert_memory_equal(bytes, one, 2);
    assert_int_equal(bytes[2], 1 | (8 + (16 % 15 - 7)) << 4);
    for (int i = 0; i < DTYPE_BLOCK; i++) assert_true(element_as_double(DTYPE_Q4, bytes, i) == (double)values[i]);
}

/* Zeros stay zeros; a block with a number that is not finite is NaN, so that training says so. */
static void test_odd_numbers(void **state)
{
    (void)state;
    for (int dtype = DTYPE_Q8; dtype <= DTYPE_Q4; dtype++) {
        memset(values, 0, sizeof values);
        values[DTYPE_BLOCK] = NAN;
        values[2 * DTYPE_BLOCK + 1] = -INFINITY;
        values[3 * DTYPE_BLOCK] = FLT_TRUE_MIN;
        values[4 * DTYPE_BLOCK] = -FLT_MAX;
        weight_blocks_encode((DType)dtype, values, 5 * DTYPE_BLOCK, bytes);
        for (int i = 0; i < DTYPE_BLOCK; i++) assert_true(element_as_double((DType)dtype, bytes, i) == 0);
        for (int i = DTYPE_BLOCK; i < 3 * DTYPE_BLOCK; i++)
            assert_true(isnan(element_as_double((DType)dtype, bytes, i)));
        assert_true(isfinite(element_as_double((DType)dtype, bytes, 3 * DTYPE_BLOCK)));
        double least = element_as_double((DType)dtype, bytes, 4 * DTYPE_BLOCK);
        assert_true(least < -3.3e38 && isfinite(least));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_layout),
        cmocka_unit_test(test_odd_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
