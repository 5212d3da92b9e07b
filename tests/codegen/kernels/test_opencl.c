/* Kernels on an OpenCL device against the interpreter: every instruction on every type of register, elements of every
 * type, and each class of kernels. Drivers take long for each kernel, so one kernel has many instructions. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/codegen/kernels/kernel_check.h"

static const int64_t dense[] = {1};

static void begin(int64_t elements) { kernel_begin(&kernel, "many", 1, (int64_t[]){elements}); }

static void store(Register r) { kernel_store(&kernel, kernel_operand(&kernel, kernel_type(&kernel, r), dense), r); }

/* Extremes, infinities and NaN; at places 0 and 1 mod 4 ordinary numbers. */
static void fill_special(const Kernel *k, int operand, int64_t elements, void *data)
{
    static const double reals[] = {0, -0.0, 1, -1, INFINITY, -INFINITY, NAN, 1e30, -1e30, 88.9, -104, 3};
    static const int64_t integers[] = {0, 1, -1, 2, -3, 7, INT64_MAX, INT64_MIN, 63, -64};
    DType dtype = k->operands[operand].dtype;
    fill_random(k, operand, elements, data);
    for (int64_t i = 0; i < elements; i++)
        if (i % 4 < 2)
            continue;
        else if (dtype_is_float(dtype))
            element_store_double(dtype, data, i, reals[draw(12)]);
        else if (dtype == DTYPE_I64)
            element_store_integer(dtype, data, i, integers[draw(10)]);
}

static bool has(KernelOp op, DType type)
{
    bool boolean = op == KERNEL_NOT || op == KERNEL_AND || op == KERNEL_OR;
    if (boolean || type == DTYPE_BOOL) return boolean == (type == DTYPE_BOOL) || op == KERNEL_EQUAL;
    if (op == KERNEL_MULTIPLY_BF16 || op == KERNEL_MULTIPLY_BF16X3) return type == DTYPE_F32;
    return type != DTYPE_I64 || op < KERNEL_EXP || op > KERNEL_NORMAL_DENSITY;
}

static void instructions(void **state)
{
    (void)state;
    static const DType types[] = {DTYPE_F32, DTYPE_F64, DTYPE_I64, DTYPE_BOOL};
    for (int t = 0; t < 4; t++)
        for (int binary = 0; binary < 2; binary++) {
            begin(1003);
            Register a = kernel_load(&kernel, kernel_operand(&kernel, types[t], dense));
            Register b = binary ? kernel_load(&kernel, kernel_operand(&kernel, types[t], dense)) : 0;
            for (int op = binary ? KERNEL_ADD : KERNEL_NEGATE; op <= (binary ? KERNEL_OR : KERNEL_IS_NAN); op++) {
                if (!has((KernelOp)op, types[t]) || op == KERNEL_SIN || op == KERNEL_COS) continue; /* of 1e30 */
                store(binary ? kernel_binary(&kernel, (KernelOp)op, a, b) : kernel_unary(&kernel, (KernelOp)op, a));
            }
            for (int to = 0; to < 4 && !binary; to++)
                if (to != t) store(kernel_convert(&kernel, types[to], a));
            if (binary && types[t] == DTYPE_F32) {
                store(kernel_select(&kernel, kernel_binary(&kernel, KERNEL_LESS, a, b), a, b));
                store(kernel_unary(&kernel, KERNEL_SIN, b));
            }
            check_filled(&kernel, 1e-5, fill_special);
        }
}

/* Each type is read and written, half of them also added to. */
static void element_types(void **state)
{
    (void)state;
    static const DType types[] = {DTYPE_F16, DTYPE_BF16, DTYPE_I32, DTYPE_I8,  DTYPE_U8,
                                  DTYPE_I16, DTYPE_U16,  DTYPE_U32, DTYPE_U64, DTYPE_BOOL};
    begin(64);
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        Register x = kernel_load(&kernel, kernel_operand(&kernel, types[t], dense));
        int out = kernel_operand(&kernel, types[t], dense);
        if (t % 2 && types[t] != DTYPE_BOOL)
            kernel_store_add(&kernel, out, x);
        else
            kernel_store(&kernel, out, x);
    }
    Register eighths = kernel_load(&kernel, kernel_operand(&kernel, DTYPE_Q8, dense));
    Register quarters = kernel_load(&kernel, kernel_operand(&kernel, DTYPE_Q4, dense));
    store(kernel_binary(&kernel, KERNEL_ADD, eighths, quarters));
    check(&kernel);
}

