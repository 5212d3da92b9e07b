/* Compiled matrix products against the interpreter. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "codegen/kernels/amx_gemm.h"
#include "tests/codegen/kernels/kernel_check.h"
#include "tests/codegen/kernels/product.h"

/* ---- Matrix products ---- */

typedef struct Sizes {
    uint32_t count;
    int64_t of[16];
} Sizes;

static int64_t draw_size(const Sizes *sizes) { return sizes->of[draw(sizes->count)]; }

/* A product of float32, laid out and continued in any way. */
static Product draw_product(const Sizes *sides, const Sizes *depths)
{
    Product p = {.type = DTYPE_F32, .stored = DTYPE_F32, .batch = 1 + draw(3) * draw(2)};
    p.rows = draw_size(sides);
    p.columns = draw_size(sides);
    p.depth = draw_size(depths);
    p.transpose_a = draw(2);
    p.transpose_b = draw(2);
    p.strided = draw(2);
    p.epilogue = (Epilogue)draw(EPILOGUES);
    return p;
}

static void test_products(void **state)
{
    (void)state;
    static const Sizes sizes = {16, {1, 2, 3, 5, 8, 13, 16, 17, 24, 31, 47, 64, 65, 96, 128, 130}};
    for (int round = 0, rounds = check_rounds(40); round < rounds; round++) {
        Product p = draw_product(&sizes, &sizes);
        p.type = draw(6) ? DTYPE_F32 : DTYPE_F64;
        p.stored = p.type == DTYPE_F32 && draw(8) == 0 ? DTYPE_BF16 : p.type;
        build_product(&p);
        if (draw(2)) kernel_canonicalize(&kernel);
        check(&kernel);
    }
}

/* Sums long enough to be cut into blocks, and more rows than one unit takes. */
static void test_long_products(void **state)
{
    (void)state;
    for (int epilogue = 0; epilogue < EPILOGUES; epilogue++) {
        Product p = {1,     33,        70,        3100 + 1700 * (epilogue % 2), epilogue % 2, epilogue % 3,
                     false, DTYPE_F32, DTYPE_F32, (Epilogue)epilogue,           DTYPE_NONE};
        build_product(&p);
        check_filled(&kernel, 2e-4, fill_random);
        p.rows = 1100;
        p.depth = 40;
        p.transpose_a = !p.transpose_a;
        p.transpose_b = !p.transpose_b;
        build_product(&p);
        check_filled(&kernel, 2e-4, fill_random);
    }
}

/* Products of bf16 numbers, by every unit that this machine has for them: sizes around blocks and tiles, sums in
 * several blocks of k, columns in several units, sums of numbers that are not rounded alike if they are rounded
 * otherwise. */
static void check_bf16(void)
{
    static const Sizes sizes = {16, {2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 48, 49, 64, 65, 100, 130}};
    for (int round = 0, rounds = check_rounds(20); round < rounds; round++) {
        Product p = draw_product(&sizes, &sizes);
        p.stored = draw(2) ? DTYPE_F32 : DTYPE_BF16;
        /* The first two are done in every run of the test, and once more with B kept. */
        if (round % 20 < 2) p.batch = 1;
        if (round % 20 == 0) { /* rows that are pairs already, sums in two blocks of k */
            p.rows = 40, p.columns = 33, p.depth = 1600, p.transpose_a = false, p.strided = true;
            p.stored = DTYPE_BF16, p.epilogue = ACCUMULATE;
        }
        if (round % 20 == 1) { /* a weight's gradient of stored activations */
            p.rows = 33, p.columns = 900, p.depth = 100, p.transpose_a = true, p.epilogue = ACCUMULATE;
            p.stored = DTYPE_BF16;
        }
        if (round % 10 == 2) p.depth = 2100;
        if (round % 20 == 5) p.rows = 530;
        p.b = draw(2) ? DTYPE_BF16 : DTYPE_NONE;
        build_product(&p);
        if (draw(2)) kernel_canonicalize(&kernel);
        kernel_set_precision(&kernel, PRODUCTS_BF16);
        check_filled(&kernel, p.depth > 1000 ? 1e-4 : 1e-5, fill_random);
    }
}

static void test_bf16_products(void **state)
{
    (void)state;
    check_bf16();
    if (target.bf16 != BF16_TILES) return;
    Target tiles = target; /* every processor with tiles has VDPBF16PS too */
    assert_true(target_init(&target, (TargetOptions){.cpu = "cooperlake"}, &diagnostics));
    assert_int_equal(target.bf16, BF16_PAIRS);
    check_bf16();
    target_free(&target);
    target = tiles;
}

