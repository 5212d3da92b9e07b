#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "graph/kernel/kernel.h"

#define EXTENT(...) ((const int64_t[]){__VA_ARGS__})
#define STRIDE(...) ((const int64_t[]){__VA_ARGS__})

static void finish(Kernel *kernel)
{
    kernel_canonicalize(kernel);
    kernel_verify(kernel);
}

static Kernel map_kernel(int axis_count, const int64_t *extent, const int64_t *from, const int64_t *to)
{
    Kernel kernel;
    kernel_begin(&kernel, "map", axis_count, extent);
    int x = kernel_operand(&kernel, DTYPE_F32, from), y = kernel_operand(&kernel, DTYPE_F32, to);
    kernel_store(&kernel, y, kernel_unary(&kernel, KERNEL_NEGATE, kernel_load(&kernel, x)));
    finish(&kernel);
    return kernel;
}

static void equal_computations_get_equal_hashes(void **state)
{
    (void)state;
    Kernel whole = map_kernel(1, EXTENT(24), STRIDE(1), STRIDE(1));
    Kernel parts = map_kernel(4, EXTENT(2, 1, 3, 4), STRIDE(12, 99, 4, 1), STRIDE(12, 7, 4, 1));
    parts.label = "another";
    assert_int_equal(parts.axis_count, 1);
    assert_memory_equal(&(Hash[]){kernel_hash(&whole)}, &(Hash[]){kernel_hash(&parts)}, sizeof(Hash));

    Kernel transposed = map_kernel(3, EXTENT(2, 3, 4), STRIDE(4, 8, 1), STRIDE(12, 4, 1));
    assert_int_equal(transposed.axis_count, 3);
    Kernel broadcast = map_kernel(3, EXTENT(2, 3, 4), STRIDE(0, 4, 1), STRIDE(12, 4, 1));
    assert_int_equal(broadcast.axis_count, 2);
    assert_memory_not_equal(&(Hash[]){kernel_hash(&whole)}, &(Hash[]){kernel_hash(&broadcast)}, sizeof(Hash));
    /* A column of one element: the last outer axis becomes the inner one. */
    Kernel column = map_kernel(2, EXTENT(24, 1), STRIDE(1, 1), STRIDE(1, 1));
    assert_memory_equal(&(Hash[]){kernel_hash(&whole)}, &(Hash[]){kernel_hash(&column)}, sizeof(Hash));
}

static void axes_whose_index_is_read_stay(void **state)
{
    (void)state;
    Kernel kernel;
    kernel_begin(&kernel, "index", 3, EXTENT(1, 2, 300));
    int y = kernel_operand(&kernel, DTYPE_I64, STRIDE(600, 300, 1));
    Register row = kernel_axis(&kernel, 0), column = kernel_axis(&kernel, 1);
    Register sum = kernel_binary(&kernel, KERNEL_ADD, row, column), thousand = kernel_constant_integer(&kernel, 1000);
    Register scaled = kernel_binary(&kernel, KERNEL_MULTIPLY, sum, thousand);
    kernel_store(&kernel, y, kernel_binary(&kernel, KERNEL_ADD, scaled, kernel_axis(&kernel, 2)));
    finish(&kernel);
    assert_int_equal(kernel.axis_count, 2);
    int64_t result[600];
    assert_true(kernel_interpret(&kernel, (void *[]){result}));
    for (int i = 0; i < 600; i++) assert_int_equal(result[i], i / 300 * 1000 + i % 300);
}

