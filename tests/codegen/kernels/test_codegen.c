/* Compiled loop kernels against the interpreter, whole and in pieces. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/codegen/kernels/kernel_check.h"
#include "tests/common/ulp.h"

/* ---- Elementwise ---- */

static void dense(int64_t *stride, int axes, const int64_t *extent)
{
    int64_t step = 1;
    for (int i = axes - 1; i >= 0; i--) {
        stride[i] = step;
        step *= extent[i];
    }
}

/* One unary operation of a type that has it, on 1003 elements around zero. */
static void check_unary(KernelOp op, DType dtype)
{
    int64_t extent[] = {1003}, stride[] = {1};
    kernel_begin(&kernel, "unary", 1, extent);
    int in = kernel_operand(&kernel, dtype, stride);
    Register x = kernel_load(&kernel, in);
    if (dtype_is_float(dtype) && (op == KERNEL_LOG || op == KERNEL_SQRT)) x = kernel_unary(&kernel, KERNEL_EXP, x);
    Register y = kernel_unary(&kernel, op, x);
    int out = kernel_operand(&kernel, op == KERNEL_IS_NAN ? DTYPE_BOOL : dtype, stride);
    kernel_store(&kernel, out, y);
    check(&kernel);
}

static void test_unary(void **state)
{
    (void)state;
    static const DType floats[] = {DTYPE_F32, DTYPE_F64, DTYPE_F16, DTYPE_BF16};
    for (int t = 0; t < 4; t++) {
        for (int op = KERNEL_NEGATE; op <= KERNEL_IS_NAN; op++) {
            if (op != KERNEL_NOT) check_unary((KernelOp)op, floats[t]);
        }
    }
    static const DType integers[] = {DTYPE_I64, DTYPE_I32, DTYPE_U8, DTYPE_I16, DTYPE_U32};
    for (int t = 0; t < 5; t++) {
        for (int op = KERNEL_NEGATE; op <= KERNEL_SIGN; op++) check_unary((KernelOp)op, integers[t]);
    }
    check_unary(KERNEL_NOT, DTYPE_BOOL);
}

static void check_binary(KernelOp op, DType dtype)
{
    int64_t extent[] = {7, 37}, both[] = {37, 1}, row[] = {0, 1};
    kernel_begin(&kernel, "binary", 2, extent);
    Register a = kernel_load(&kernel, kernel_operand(&kernel, dtype, both));
    Register b = kernel_load(&kernel, kernel_operand(&kernel, dtype, row));
    if (op == KERNEL_POWER && dtype_is_float(dtype)) a = kernel_unary(&kernel, KERNEL_EXP, a);
    bool comparison = op >= KERNEL_EQUAL && op <= KERNEL_LESS_EQUAL;
    Register y = kernel_binary(&kernel, op, a, b);
    kernel_store(&kernel, kernel_operand(&kernel, comparison ? DTYPE_BOOL : dtype, both), y);
    check(&kernel);
}

static void test_binary(void **state)
{
    (void)state;
    for (int op = KERNEL_ADD; op <= KERNEL_LESS_EQUAL; op++) {
        check_binary((KernelOp)op, DTYPE_F32);
        if (op == KERNEL_MULTIPLY_BF16 || op == KERNEL_MULTIPLY_BF16X3) continue;
        check_binary((KernelOp)op, DTYPE_F64);
        check_binary((KernelOp)op, DTYPE_I64);
        check_binary((KernelOp)op, DTYPE_I32);
    }
    check_binary(KERNEL_EQUAL, DTYPE_BOOL);
    check_binary(KERNEL_AND, DTYPE_BOOL);
    check_binary(KERNEL_OR, DTYPE_BOOL);
}

static void fill_special(const Kernel *k, int operand, int64_t elements, void *data)
{
    static const double reals[] = {0.0,       -0.0, 1,    -1,    2.5,   -3.5, INFINITY,
                                   -INFINITY, NAN,  1e30, -1e30, 1e-40, 88.9, -104};
    static const int64_t integers[] = {0, 1, -1, 2, -3, 7, INT64_MAX, INT64_MIN, 63, -64, 1 << 20};
    DType dtype = k->operands[operand].dtype;
    for (int64_t i = 0; i < elements; i++) {
        if (dtype_is_float(dtype))
            element_store_double(dtype, data, i, reals[draw(14)]);
        else if (dtype == DTYPE_BOOL)
            element_store_integer(dtype, data, i, draw(2));
        else
            element_store_integer(dtype, data, i, integers[draw(11)]);
    }
}