/* Rows: reductions, scalar phases, and what a phase stored read again. */
static void rows(void **state)
{
    (void)state;
    build_softmax(13, 37);
    check(&kernel);
    static const KernelOp reductions[] = {KERNEL_SUM, KERNEL_PRODUCT, KERNEL_MAXIMUM_OF, KERNEL_MINIMUM_OF};
    int64_t extent[] = {3, 5, 19}, in[] = {95, 1, 5}, out[] = {5, 1, 0};
    kernel_begin(&kernel, "reductions", 3, extent);
    Register x = kernel_load(&kernel, kernel_operand(&kernel, DTYPE_F32, in)), results[8];
    Register n = kernel_load(&kernel, kernel_operand(&kernel, DTYPE_I64, in));
    for (int i = 0; i < 8; i++) results[i] = kernel_reduce(&kernel, reductions[i % 4], i < 4 ? x : n);
    kernel_begin_phase(&kernel, false);
    for (int i = 0; i < 8; i++)
        kernel_store_add(&kernel, kernel_operand(&kernel, kernel_type(&kernel, results[i]), out), results[i]);
    check(&kernel);
}

/* Indices from a tensor; every row of the table is hit several times. */
static void gather_and_scatter(void **state)
{
    (void)state;
    int64_t extent[] = {11, 50}, column[] = {1, 0}, index[] = {0, 1}, value[] = {1, 11};
    for (int scatter = 0; scatter < 2; scatter++) {
        kernel_begin(&kernel, scatter ? "scatter" : "gather", 2, extent);
        Register at = kernel_load(&kernel, kernel_operand(&kernel, DTYPE_I64, index));
        at = kernel_binary(&kernel, KERNEL_MULTIPLY, at, kernel_constant_integer(&kernel, 11));
        int table = kernel_operand(&kernel, DTYPE_F32, column), values = kernel_operand(&kernel, DTYPE_F32, value);
        if (scatter)
            kernel_store_add_at(&kernel, table, kernel_load(&kernel, values), at, 77);
        else
            kernel_store(&kernel, values, kernel_load_at(&kernel, table, at, 77));
        check(&kernel);
    }
}

/* Dropout's numbers are the same bits everywhere. */
static void random_numbers(void **state)
{
    (void)state;
    int64_t extent[] = {9, 70}, stride[] = {70, 1};
    kernel_begin(&kernel, "random", 2, extent);
    int out = kernel_operand(&kernel, DTYPE_BOOL, stride);
    Register key = kernel_constant_integer(&kernel, 0x123456789abcdef), first = kernel_constant_integer(&kernel, 8589);
    Register bound = kernel_constant_integer(&kernel, 30000);
    kernel_store(&kernel, out, kernel_random(&kernel, out, key, first, bound));
    check(&kernel);
}

/* C[b][m][n] += A[b][m][k] B[b][k][n], perhaps by an activation; extents that no tile divides. */
static void check_product(bool activated)
{
    int64_t m = 70, n = 75, k = 37, extent[] = {2, m, n, k};
    int64_t a[] = {m * k, k, 0, 1}, b[] = {k * n, 0, 1, n}, c[] = {m * n, n, 1, 0};
    kernel_begin(&kernel, "product", 4, extent);
    Register x = kernel_load(&kernel, kernel_operand(&kernel, DTYPE_F32, a));
    Register y = kernel_load(&kernel, kernel_operand(&kernel, DTYPE_F32, b));
    Register sum = kernel_reduce(&kernel, KERNEL_SUM, kernel_binary(&kernel, KERNEL_MULTIPLY, x, y));
    kernel_begin_phase(&kernel, false);
    if (activated) sum = kernel_unary(&kernel, KERNEL_TANH, sum);
    kernel_store_add(&kernel, kernel_operand(&kernel, DTYPE_F32, c), sum);
    KernelGemm gemm;
    assert_true(kernel_match_gemm(&kernel, &gemm));
    check(&kernel);
}

static void products(void **state)
{
    (void)state;
    check_product(true);
    check_product(false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(instructions),   cmocka_unit_test(element_types),
                                       cmocka_unit_test(rows),           cmocka_unit_test(gather_and_scatter),
                                       cmocka_unit_test(random_numbers), cmocka_unit_test(products)};
    return check_run_on_opencl(tests, sizeof tests / sizeof *tests);
}