/* Rows of 300, so that strips and reductions over several strips are exercised. */
static void softmax_in_three_phases(void **state)
{
    (void)state;
    enum { ROWS = 3, COLUMNS = 300 };
    Kernel kernel;
    kernel_begin(&kernel, "softmax", 2, EXTENT(ROWS, COLUMNS));
    int x = kernel_operand(&kernel, DTYPE_F32, STRIDE(COLUMNS, 1));
    int y = kernel_operand(&kernel, DTYPE_F64, STRIDE(COLUMNS, 1));
    Register maximum = kernel_reduce(&kernel, KERNEL_MAXIMUM_OF, kernel_load(&kernel, x));
    kernel_begin_phase(&kernel, true);
    Register shifted = kernel_binary(&kernel, KERNEL_SUBTRACT, kernel_load(&kernel, x), maximum);
    Register power = kernel_unary(&kernel, KERNEL_EXP, shifted);
    kernel_store(&kernel, y, power);
    Register sum = kernel_reduce(&kernel, KERNEL_SUM, power);
    kernel_begin_phase(&kernel, false);
    Register scale = kernel_convert(&kernel, DTYPE_F64, kernel_unary(&kernel, KERNEL_RECIPROCAL, sum));
    kernel_begin_phase(&kernel, true);
    kernel_store(&kernel, y, kernel_binary(&kernel, KERNEL_MULTIPLY, kernel_load(&kernel, y), scale));
    finish(&kernel);
    assert_int_equal(kernel_classify(&kernel), KERNEL_CLASS_LOOP);

    float input[ROWS * COLUMNS];
    double output[ROWS * COLUMNS];
    for (int i = 0; i < ROWS * COLUMNS; i++) input[i] = sinf((float)i) * 20;
    assert_true(kernel_interpret(&kernel, (void *[]){input, output}));
    for (int row = 0; row < ROWS; row++) {
        double total = 0;
        for (int i = 0; i < COLUMNS; i++) total += exp(input[row * COLUMNS + i]);
        for (int i = 0; i < COLUMNS; i++)
            assert_true(fabs(output[row * COLUMNS + i] - exp(input[row * COLUMNS + i]) / total) < 1e-7);
    }
}

typedef struct Product {
    int64_t batch, m, n, k;
    int64_t a[4], b[4], c[4]; /* strides by batch, m, n, k */
    bool swapped;             /* columns of the result are the rows asked for */
} Product;

static void build_product(Kernel *kernel, const Product *product)
{
    kernel_begin(kernel, "MatMul", 4, EXTENT(product->batch, product->m, product->n, product->k));
    int a = kernel_operand(kernel, DTYPE_F32, product->a), b = kernel_operand(kernel, DTYPE_F32, product->b);
    int c = kernel_operand(kernel, DTYPE_F32, product->c);
    int bias = kernel_operand(kernel, DTYPE_F32, STRIDE(0, 0, 1, 0));
    Register left = kernel_load(kernel, a), right = kernel_load(kernel, b);
    Register sum = kernel_reduce(kernel, KERNEL_SUM, kernel_binary(kernel, KERNEL_MULTIPLY, left, right));
    kernel_begin_phase(kernel, false);
    kernel_store(kernel, c, kernel_binary(kernel, KERNEL_ADD, sum, kernel_load(kernel, bias)));
    finish(kernel);
}

static uint64_t random_state = 1;

static float *random_floats(int64_t count)
{
    float *numbers = memory_allocate((size_t)count * sizeof *numbers);
    for (int64_t i = 0; i < count; i++)
        numbers[i] = (float)random_draw_below(&random_state, 1 << 24) / (1 << 24) - 0.5f;
    return numbers;
}

static void check_product(const Product *product)
{
    Kernel kernel;
    build_product(&kernel, product);
    KernelGemm gemm;
    assert_true(kernel_match_gemm(&kernel, &gemm));
    assert_int_equal(kernel_classify(&kernel), KERNEL_CLASS_GEMM);
    assert_int_equal(gemm.a, product->swapped);
    double flops = (double)product->batch * (double)product->m * (double)product->n * (2 * (double)product->k + 1);
    assert_true(kernel_flops(&kernel) == flops);

    int64_t size = product->batch * (product->m + product->n + product->k) * (product->m + product->n + product->k);
    float *a = random_floats(size), *b = random_floats(size), *c = random_floats(size),
          *bias = random_floats(product->n);
    assert_true(kernel_interpret(&kernel, (void *[]){a, b, c, bias}));
#define AT(array, i, j, l)                                                                                             \
    array[x * product->array[0] + i * product->array[1] + j * product->array[2] + l * product->array[3]]
    for (int64_t x = 0; x < product->batch; x++)
        for (int64_t m = 0; m < product->m; m++)
            for (int64_t n = 0; n < product->n; n++) {
                double sum = bias[n];
                for (int64_t k = 0; k < product->k; k++) sum += (double)AT(a, m, 0, k) * (double)AT(b, 0, n, k);
                assert_true(fabs(AT(c, m, n, 0) - sum) < 1e-5);
            }
#undef AT
    free(a), free(b), free(c), free(bias);
}