/* Infinities, NaN, extreme integers, division by zero. */
static void test_special_values(void **state)
{
    (void)state;
    int64_t extent[] = {500}, stride[] = {1};
    for (int type = 0; type < 3; type++) {
        DType dtype = (DType[]){DTYPE_F32, DTYPE_F64, DTYPE_I64}[type];
        for (int op = KERNEL_NEGATE; op <= KERNEL_LESS_EQUAL; op++) {
            bool unary = op <= KERNEL_IS_NAN;
            if (op == KERNEL_NOT || (dtype == DTYPE_I64 && op > KERNEL_SIGN && unary)) continue;
            if ((op == KERNEL_MULTIPLY_BF16 || op == KERNEL_MULTIPLY_BF16X3) && dtype != DTYPE_F32) continue;
            if (op == KERNEL_SIN || op == KERNEL_COS) continue; /* of 1e30: no two libraries agree in float */
            kernel_begin(&kernel, "special", 1, extent);
            Register a = kernel_load(&kernel, kernel_operand(&kernel, dtype, stride));
            Register y;
            if (unary) {
                y = kernel_unary(&kernel, (KernelOp)op, a);
            } else {
                Register b = kernel_load(&kernel, kernel_operand(&kernel, dtype, stride));
                y = kernel_binary(&kernel, (KernelOp)op, a, b);
            }
            kernel_store(&kernel, kernel_operand(&kernel, kernel_type(&kernel, y), stride), y);
            check_filled(&kernel, 1e-5, fill_special);
        }
        for (int to = 0; to < 4; to++) {
            kernel_begin(&kernel, "convert", 1, extent);
            Register a = kernel_load(&kernel, kernel_operand(&kernel, dtype, stride));
            DType types[] = {DTYPE_F32, DTYPE_F64, DTYPE_I64, DTYPE_BOOL};
            Register y = kernel_convert(&kernel, types[to], a);
            kernel_store(&kernel, kernel_operand(&kernel, types[to], stride), y);
            check_filled(&kernel, 1e-5, fill_special);
        }
    }
}

/* ---- Accuracy of elementary functions ---- */

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

static const struct {
    KernelOp op;
    double (*exact)(double);
} functions[] = {
    {KERNEL_EXP, exp}, {KERNEL_LOG, log}, {KERNEL_ERF, erf}, {KERNEL_TANH, tanh}, {KERNEL_SIGMOID, sigmoid}};

enum { FUNCTIONS = sizeof functions / sizeof *functions };

static void build_function(int64_t count, KernelOp op)
{
    int64_t extent[] = {count}, stride[] = {1};
    kernel_begin(&kernel, "function", 1, extent);
    Register x = kernel_load(&kernel, kernel_operand(&kernel, DTYPE_F32, stride));
    Register y = kernel_unary(&kernel, op, x);
    kernel_store(&kernel, kernel_operand(&kernel, DTYPE_F32, stride), y);
}

/* A sample of all floats, of every sign and exponent. */
static void fill_sample(const Kernel *checked, int operand, int64_t elements, void *data)
{
    (void)checked, (void)operand;
    uint32_t step = (uint32_t)((1ull << 32) / (uint64_t)elements);
    for (int64_t i = 0; i < elements; i++) {
        uint32_t bits = (uint32_t)i * step + draw(step);
        memcpy((float *)data + i, &bits, sizeof bits);
    }
}

static void compare_ulps(const Kernel *checked, void *const *expected, void *const *found, double most_ulps)
{
    const float *x = expected[0], *y = found[1];
    double (*exact)(double) = NULL;
    for (size_t i = 0; i < FUNCTIONS; i++)
        if (functions[i].op == checked->instructions[1].op) exact = functions[i].exact;
    assert_non_null(exact);
    for (int64_t i = 0; i < checked->extent[0]; i++) {
        double error = ulp_error(y[i], exact(x[i]));
        if (error > most_ulps)
            fail_msg("operation %d: %.2f ulp at %.9g", checked->instructions[1].op, error, (double)x[i]);
    }
}

static void test_accuracy(void **state)
{
    (void)state;
    for (size_t i = 0; i < FUNCTIONS; i++) {
        build_function(1 << 20, functions[i].op);
        check_compared(&kernel, 4, fill_sample, compare_ulps);
    }
}