/* ---- Split factors ---- */

/* Numbers of very different sizes, of whose products none is beyond the range of float32. */
static void fill_uneven(const Kernel *checked, int operand, int64_t elements, void *data)
{
    fill_random(checked, operand, elements, data);
    if (checked->operands[operand].dtype != DTYPE_F32) return;
    float *numbers = data;
    for (int64_t i = 0; i < elements; i++) numbers[i] = ldexpf(numbers[i], (int)draw(60) - 30);
}

static Target without_tiles;

/* Makes `target` one with tiles, emulated where this machine has none (emulated_tiles.h). False if that is not possible
 * either. */
static bool tiles_begin(void)
{
    without_tiles = target;
    if (target.bf16 == BF16_TILES) return true;
    if (target.bf16 == BF16_NONE) {
        print_message("skipped: %s has neither AMX nor AVX-512 BF16\n", target.cpu);
        return false;
    }
    TargetOptions with = {.cpu = without_tiles.cpu, .features = "+amx-tile,+amx-bf16"};
    assert_true(target_init(&target, with, &diagnostics));
    assert_int_equal(target.bf16, BF16_TILES);
    print_message("%s has no AMX: its instructions are emulated\n", target.cpu);
    return true;
}

static void tiles_end(void)
{
    if (without_tiles.bf16 != BF16_TILES) target_free(&target);
    target = without_tiles;
}

/* B is weights in blocks, along k or along its columns, whose number is then one of whole blocks. */
static void check_blocks(bool rounded)
{
    static const Sizes sizes = {8, {2, 7, 16, 33, 64, 65, 100, 130}};
    for (int round = 0, rounds = check_rounds(12); round < rounds; round++) {
        Product p = draw_product(&sizes, &sizes);
        int64_t *along = p.transpose_b ? &p.depth : &p.columns;
        *along = round % 10 == 0 && p.transpose_b ? 2112 : DTYPE_BLOCK * (1 + draw(12));
        if (round % 10 == 5) p.rows = 530;
        p.b = draw(2) ? DTYPE_Q8 : DTYPE_Q4;
        build_product(&p);
        if (draw(2)) kernel_canonicalize(&kernel);
        if (rounded) kernel_set_precision(&kernel, PRODUCTS_BF16);
        check_filled(&kernel, p.depth > 1000 ? 1e-4 : 1e-5, fill_random);
    }
}

static void test_products_of_blocks(void **state)
{
    (void)state;
    check_blocks(false);
    check_blocks(true);
    if (!tiles_begin()) return;
    check_blocks(true);
    check_blocks(false);
    tiles_end();
}

static void test_tile_products(void **state)
{
    (void)state;
    if (!tiles_begin()) return;
    static const Sizes sides = {6, {120, 128, 131, 160, 200, 545}}, depths = {6, {128, 130, 256, 257, 300, 530}};
    for (int round = 0, rounds = check_rounds(30); round < rounds; round++) {
        Product p = draw_product(&sides, &depths);
        p.batch = 1;
        if (round == 0) p.depth = 300, p.epilogue = ACCUMULATE; /* two blocks of k */
        p.b = draw(2) ? DTYPE_BF16 : DTYPE_NONE;
        build_product(&p);
        if (draw(2)) kernel_canonicalize(&kernel);
        kernel_set_precision(&kernel, (ProductPrecision)(round % 3));
        /* What is not exact may be as large as the largest product of a sum. */
        Fill *fill = round % 3 || draw(2) ? fill_random : fill_uneven;
        check_filled(&kernel, round % 3 == PRODUCTS_BF16X3 ? 1e-3 : 1e-5, fill);
    }
    tiles_end();
}

static double mean_error; /* of operand 2: root of the mean square, by that of its elements */

static void measure_error(const Kernel *checked, void *const *expected, void *const *found, double tolerance)
{
    (void)tolerance;
    const float *exact = expected[2], *computed = found[2];
    double size = 0, error = 0;
    for (int64_t i = 0; i < checked->extent[1] * checked->extent[2]; i++) {
        size += (double)exact[i] * (double)exact[i];
        error += ((double)exact[i] - (double)computed[i]) * ((double)exact[i] - (double)computed[i]);
    }
    mean_error = sqrt(error / size);
}

/* Of products of two numbers: a sum has just one that is not 0. */
static void fill_lonely(const Kernel *checked, int operand, int64_t elements, void *data)
{
    fill_random(checked, operand, elements, data);
    if (operand == 0)
        for (int64_t i = 0; i < elements; i++)
            if (i % checked->extent[3] != i / checked->extent[3]) ((float *)data)[i] = 0;
}