static void matrix_products_of_every_layout(void **state)
{
    (void)state;
    const Product products[] = {
        {1, 5, 7, 3, {0, 3, 0, 1}, {0, 0, 1, 7}, {0, 7, 1, 0}, false},            /* NN */
        {1, 65, 300, 257, {0, 257, 0, 1}, {0, 0, 1, 300}, {0, 300, 1, 0}, false}, /* several blocks each way */
        {1, 9, 4, 6, {0, 6, 0, 1}, {0, 0, 6, 1}, {0, 4, 1, 0}, false},            /* NT */
        {1, 9, 4, 6, {0, 1, 0, 9}, {0, 0, 1, 4}, {0, 4, 1, 0}, false},            /* TN */
        {1, 9, 4, 6, {0, 6, 0, 1}, {0, 0, 1, 4}, {0, 1, 9, 0}, true},             /* result transposed */
        {3, 8, 5, 4, {32, 4, 0, 1}, {20, 0, 1, 5}, {40, 5, 1, 0}, false},         /* batched */
        {3, 8, 5, 4, {4, 12, 0, 1}, {20, 0, 1, 5}, {5, 15, 1, 0}, false},         /* batches interleaved */
        {1, 1, 6, 10, {0, 0, 0, 1}, {0, 0, 1, 6}, {0, 0, 1, 0}, false},           /* a vector by a matrix */
        {1, 6, 1, 10, {0, 10, 0, 1}, {0, 0, 0, 1}, {0, 1, 0, 0}, true},           /* a matrix by a vector */
        {1, 6, 5, 0, {0, 0, 0, 1}, {0, 0, 0, 1}, {0, 5, 1, 0}, false},            /* an empty sum: see below */
    };
    for (size_t i = 0; i + 1 < sizeof products / sizeof *products; i++) check_product(&products[i]);

    Kernel empty;
    build_product(&empty, &products[sizeof products / sizeof *products - 1]);
    float result[30], bias[5] = {1, 2, 3, 4, 5};
    assert_true(kernel_interpret(&empty, (void *[]){NULL, NULL, result, bias}));
    for (int i = 0; i < 30; i++) assert_true(result[i] == bias[i % 5]);
}

static void row_dots_are_no_matrix_product(void **state)
{
    (void)state;
    Kernel kernel;
    kernel_begin(&kernel, "dots", 2, EXTENT(4, 10));
    int a = kernel_operand(&kernel, DTYPE_F32, STRIDE(10, 1)), b = kernel_operand(&kernel, DTYPE_F32, STRIDE(10, 1));
    int c = kernel_operand(&kernel, DTYPE_F32, STRIDE(1, 0));
    Register left = kernel_load(&kernel, a), right = kernel_load(&kernel, b);
    Register sum = kernel_reduce(&kernel, KERNEL_SUM, kernel_binary(&kernel, KERNEL_MULTIPLY, left, right));
    kernel_begin_phase(&kernel, false);
    kernel_store(&kernel, c, sum);
    finish(&kernel);
    assert_int_equal(kernel_classify(&kernel), KERNEL_CLASS_LOOP);
    assert_true(kernel_bytes(&kernel) == 4 * (40 + 40 + 4));
}

/* table[index[i]][h] += rows[i][h]; a repeated index adds twice. */
static void build_scatter(Kernel *kernel, int64_t classes)
{
    kernel_begin(kernel, "scatter", 2, EXTENT(2, 4));
    int index = kernel_operand(kernel, DTYPE_I32, STRIDE(0, 1)), rows = kernel_operand(kernel, DTYPE_F32, STRIDE(1, 2));
    int table = kernel_operand(kernel, DTYPE_F32, STRIDE(1, 0));
    Register row = kernel_load(kernel, index), width = kernel_constant_integer(kernel, 2);
    Register offset = kernel_binary(kernel, KERNEL_MULTIPLY, row, width);
    kernel_store_add_at(kernel, table, kernel_load(kernel, rows), offset, classes * 2);
    finish(kernel);
}

static void scatters_add_in_order_and_check_bounds(void **state)
{
    (void)state;
    Kernel kernel;
    build_scatter(&kernel, 3);
    assert_int_equal(kernel.axis_count, 2);
    assert_int_equal(kernel_classify(&kernel), KERNEL_CLASS_SCATTER);
    float rows[8] = {1, 2, 3, 4, 5, 6, 7, 8}, table[6] = {0.5f};
    assert_true(kernel_interpret(&kernel, (void *[]){(int32_t[]){2, 0, 2, 1}, rows, table}));
    assert_memory_equal(table, ((float[]){3.5f, 4, 7, 8, 6, 8}), sizeof table);
    assert_false(kernel_interpret(&kernel, (void *[]){(int32_t[]){2, 0, 3, 1}, rows, table}));
    assert_false(kernel_interpret(&kernel, (void *[]){(int32_t[]){2, -1, 2, 1}, rows, table}));
}