/* The table of codegen/kernels/elementary.h, to the sign of zeros. */
enum { LIMITS = 9 };

static void fill_limits(const Kernel *checked, int operand, int64_t elements, void *data)
{
    static const float x[LIMITS] = {-INFINITY, -1e30F, -0x1p-149F, -0.0F, 0.0F, 0x1p-149F, 1e30F, INFINITY, NAN};
    (void)checked, (void)operand;
    memcpy(data, x, (size_t)elements * sizeof *x);
}

static void compare_limits(const Kernel *checked, void *const *expected, void *const *found, double unused)
{
    static const float tiny = 0x1p-149F;
    static const struct {
        KernelOp op;
        float y[LIMITS];
    } limits[] = {{KERNEL_EXP, {0, 0, 1, 1, 1, 1, INFINITY, INFINITY, NAN}},
                  {KERNEL_LOG, {NAN, NAN, NAN, -INFINITY, -INFINITY, -103.278929F, 69.0775528F, INFINITY, NAN}},
                  {KERNEL_ERF, {-1, -1, -tiny, -0.0F, 0, tiny, 1, 1, NAN}},
                  {KERNEL_TANH, {-1, -1, -tiny, -0.0F, 0, tiny, 1, 1, NAN}},
                  {KERNEL_SIGMOID, {0, 0, 0.5F, 0.5F, 0.5F, 0.5F, 1, 1, NAN}}};
    const float *x = expected[0], *y = found[1];
    (void)unused;
    for (size_t i = 0; i < FUNCTIONS; i++) {
        for (int k = 0; k < LIMITS && limits[i].op == checked->instructions[1].op; k++) {
            float wanted = limits[i].y[k];
            bool same = isnan(wanted) ? isnan(y[k]) : y[k] == wanted && !signbit(y[k]) == !signbit(wanted);
            if (!same)
                fail_msg("operation %d of %g: %.9g, not %.9g", limits[i].op, (double)x[k], (double)y[k],
                         (double)wanted);
        }
    }
}

static void test_limits(void **state)
{
    (void)state;
    for (size_t i = 0; i < FUNCTIONS; i++) {
        build_function(LIMITS, functions[i].op);
        check_compared(&kernel, 0, fill_limits, compare_limits);
    }
}

/* ---- Random expressions ---- */

static int random_operand(DType dtype, int axes, const int64_t *extent, bool written)
{
    int64_t stride[KERNEL_MAX_AXES], permuted[KERNEL_MAX_AXES], shuffled[KERNEL_MAX_AXES];
    int order[KERNEL_MAX_AXES];
    for (int i = 0; i < axes; i++) order[i] = i;
    if (draw(3) == 0) {
        for (int i = axes - 1; i > 0; i--) {
            int j = (int)draw((uint32_t)i + 1), swap = order[i];
            order[i] = order[j];
            order[j] = swap;
        }
    }
    for (int i = 0; i < axes; i++) permuted[i] = extent[order[i]] + (i == axes - 1 ? draw(2) * 3 : 0);
    dense(shuffled, axes, permuted);
    for (int i = 0; i < axes; i++) stride[order[i]] = shuffled[i];
    for (int i = 0; i < axes && !written; i++) {
        if (draw(4) == 0) stride[i] = 0;
    }
    return kernel_operand(&kernel, dtype, stride);
}

static Register random_expression(Register *pool, int count)
{
    static const KernelOp unary[] = {KERNEL_NEGATE, KERNEL_EXP,      KERNEL_TANH,
                                     KERNEL_ERF,    KERNEL_ABSOLUTE, KERNEL_SIGMOID};
    static const KernelOp binary[] = {KERNEL_ADD, KERNEL_SUBTRACT, KERNEL_MULTIPLY, KERNEL_MAXIMUM, KERNEL_MINIMUM};
    for (int i = 0; i < 8; i++) {
        Register a = pool[draw((uint32_t)count)], b = pool[draw((uint32_t)count)], y;
        switch (draw(4)) {
        case 0: y = kernel_unary(&kernel, unary[draw(6)], a); break;
        case 1: {
            /* Of what was loaded: rounding must not decide. */
            Register less = kernel_binary(&kernel, KERNEL_LESS, pool[draw(3)], pool[draw(3)]);
            y = kernel_select(&kernel, less, a, b);
            break;
        }
        default: y = kernel_binary(&kernel, binary[draw(5)], a, b); break;
        }
        y = kernel_unary(&kernel, KERNEL_TANH, y); /* keeps it small */
        pool[count++] = y;
    }
    return pool[count - 1];
}