static double largest_error; /* of operand 2, of an element's size */

static void find_largest_error(const Kernel *checked, void *const *expected, void *const *found, double tolerance)
{
    (void)tolerance;
    const float *exact = expected[2], *computed = found[2];
    largest_error = 0;
    for (int64_t i = 0; i < checked->extent[1] * checked->extent[2]; i++)
        largest_error = fmax(largest_error, fabs((double)exact[i] - (double)computed[i]) / fabs((double)exact[i]));
}

/* Three products of two parts each: to 3 * 2^-16, and no better than that allows. */
static void test_bf16x3_accuracy(void **state)
{
    (void)state;
    if (!tiles_begin()) return;
    Product p = {1, 128, 140, 128, false, false, false, DTYPE_F32, DTYPE_F32, PLAIN, DTYPE_NONE};
    build_product(&p);
    kernel_set_precision(&kernel, PRODUCTS_BF16X3);
    check_compared(&kernel, 0, fill_lonely, find_largest_error);
    print_message("bf16x3: products are wrong by at most 2^%.2f\n", log2(largest_error));
    assert_true(largest_error < 0x1.8p-15 && largest_error > 0x1p-17);
    p.depth = 1000;
    build_product(&p);
    kernel_set_precision(&kernel, PRODUCTS_BF16X3);
    check_compared(&kernel, 0, fill_random, measure_error);
    print_message("bf16x3: sums of 1000 are wrong by 2^%.2f\n", log2(mean_error));
    assert_true(mean_error < 0x1p-17);
    tiles_end();
    build_product(&p);
    kernel_set_precision(&kernel, PRODUCTS_BF16X3);
    if (target.bf16 != BF16_TILES) check(&kernel); /* there it is as exact as float32 */
}

/* Products of split factors are at least as exact as sums of fused multiply-adds. */
static void test_split_accuracy(void **state)
{
    (void)state;
    if (!tiles_begin()) return;
    Target tiles = target, multiply_add;
    assert_true(target_init(&multiply_add, (TargetOptions){.features = "-amx-bf16"}, &diagnostics));
    assert_int_equal(multiply_add.bf16, BF16_PAIRS);
    for (int round = 0; round < 3; round++) {
        Product p = {1, 128, 140, 200 << round, round & 1, round & 2, false, DTYPE_F32, DTYPE_F32, PLAIN, DTYPE_NONE};
        build_product(&p);
        target = multiply_add;
        check_compared(&kernel, 0, fill_random, measure_error);
        double plain = mean_error;
        target = tiles;
        check_compared(&kernel, 0, fill_random, measure_error);
        print_message("%lld terms: error %.2e, of multiply-adds %.2e\n", (long long)p.depth, mean_error, plain);
        assert_true(mean_error <= plain);
    }
    target_free(&multiply_add);
    tiles_end();
}

static void fill_with_infinity(const Kernel *checked, int operand, int64_t elements, void *data)
{
    fill_random(checked, operand, elements, data);
    if (operand == 0) ((float *)data)[5 * checked->extent[3] + 7] = INFINITY;
}

static void expect_one_row(const Kernel *checked, void *const *expected, void *const *found, double tolerance)
{
    (void)tolerance;
    const float *exact = expected[2], *computed = found[2];
    for (int64_t i = 0; i < checked->extent[1] * checked->extent[2]; i++) {
        bool infinite = i / checked->extent[2] == 5;
        assert_true(isfinite(exact[i]) == !infinite);
        assert_true(infinite ? !isfinite(computed[i]) : fabsf(computed[i] - exact[i]) < 1e-3F);
    }
}

/* An infinite factor spoils its row, and never silently. */
static void test_infinite_factor(void **state)
{
    (void)state;
    if (!tiles_begin()) return;
    Product p = {1, 128, 140, 200, false, false, false, DTYPE_F32, DTYPE_F32, PLAIN, DTYPE_NONE};
    build_product(&p);
    check_compared(&kernel, 0, fill_with_infinity, expect_one_row);
    tiles_end();
}

/* ---- Factors that are often 0 ---- */

enum { ROW_TOKENS = 35 }; /* tokens see those of their own row: shares of others are 0, of either sign */