static int64_t integer_of(KernelOp op, int64_t a, int64_t b)
{
    Kernel kernel;
    kernel_begin(&kernel, "binary", 1, EXTENT(1));
    int x = kernel_operand(&kernel, DTYPE_I64, STRIDE(1)), y = kernel_operand(&kernel, DTYPE_I64, STRIDE(1));
    int z = kernel_operand(&kernel, DTYPE_I64, STRIDE(1));
    Register left = kernel_load(&kernel, x), right = kernel_load(&kernel, y);
    kernel_store(&kernel, z, kernel_convert(&kernel, DTYPE_I64, kernel_binary(&kernel, op, left, right)));
    finish(&kernel);
    int64_t result = -1;
    assert_true(kernel_interpret(&kernel, (void *[]){&a, &b, &result}));
    return result;
}

static void integer_arithmetic_has_no_undefined_case(void **state)
{
    (void)state;
    assert_int_equal(integer_of(KERNEL_DIVIDE, -7, 2), -3);
    assert_int_equal(integer_of(KERNEL_DIVIDE, 7, 0), 0);
    assert_int_equal(integer_of(KERNEL_DIVIDE, INT64_MIN, -1), INT64_MIN);
    assert_int_equal(integer_of(KERNEL_REMAINDER, -7, 3), 2);
    assert_int_equal(integer_of(KERNEL_REMAINDER, 7, -3), -2);
    assert_int_equal(integer_of(KERNEL_REMAINDER, 6, -3), 0);
    assert_int_equal(integer_of(KERNEL_REMAINDER, 7, 0), 0);
    assert_int_equal(integer_of(KERNEL_REMAINDER, INT64_MIN, -1), 0);
    assert_int_equal(integer_of(KERNEL_POWER, 3, 4), 81);
    assert_int_equal(integer_of(KERNEL_POWER, -1, -3), -1);
    assert_int_equal(integer_of(KERNEL_POWER, 2, -1), 0);
    assert_int_equal(integer_of(KERNEL_ADD, INT64_MAX, 1), INT64_MIN);
    assert_int_equal(integer_of(KERNEL_LESS, 1, 2), 1);
    assert_int_equal(integer_of(KERNEL_EQUAL, (int64_t)1 << 53, ((int64_t)1 << 53) + 1), 0);
}

static int64_t converted(double number, DType to)
{
    Kernel kernel;
    kernel_begin(&kernel, "convert", 1, EXTENT(1));
    int x = kernel_operand(&kernel, DTYPE_F64, STRIDE(1)), y = kernel_operand(&kernel, DTYPE_I64, STRIDE(1));
    Register value = kernel_convert(&kernel, to, kernel_load(&kernel, x));
    kernel_store(&kernel, y, value);
    finish(&kernel);
    int64_t result = -1;
    assert_true(kernel_interpret(&kernel, (void *[]){&number, &result}));
    return result;
}

static void conversions_truncate_and_saturate(void **state)
{
    (void)state;
    assert_int_equal(converted(-2.9, DTYPE_I64), -2);
    assert_int_equal(converted(1e30, DTYPE_I64), INT64_MAX);
    assert_int_equal(converted(-1e30, DTYPE_I64), INT64_MIN);
    assert_int_equal(converted((double)NAN, DTYPE_I64), 0);
    assert_int_equal(converted(16777217, DTYPE_F32), 16777216);
    assert_int_equal(converted(0.5, DTYPE_BOOL), 1);
}

static void nan_wins_over_extremes(void **state)
{
    (void)state;
    Kernel kernel;
    kernel_begin(&kernel, "extremes", 1, EXTENT(3));
    int x = kernel_operand(&kernel, DTYPE_F32, STRIDE(1)), low = kernel_operand(&kernel, DTYPE_F32, STRIDE(0));
    int high = kernel_operand(&kernel, DTYPE_F32, STRIDE(0));
    Register value = kernel_load(&kernel, x);
    Register minimum = kernel_reduce(&kernel, KERNEL_MINIMUM_OF, value);
    Register maximum = kernel_reduce(&kernel, KERNEL_MAXIMUM_OF, value);
    kernel_begin_phase(&kernel, false);
    kernel_store(&kernel, low, minimum);
    kernel_store(&kernel, high, maximum);
    finish(&kernel);
    float least, most;
    assert_true(kernel_interpret(&kernel, (void *[]){(float[]){2, -3, 1}, &least, &most}));
    assert_true(least == -3 && most == 2);
    assert_true(kernel_interpret(&kernel, (void *[]){(float[]){2, NAN, 1}, &least, &most}));
    assert_true(isnan(least) && isnan(most));
}