static void test_random_maps(void **state)
{
    (void)state;
    for (int round = 0, rounds = check_rounds(60); round < rounds; round++) {
        int axes = 1 + (int)draw(4);
        int64_t extent[KERNEL_MAX_AXES];
        for (int i = 0; i < axes; i++) extent[i] = 1 + draw(axes == 1 ? 12000 : i == axes - 1 ? 70 : 9);
        DType dtype = draw(4) ? DTYPE_F32 : DTYPE_F64;
        kernel_begin(&kernel, "random map", axes, extent);
        Register pool[32];
        int count = 0;
        for (int i = 0; i < 3; i++) pool[count++] = kernel_load(&kernel, random_operand(dtype, axes, extent, false));
        pool[count++] = kernel_convert(&kernel, dtype, kernel_axis(&kernel, (int)draw((uint32_t)axes)));
        pool[count++] = kernel_constant(&kernel, dtype, 0.25);
        Register y = random_expression(pool, count);
        kernel_store(&kernel, random_operand(dtype, axes, extent, true), y);
        if (draw(2)) kernel_store_add(&kernel, random_operand(dtype, axes, extent, true), pool[0]);
        if (draw(2)) kernel_canonicalize(&kernel);
        check(&kernel);
    }
}

/* Sums, products and extrema, with what follows from them. */
static void test_random_reductions(void **state)
{
    (void)state;
    for (int round = 0, rounds = check_rounds(40); round < rounds; round++) {
        int axes = 1 + (int)draw(3);
        int64_t extent[KERNEL_MAX_AXES];
        for (int i = 0; i < axes; i++) extent[i] = 1 + draw(i == axes - 1 ? 300 : 40);
        kernel_begin(&kernel, "random reduction", axes, extent);
        int in = random_operand(DTYPE_F32, axes, extent, false);
        Register x = kernel_load(&kernel, in);
        Register sum = kernel_reduce(&kernel, KERNEL_SUM, x);
        Register largest = kernel_reduce(&kernel, draw(2) ? KERNEL_MAXIMUM_OF : KERNEL_MINIMUM_OF, x);
        Register factor = kernel_unary(&kernel, KERNEL_TANH, x);
        factor = kernel_binary(&kernel, KERNEL_ADD, factor, kernel_constant(&kernel, DTYPE_F32, 1));
        Register product = kernel_reduce(&kernel, KERNEL_PRODUCT, factor);
        kernel_begin_phase(&kernel, false);
        Register scaled = kernel_binary(&kernel, KERNEL_MULTIPLY, sum, largest);
        int64_t stride[KERNEL_MAX_AXES];
        dense(stride, axes, extent);
        int64_t inner = extent[axes - 1];
        for (int i = 0; i < axes; i++) stride[i] /= inner;
        int out = kernel_operand(&kernel, DTYPE_F32, stride);
        kernel_store(&kernel, out, scaled);
        int products = kernel_operand(&kernel, DTYPE_F32, stride);
        kernel_store(&kernel, products, product);
        if (draw(2)) {
            kernel_begin_phase(&kernel, true);
            Register again = kernel_load(&kernel, in);
            Register shifted = kernel_binary(&kernel, KERNEL_SUBTRACT, again, largest);
            kernel_store(&kernel, random_operand(DTYPE_F32, axes, extent, true), shifted);
        }
        if (draw(2)) kernel_canonicalize(&kernel);
        check_filled(&kernel, 3e-4, fill_random);
    }
}