static void fill_shares(const Kernel *checked, int operand, int64_t elements, void *data)
{
    const KernelOperand *place = &checked->operands[operand];
    int64_t rows = checked->extent[1], depth = checked->extent[checked->axis_count - 1];
    for (int64_t i = 0; i < elements; i++) {
        int64_t within = i % (rows * depth), row = place->stride[1] == 1 ? within % rows : within / depth;
        int64_t k = place->stride[1] == 1 ? within / rows : within % depth;
        double number = (double)((uint32_t)i * 2654435761u >> 8) * 0x1p-23 - 1;
        bool hidden = operand == 0 && row / ROW_TOKENS != k / ROW_TOKENS;
        element_store_double(place->dtype, data, i, hidden ? number < 0 ? -0.0 : 0.0 : number);
    }
}

static void fill_scores(const Kernel *checked, int operand, int64_t elements, void *data)
{
    fill_shares(checked, 1, elements, data);
    for (int64_t i = 0; operand == 0 && i < elements; i++)
        if (i / checked->extent[1] / ROW_TOKENS != i % checked->extent[1] / ROW_TOKENS) ((float *)data)[i] = -FLT_MAX;
}

/* A mask of the same kind, and one that hides nothing. */
static void fill_masks(const Kernel *checked, int operand, int64_t elements, void *data)
{
    int64_t columns = checked->extent[2];
    if (checked->operands[operand].dtype != DTYPE_BOOL) {
        fill_random(checked, operand, elements, data);
        return;
    }
    for (int64_t i = 0; i < elements; i++)
        ((bool *)data)[i] = elements == columns || i / columns / ROW_TOKENS == i % columns / ROW_TOKENS;
}

static float *kept; /* of the last operand; NULL: the next comparison keeps them */

static void keep_or_compare(const Kernel *checked, void *const *expected, void *const *found, double tolerance)
{
    int last = checked->operand_count - 1;
    int64_t elements = 1;
    for (int axis = 0; axis < checked->axis_count; axis++)
        if (checked->operands[last].stride[axis]) elements *= checked->extent[axis];
    size_t bytes = (size_t)elements * sizeof *kept;
    const float *exact = expected[last], *computed = found[last];
    for (int64_t i = 0; i < elements; i++)
        if (!(fabs((double)exact[i] - (double)computed[i]) <= tolerance))
            fail_msg("%s, element %lld: expected %.9g, found %.9g", checked->label, (long long)i, (double)exact[i],
                     (double)computed[i]);
    if (kept) assert_memory_equal(kept, computed, bytes);
    void *copy = kept ? NULL : memcpy(memory_allocate(bytes), computed, bytes);
    free(kept);
    kept = copy;
}

/* Tiles of which a mask hides all. */
static void test_hidden_sums(void **state)
{
    (void)state;
    for (int way = 0; way < 2; way++) {
        Product p = {2, 100, way ? 128 : 100, 32, false, true, false, DTYPE_F32, DTYPE_F32, HIDDEN, DTYPE_NONE};
        build_product(&p);
        if (way) kernel_set_precision(&kernel, PRODUCTS_BF16);
        check_filled(&kernel, 1e-5, fill_masks);
    }
}

/* What is left out of a product of shares, and of the softmax that makes them, changes no bit. */
static void test_often_zero(void **state)
{
    (void)state;
    for (int way = 0; way < (target.bf16 == BF16_PAIRS ? 4 : 2); way++) {
        Product p = {2, 100, 40, 128, way & 1, false, false, DTYPE_F32, DTYPE_F32, PLAIN, DTYPE_NONE};
        if (way & 2) p.stored = DTYPE_BF16;
        for (int skips = 0; skips < 2; skips++) {
            build_product(&p);
            kernel.operands[0].often_zero = skips;
            if (way & 2) kernel_set_precision(&kernel, PRODUCTS_BF16);
            check_compared(&kernel, 1e-4, fill_shares, keep_or_compare);
        }
    }
    for (int skips = 0; skips < 2; skips++) {
        build_softmax(100, 128);
        kernel.operands[1].often_zero = skips;
        check_compared(&kernel, 1e-6, fill_scores, keep_or_compare);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bf16_products),   cmocka_unit_test(test_tile_products),
        cmocka_unit_test(test_bf16x3_accuracy), cmocka_unit_test(test_split_accuracy),
        cmocka_unit_test(test_infinite_factor), cmocka_unit_test(test_often_zero),
        cmocka_unit_test(test_hidden_sums),     cmocka_unit_test(test_products),
        cmocka_unit_test(test_long_products),   cmocka_unit_test(test_products_of_blocks),
    };
    return check_run(argc, argv, tests, sizeof tests / sizeof *tests);
}