static void printing_is_stable(void **state)
{
    (void)state;
    Kernel kernel;
    build_scatter(&kernel, 3);
    FREED_WITH(buffer_free) Buffer buffer = {0};
    kernel_print(&kernel, &buffer);
    assert_string_equal(buffer_text(&buffer), "kernel scatter [2,4]\n"
                                              "  operand0 i32 read (0,1)\n"
                                              "  operand1 f32 read (1,2)\n"
                                              "  operand2 f32 read written (1,0) of 6\n"
                                              "  inner\n"
                                              "    r1 = load.i64 operand0\n"
                                              "    r2 = constant.i64 2\n"
                                              "    r3 = multiply.i64 r1 r2\n"
                                              "    r4 = load.f32 operand1\n"
                                              "    store_add operand2[+r3] r4\n");
}

/* sums[column] += sum over rows of a[row][column] * b[row]; `store`: instead of adding to them. */
static Kernel column_sums(int64_t columns, int64_t rows, bool store, bool twice)
{
    Kernel kernel;
    kernel_begin(&kernel, "column sums", 2, EXTENT(columns, rows));
    Register a = kernel_load(&kernel, kernel_operand(&kernel, DTYPE_F32, STRIDE(1, columns)));
    Register b = kernel_load(&kernel, kernel_operand(&kernel, DTYPE_F32, STRIDE(0, 1)));
    Register sum = kernel_reduce(&kernel, KERNEL_SUM, kernel_binary(&kernel, KERNEL_MULTIPLY, a, b));
    int sums = kernel_operand(&kernel, DTYPE_F32, STRIDE(1, 0));
    kernel_begin_phase(&kernel, false);
    if (twice) sum = kernel_binary(&kernel, KERNEL_ADD, sum, sum);
    (store ? kernel_store : kernel_store_add)(&kernel, sums, sum);
    finish(&kernel);
    return kernel;
}

static void sums_are_cut_into_parts(void **state)
{
    (void)state;
    enum { COLUMNS = 5, ROWS = 24, PARTS = 4, APART = 7 };
    float a[ROWS * COLUMNS], b[ROWS], sums[COLUMNS] = {0}, parts[PARTS * APART];
    for (int i = 0; i < ROWS * COLUMNS; i++) a[i] = (float)(i % 11 - 5);
    for (int i = 0; i < ROWS; i++) b[i] = (float)(i % 7 - 3);
    for (int i = 0; i < PARTS * APART; i++) parts[i] = 1000;
    Kernel whole = column_sums(COLUMNS, ROWS, false, false), cut = whole;
    assert_true(kernel_cut_sum(&cut, PARTS, APART));
    kernel_verify(&cut);
    assert_int_equal(cut.axis_count, 3);
    assert_int_equal(cut.extent[0], PARTS);
    assert_true(kernel_interpret(&whole, (void *[]){a, b, sums}));
    assert_true(kernel_interpret(&cut, (void *[]){a, b, parts}));
    for (int c = 0; c < COLUMNS; c++) {
        float sum = 0;
        for (int p = 0; p < PARTS; p++) sum += parts[p * APART + c];
        assert_float_equal(sum, sums[c], 0);
    }
    for (int p = 0; p < PARTS; p++) assert_float_equal(parts[p * APART + COLUMNS], 1000, 0); /* nothing in between */

    Kernel others[] = {column_sums(COLUMNS, ROWS + 1, false, false), column_sums(COLUMNS, ROWS, true, false),
                       column_sums(COLUMNS, ROWS, false, true)};
    for (int i = 0; i < 3; i++) {
        Hash before = kernel_hash(&others[i]);
        assert_false(kernel_cut_sum(&others[i], PARTS, APART));
        assert_memory_equal(&before, &(Hash[]){kernel_hash(&others[i])}, sizeof before);
    }
}