/* NaN wins, infinities compare, along rows and along columns. */
static void test_extrema_of_special_values(void **state)
{
    (void)state;
    for (int turned = 0; turned < 2; turned++) {
        int64_t extent[] = {40, 23}, in[] = {turned ? 1 : 23, turned ? 40 : 1}, out[] = {1, 0};
        kernel_begin(&kernel, "extrema", 2, extent);
        Register x = kernel_load(&kernel, kernel_operand(&kernel, DTYPE_F32, in));
        Register integer = kernel_load(&kernel, kernel_operand(&kernel, DTYPE_I64, in));
        Register largest = kernel_reduce(&kernel, KERNEL_MAXIMUM_OF, x);
        Register least = kernel_reduce(&kernel, KERNEL_MINIMUM_OF, x);
        Register largest_integer = kernel_reduce(&kernel, KERNEL_MAXIMUM_OF, integer);
        Register total = kernel_reduce(&kernel, KERNEL_SUM, integer);
        kernel_begin_phase(&kernel, false);
        kernel_store(&kernel, kernel_operand(&kernel, DTYPE_F32, out), largest);
        kernel_store(&kernel, kernel_operand(&kernel, DTYPE_F32, out), least);
        kernel_store(&kernel, kernel_operand(&kernel, DTYPE_I64, out), largest_integer);
        kernel_store(&kernel, kernel_operand(&kernel, DTYPE_I64, out), total);
        check_filled(&kernel, 0, fill_special);
    }
}

/* ---- What models are made of ---- */

static void test_softmax(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = {{64, 128}, {5, 77}, {130, 3}, {1, 1000}, {33, 16}, {6, 1}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        build_softmax(shapes[i][0], shapes[i][1]);
        check(&kernel);
    }
}

/* Columns are summed: [rows, columns] -> [columns], added to what is there. */
static void test_column_sums(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = {{300, 128}, {17, 1000},  {1000, 3},  {64, 65},
                                        {2, 1},     {1003, 512}, {19, 2064}, {8, 4096}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        int64_t rows = shapes[i][0], columns = shapes[i][1];
        int64_t extent[] = {columns, rows}, in[] = {1, columns}, out[] = {1, 0};
        kernel_begin(&kernel, "column sums", 2, extent);
        Register x = kernel_load(&kernel, kernel_operand(&kernel, DTYPE_F32, in));
        Register sum = kernel_reduce(&kernel, KERNEL_SUM, x);
        kernel_begin_phase(&kernel, false);
        kernel_store_add(&kernel, kernel_operand(&kernel, DTYPE_F32, out), sum);
        check_filled(&kernel, 1e-4, fill_random); /* sums of a thousand numbers in float32 */
    }
}

/* The gradient of a LayerNorm's gain: a column sum of products with numbers that belong to the rows. */
static void test_column_sum_of_products(void **state)
{
    (void)state;
    enum { ROWS = 29, COLUMNS = 768 };
    int64_t extent[] = {COLUMNS, ROWS}, in[] = {1, COLUMNS}, row[] = {0, 1}, out[] = {1, 0};
    kernel_begin(&kernel, "column sum of products", 2, extent);
    Register x = kernel_load(&kernel, kernel_operand(&kernel, DTYPE_F32, in));
    Register mean = kernel_load(&kernel, kernel_operand(&kernel, DTYPE_F32, row));
    Register deviation = kernel_binary(&kernel, KERNEL_SUBTRACT, x, mean);
    Register dy = kernel_load(&kernel, kernel_operand(&kernel, DTYPE_F32, in));
    Register product = kernel_binary(&kernel, KERNEL_MULTIPLY, dy, deviation);
    Register sum = kernel_reduce(&kernel, KERNEL_SUM, product);
    kernel_begin_phase(&kernel, false);
    Register half = kernel_constant(&kernel, DTYPE_F32, 0.5);
    kernel_store(&kernel, kernel_operand(&kernel, DTYPE_F32, out), kernel_binary(&kernel, KERNEL_MULTIPLY, sum, half));
    check(&kernel);
}

enum { TABLE_ROWS = 7 };