/* Runs the kernel, which was cut to one of `lines` lines, for each of them. */
static void run_lines(const Kernel *cut, int lines, void *const *whole)
{
    for (int line = 0; line < lines; line++) {
        void *operands[KERNEL_MAX_OPERANDS];
        for (int i = 0; i < cut->operand_count; i++) {
            const KernelOperand *operand = &cut->operands[i];
            int64_t moved = line * kernel_inner_extent(cut) * operand->stride[cut->axis_count - 1];
            operands[i] = (char *)whole[i] + moved * (int64_t)dtype_size(operand->dtype);
        }
        assert_true(kernel_interpret(cut, operands));
    }
}

static void sums_run_line_by_line(void **state)
{
    (void)state;
    enum { COLUMNS = 5, ROWS = 24, LINES = 3 };
    float a[ROWS * COLUMNS], b[ROWS];
    for (int i = 0; i < ROWS * COLUMNS; i++) a[i] = (float)(i % 11 - 5);
    for (int i = 0; i < ROWS; i++) b[i] = (float)(i % 7 - 3);
    for (int twice = 0; twice < 2; twice++) {
        float sums[COLUMNS] = {1, 2, 3}, by_lines[COLUMNS] = {1, 2, 3};
        Kernel whole = column_sums(COLUMNS, ROWS, false, twice), cut = whole;
        assert_true(kernel_cut_lines(&cut, LINES));
        kernel_verify(&cut);
        assert_int_equal(cut.extent[1], ROWS / LINES);
        assert_true(kernel_interpret(&whole, (void *[]){a, b, sums}));
        run_lines(&cut, LINES, (void *[]){a, b, by_lines});
        assert_memory_equal(sums, by_lines, sizeof sums);
    }
    Kernel scatter, scatter_line;
    build_scatter(&scatter, 3);
    scatter_line = scatter;
    int32_t rows[4] = {2, 0, 2, 1};
    float updates[8] = {1, 2, 3, 4, 5, 6, 7, 8}, sums[6] = {0}, by_lines[6] = {0};
    assert_true(kernel_cut_lines(&scatter_line, 2));
    assert_true(kernel_interpret(&scatter, (void *[]){rows, updates, sums}));
    run_lines(&scatter_line, 2, (void *[]){rows, updates, by_lines});
    assert_memory_equal(sums, by_lines, sizeof sums);
}

/* What is stored has to be made 0 and added to; what sums are part of otherwise cannot be had line by line. */
static void stored_sums_are_added(void **state)
{
    (void)state;
    enum { COLUMNS = 5, ROWS = 24, LINES = 3 };
    float a[ROWS * COLUMNS], b[ROWS], sums[COLUMNS], by_lines[COLUMNS] = {NAN, NAN, NAN, NAN, NAN};
    for (int i = 0; i < ROWS * COLUMNS; i++) a[i] = (float)(i % 11 - 5);
    for (int i = 0; i < ROWS; i++) b[i] = (float)(i % 7 - 3);
    Kernel whole = column_sums(COLUMNS, ROWS, true, true), adding = whole, fill, square = whole, largest = whole,
           rest = whole;
    assert_false(kernel_cut_lines(&rest, LINES));
    int stored = kernel_add_sums(&adding, &fill);
    assert_int_equal(stored, 2);
    kernel_verify(&adding);
    finish(&fill);
    assert_true(kernel_cut_lines(&adding, LINES));
    assert_true(kernel_interpret(&whole, (void *[]){a, b, sums}));
    assert_true(kernel_interpret(&fill, (void *[]){by_lines}));
    run_lines(&adding, LINES, (void *[]){a, b, by_lines});
    assert_memory_equal(sums, by_lines, sizeof sums);

    Kernel uneven = column_sums(COLUMNS, ROWS + 1, false, false);
    assert_false(kernel_cut_lines(&uneven, LINES));
    square.instructions[square.instruction_count - 2].op = KERNEL_MULTIPLY; /* the sum with itself */
    assert_true(kernel_add_sums(&square, &fill) >= 0);
    assert_false(kernel_cut_lines(&square, LINES));
    for (int i = 0; i < largest.instruction_count; i++)
        if (largest.instructions[i].op == KERNEL_SUM) largest.instructions[i].op = KERNEL_MAXIMUM_OF;
    assert_true(kernel_add_sums(&largest, &fill) >= 0);
    assert_false(kernel_cut_lines(&largest, LINES));
}