/* Rows of a table by index, and the addition of rows to a table. */
static void test_gather_and_scatter(void **state)
{
    (void)state;
    static const int64_t widths[] = {64, 128, 5, 1, 100};
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        int64_t width = widths[i], tokens = 50;
        for (int index = 0; index < 2; index++) {
            DType dtype = index ? DTYPE_I32 : DTYPE_I64;
            int64_t extent[] = {tokens, width}, id[] = {1, 0}, row[] = {0, 1}, out[] = {width, 1};
            kernel_begin(&kernel, "gather", 2, extent);
            Register ids = kernel_load(&kernel, kernel_operand(&kernel, dtype, id));
            Register pitch = kernel_constant_integer(&kernel, width);
            Register offset = kernel_binary(&kernel, KERNEL_MULTIPLY, ids, pitch);
            int table = kernel_operand(&kernel, DTYPE_F32, row);
            Register x = kernel_load_at(&kernel, table, offset, TABLE_ROWS * width);
            kernel_store(&kernel, kernel_operand(&kernel, DTYPE_F32, out), x);
            check(&kernel);

            int64_t turned[] = {width, tokens}, inner_id[] = {0, 1}, column[] = {1, 0}, in[] = {1, width};
            kernel_begin(&kernel, "scatter", 2, turned);
            ids = kernel_load(&kernel, kernel_operand(&kernel, dtype, inner_id));
            pitch = kernel_constant_integer(&kernel, width);
            offset = kernel_binary(&kernel, KERNEL_MULTIPLY, ids, pitch);
            x = kernel_load(&kernel, kernel_operand(&kernel, DTYPE_F32, in));
            table = kernel_operand(&kernel, DTYPE_F32, column);
            kernel_store_add_at(&kernel, table, x, offset, TABLE_ROWS * width);
            assert_int_equal(kernel_classify(&kernel), KERNEL_CLASS_SCATTER);
            check(&kernel);
        }
    }
}

static void test_transposes(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = {{64, 48}, {5, 300}, {130, 3}, {1, 9}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        int64_t extent[] = {shapes[i][0], shapes[i][1]}, in[] = {1, shapes[i][0]}, out[] = {shapes[i][1], 1};
        kernel_begin(&kernel, "transpose", 2, extent);
        Register x = kernel_load(&kernel, kernel_operand(&kernel, DTYPE_F32, in));
        kernel_store(&kernel, kernel_operand(&kernel, DTYPE_F32, out), x);
        check(&kernel);
    }
}

static Register drop_half(const int64_t *stride, Register key, Register first)
{
    Register bound = kernel_constant_integer(&kernel, 30000), one = kernel_constant(&kernel, DTYPE_F32, 1);
    Register below = kernel_random(&kernel, kernel_operand(&kernel, DTYPE_F32, stride), key, first, bound);
    return kernel_select(&kernel, below, one, kernel_constant(&kernel, DTYPE_F32, 0));
}

/* Random numbers in a map with lanes along any axis, with keys and places that vary or not, and after a reduction. */
static void test_random_numbers(void **state)
{
    (void)state;
    static const int64_t strides[][2] = {{37, 1}, {38, 1}, {1, 7}, {1000003, 0}, {0, 5000000011}};
    for (int s = 0; s < 5; s++) {
        for (int varied = 0; varied < 4; varied++) {
            int64_t extent[] = {7, 37}, both[] = {37, 1}, none[] = {0, 0}, row[] = {1, 0};
            kernel_begin(&kernel, "random", 2, extent);
            Register key = kernel_load(&kernel, kernel_operand(&kernel, DTYPE_I64, varied & 1 ? both : none));
            Register first = kernel_load(&kernel, kernel_operand(&kernel, DTYPE_I64, varied & 2 ? both : none));
            Register word = kernel_constant_integer(&kernel, 0x7f4a7c159e3779b9);
            key = kernel_binary(&kernel, KERNEL_MULTIPLY, key, word);
            Register number = drop_half(strides[s], key, first);
            kernel_store(&kernel, kernel_operand(&kernel, DTYPE_F32, both), number);
            Register sum = kernel_reduce(&kernel, KERNEL_SUM, number);
            kernel_begin_phase(&kernel, false);
            kernel_store(&kernel, kernel_operand(&kernel, DTYPE_F32, row), sum);
            check(&kernel);
        }
    }
}

/* Two lanes share a random word where lanes begin at even positions: two neighbours in a map, or two rows in a
 * reduction of rows. Rows may also begin at odd or unknown positions. */
static void test_random_words_in_common(void **state)
{
    (void)state;
    static const int64_t extents[][3] = {{2, 9, 64}, {3, 5, 50}, {2, 3, 6}, {4, 4, 400}, {1, 7, 33}};
    for (int e = 0; e < 5; e++) {
        for (int kind = 0; kind < 12; kind++) {
            const int64_t *extent = extents[e];
            int64_t pitch = extent[2] + kind % 3, stride[] = {extent[1] * pitch, pitch, 1}, none[] = {0, 0, 0};
            int64_t dense[] = {extent[1] * extent[2], extent[2], 1}, row[] = {extent[1], 1, 0};
            kernel_begin(&kernel, "random", 3, extent);
            Register key = kernel_load(&kernel, kernel_operand(&kernel, DTYPE_I64, none));
            Register first = kernel_load(&kernel, kernel_operand(&kernel, DTYPE_I64, none));
            Register factor = kernel_constant_integer(&kernel, 100 + kind / 3 % 2);
            first = kernel_binary(&kernel, KERNEL_MULTIPLY, first, factor);
            first = kernel_binary(&kernel, KERNEL_ADD, first, kernel_constant_integer(&kernel, 10));
            Register number = drop_half(stride, key, first);
            kernel_store(&kernel, kernel_operand(&kernel, DTYPE_F32, dense), number);
            if (kind / 6) {
                Register sum = kernel_reduce(&kernel, KERNEL_SUM, number);
                kernel_begin_phase(&kernel, false);
                kernel_store(&kernel, kernel_operand(&kernel, DTYPE_F32, row), sum);
            }
            check_filled(&kernel, 0, fill_random);
        }
    }
}

/* Stretches of zeros, other than the parameter's, in which one element may be something else. */
static void fill_stretches(const Kernel *checked, int operand, int64_t elements, void *data)
{
    enum { STRETCH = 150 };
    fill_random(checked, operand, elements, data);
    for (int64_t i = 0; operand > 0 && i < elements; i++) {
        int64_t stretch = i / STRETCH;
        bool odd_one = stretch % 5 == operand && i % STRETCH == stretch % STRETCH;
        if (stretch % 3 && !odd_one) ((float *)data)[i] = stretch % 7 ? 0.0f : -0.0f;
    }
}

/* parameter += 0.5 gradient + memory, memory = 0.9 memory + gradient, gradient = 0: as an update does, over more memory
 * than caches hold. */
static void test_update_in_place(void **state)
{
    (void)state;
    int64_t extent[] = {60011}, stride[] = {1};
    kernel_begin(&kernel, "update", 1, extent);
    int operand[3];
    Register value[3];
    for (int i = 0; i < 3; i++) {
        operand[i] = kernel_operand(&kernel, DTYPE_F32, stride);
        kernel.operands[operand[i]].often_zero = i > 0;
        value[i] = kernel_load(&kernel, operand[i]);
    }
    Register half = kernel_constant(&kernel, DTYPE_F32, 0.5), most = kernel_constant(&kernel, DTYPE_F32, 0.9);
    Register step = kernel_binary(&kernel, KERNEL_MULTIPLY, half, value[1]);
    Register sum = kernel_binary(&kernel, KERNEL_ADD, value[0], step);
    kernel_store(&kernel, operand[0], kernel_binary(&kernel, KERNEL_ADD, sum, value[2]));
    Register kept = kernel_binary(&kernel, KERNEL_MULTIPLY, most, value[2]);
    kernel_store(&kernel, operand[2], kernel_binary(&kernel, KERNEL_ADD, kept, value[1]));
    kernel_store(&kernel, operand[1], kernel_constant(&kernel, DTYPE_F32, 0));
    check_filled(&kernel, 1e-6, fill_stretches);
}

static void test_empty(void **state)
{
    (void)state;
    int64_t extent[] = {4, 0}, in[] = {0, 1}, out[] = {1, 0};
    kernel_begin(&kernel, "empty sum", 2, extent);
    Register sum = kernel_reduce(&kernel, KERNEL_SUM, kernel_load(&kernel, kernel_operand(&kernel, DTYPE_F32, in)));
    kernel_begin_phase(&kernel, false);
    kernel_store(&kernel, kernel_operand(&kernel, DTYPE_F32, out), sum);
    check(&kernel);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unary),
        cmocka_unit_test(test_binary),
        cmocka_unit_test(test_special_values),
        cmocka_unit_test(test_accuracy),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_random_maps),
        cmocka_unit_test(test_random_reductions),
        cmocka_unit_test(test_extrema_of_special_values),
        cmocka_unit_test(test_softmax),
        cmocka_unit_test(test_column_sums),
        cmocka_unit_test(test_column_sum_of_products),
        cmocka_unit_test(test_gather_and_scatter),
        cmocka_unit_test(test_transposes),
        cmocka_unit_test(test_random_numbers),
        cmocka_unit_test(test_random_words_in_common),
        cmocka_unit_test(test_update_in_place),
        cmocka_unit_test(test_empty),
    };
    return check_run(argc, argv, tests, sizeof tests / sizeof *tests);
}