/* y = f(x) with x from zeros; whether zeros could become divisors. */
static bool bears(Kernel *kernel, KernelSign *sign)
{
    KernelZeros operands[2] = {{true, SIGN_NOT_NEGATIVE}, {0}};
    bool bears = kernel_bears_zeros(kernel, operands);
    assert_true(!bears || operands[1].from_zeros);
    *sign = operands[1].sign;
    return bears;
}

static Register begin_row(Kernel *kernel)
{
    kernel_begin(kernel, "row", 2, EXTENT(2, 8));
    kernel_operand(kernel, DTYPE_F32, STRIDE(8, 1));
    kernel_operand(kernel, DTYPE_F32, STRIDE(8, 1));
    return kernel_load(kernel, 0);
}

/* x / sqrt(sum of x^2 + epsilon), or without it. */
static bool norm_bears(double epsilon)
{
    Kernel kernel;
    KernelSign sign;
    Register x = begin_row(&kernel), sum = kernel_reduce(&kernel, KERNEL_SUM, kernel_multiply(&kernel, x, x));
    kernel_begin_phase(&kernel, false);
    Register more = kernel_constant_like(&kernel, sum, epsilon);
    Register root = kernel_unary(&kernel, KERNEL_SQRT, kernel_add(&kernel, sum, more));
    kernel_begin_phase(&kernel, true);
    x = kernel_load(&kernel, 0);
    kernel_store(&kernel, 1, kernel_binary(&kernel, KERNEL_DIVIDE, x, root));
    return bears(&kernel, &sign);
}

/* What is decoded of zeros, or encoded, is from zeros. */
static void codings_hand_zeros_on(void **state)
{
    (void)state;
    for (int from = 0; from < 2; from++) {
        Kernel kernel;
        KernelZeros operands[2] = {{from == 0, SIGN_NOT_NEGATIVE}, {from == 1, SIGN_NOT_NEGATIVE}};
        kernel_begin(&kernel, "coding", 2, EXTENT(2, 8));
        int row = kernel_operand(&kernel, DTYPE_F32, STRIDE(8, 1)),
            bytes = kernel_operand(&kernel, DTYPE_U8, STRIDE(12, 0));
        if (from == 0)
            kernel_encode(&kernel, CODEC_Q8, row, bytes, 0, 0);
        else
            kernel_decode(&kernel, CODEC_Q8, row, bytes);
        assert_true(kernel_bears_zeros(&kernel, operands));
        assert_true(operands[!from].from_zeros && operands[!from].sign == SIGN_ANY);
    }
}

static void zeros_may_become_divisors(void **state)
{
    (void)state;
    Kernel kernel;
    KernelSign sign;
    assert_true(norm_bears(1e-6));
    assert_false(norm_bears(0));
    Register x = begin_row(&kernel), sum = kernel_reduce(&kernel, KERNEL_SUM, kernel_unary(&kernel, KERNEL_EXP, x));
    kernel_begin_phase(&kernel, true);
    x = kernel_load(&kernel, 0);
    Register share = kernel_binary(&kernel, KERNEL_DIVIDE, kernel_unary(&kernel, KERNEL_EXP, x), sum);
    kernel_store(&kernel, 1, share); /* softmax */
    assert_true(bears(&kernel, &sign) && sign == SIGN_POSITIVE);
    static const KernelOp harmful[] = {KERNEL_LOG, KERNEL_RECIPROCAL};
    for (int i = 0; i < 2; i++) {
        x = begin_row(&kernel);
        kernel_store(&kernel, 1, kernel_unary(&kernel, harmful[i], x));
        assert_false(bears(&kernel, &sign));
    }
    static const struct {
        double exponent;
        bool bears, bears_negative;
    } powers[] = {{-0.5, false, false}, {0.5, true, false}, {3, true, true}};
    for (int i = 0; i < 6; i++) {
        x = begin_row(&kernel);
        if (i % 2) x = kernel_unary(&kernel, KERNEL_NEGATE, x);
        kernel_store(&kernel, 1,
                     kernel_binary(&kernel, KERNEL_POWER, x, kernel_constant_like(&kernel, x, powers[i / 2].exponent)));
        assert_true(bears(&kernel, &sign) == (i % 2 ? powers[i / 2].bears_negative : powers[i / 2].bears));
    }
    x = begin_row(&kernel);
    kernel_store(&kernel, 1, kernel_unary(&kernel, KERNEL_SQRT, kernel_unary(&kernel, KERNEL_NEGATE, x)));
    assert_false(bears(&kernel, &sign));
    x = begin_row(&kernel);
    kernel_store(&kernel, 1, kernel_unary(&kernel, KERNEL_NEGATE, x));
    assert_true(bears(&kernel, &sign) && sign == SIGN_ANY);
}

/* c += a b, of bf16 factors; `scale`: what is added is twice that. */
static Kernel adding_product(int64_t rows, int64_t depth, bool scale)
{
    enum { COLUMNS = 5 };
    Kernel kernel;
    kernel_begin(&kernel, "product", 3, EXTENT(rows, COLUMNS, depth));
    Register a = kernel_load(&kernel, kernel_operand(&kernel, DTYPE_BF16, STRIDE(1, 0, rows)));
    Register b = kernel_load(&kernel, kernel_operand(&kernel, DTYPE_F32, STRIDE(0, 1, COLUMNS)));
    Register sum = kernel_reduce(&kernel, KERNEL_SUM, kernel_binary(&kernel, KERNEL_MULTIPLY, a, b));
    kernel_begin_phase(&kernel, false);
    if (scale) sum = kernel_binary(&kernel, KERNEL_ADD, sum, sum);
    kernel_store_add(&kernel, kernel_operand(&kernel, DTYPE_F32, STRIDE(COLUMNS, 1, 0)), sum);
    finish(&kernel);
    return kernel;
}

/* To a limit, a product is that of so many products, and reads nothing else. */
static void sums_of_products_are_limited(void **state)
{
    (void)state;
    enum { ROWS = 4, COLUMNS = 5, DEPTH = 7, LIMIT = 3 };
    uint16_t a[ROWS * DEPTH];
    float b[DEPTH * COLUMNS], until[ROWS * COLUMNS], shorter[ROWS * COLUMNS];
    for (int i = 0; i < ROWS * DEPTH; i++) a[i] = i < ROWS * LIMIT ? (uint16_t)(0x3f80 + 8 * i) : 0xffff;
    for (int i = 0; i < DEPTH * COLUMNS; i++) b[i] = i < LIMIT * COLUMNS ? (float)(i % 11 - 5) : NAN;
    for (int i = 0; i < ROWS * COLUMNS; i++) until[i] = shorter[i] = (float)i;
    Kernel limited = adding_product(ROWS, DEPTH, false), whole = limited, less = adding_product(ROWS, LIMIT, false);
    assert_true(kernel_limit_sum(&limited));
    kernel_verify(&limited);
    assert_memory_not_equal(&(Hash[]){kernel_hash(&whole)}, &(Hash[]){kernel_hash(&limited)}, sizeof(Hash));
    assert_true(kernel_interpret_until(&limited, (void *[]){a, b, until}, LIMIT));
    assert_true(kernel_interpret(&less, (void *[]){a, b, shorter}));
    assert_memory_equal(until, shorter, sizeof until);
    assert_true(kernel_interpret_until(&whole, (void *[]){a, b, until}, LIMIT));
    assert_true(isnan(until[0]));

    Kernel others[] = {adding_product(ROWS - 1, DEPTH, false), adding_product(ROWS, DEPTH, true),
                       column_sums(COLUMNS, DEPTH, false, false)};
    for (int i = 0; i < 3; i++) assert_true(!kernel_limit_sum(&others[i]) && !others[i].limited);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_cut_into_parts),
        cmocka_unit_test(sums_run_line_by_line),
        cmocka_unit_test(stored_sums_are_added),
        cmocka_unit_test(sums_of_products_are_limited),
        cmocka_unit_test(equal_computations_get_equal_hashes),
        cmocka_unit_test(zeros_may_become_divisors),
        cmocka_unit_test(codings_hand_zeros_on),
        cmocka_unit_test(axes_whose_index_is_read_stay),
        cmocka_unit_test(softmax_in_three_phases),
        cmocka_unit_test(matrix_products_of_every_layout),
        cmocka_unit_test(row_dots_are_no_matrix_product),
        cmocka_unit_test(scatters_add_in_order_and_check_bounds),
        cmocka_unit_test(integer_arithmetic_has_no_undefined_case),
        cmocka_unit_test(conversions_truncate_and_saturate),
        cmocka_unit_test(nan_wins_over_extremes),
        cmocka_unit_test(printing_is_stable),
    };
    return cmocka_run_group_tests_name("kernel", tests, NULL, NULL);
}
