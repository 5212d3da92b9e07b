/* Compiled kernels against the interpreter, whole and in pieces. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "codegen/codegen.h"

static Target target;
static Diagnostics diagnostics;
static uint64_t seed = 1;

static uint32_t draw(uint32_t limit)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33) % limit;
}

static double draw_real(void) { return (double)draw(1u << 24) / (1 << 23) - 1; }

/* Elements of operand `i` that the kernel may touch. */
static int64_t operand_elements(const Kernel *kernel, int i)
{
    const KernelOperand *operand = &kernel->operands[i];
    int64_t last = 0;
    for (int axis = 0; axis < kernel->axis_count; axis++) {
        if (kernel->extent[axis] > 0) last += (kernel->extent[axis] - 1) * operand->stride[axis];
    }
    return (operand->elements ? operand->elements : 1) + last;
}

typedef struct Operands {
    int count;
    size_t bytes[KERNEL_MAX_OPERANDS];
    void *data[KERNEL_MAX_OPERANDS];
} Operands;

typedef void Fill(const Kernel *kernel, int operand, int64_t elements, void *data);

static void fill_random(const Kernel *kernel, int operand, int64_t elements, void *data)
{
    DType dtype = kernel->operands[operand].dtype;
    for (int64_t i = 0; i < elements; i++) {
        if (dtype_is_float(dtype))
            element_store_double(dtype, data, i, draw_real());
        else if (dtype == DTYPE_BOOL)
            element_store_integer(dtype, data, i, draw(2));
        else
            element_store_integer(dtype, data, i, draw(7));
    }
}

static Operands operands_new(const Kernel *kernel, Fill *fill)
{
    Operands operands = {.count = kernel->operand_count};
    for (int i = 0; i < kernel->operand_count; i++) {
        int64_t elements = operand_elements(kernel, i);
        operands.bytes[i] = (size_t)elements * dtype_size(kernel->operands[i].dtype);
        operands.data[i] = memory_allocate(operands.bytes[i] + 1);
        fill(kernel, i, elements, operands.data[i]);
    }
    return operands;
}

static Operands operands_copy(const Operands *operands)
{
    Operands copy = *operands;
    for (int i = 0; i < copy.count; i++) {
        copy.data[i] = memory_allocate(copy.bytes[i] + 1);
        memcpy(copy.data[i], operands->data[i], copy.bytes[i]);
    }
    return copy;
}

static void operands_free(Operands *operands)
{
    for (int i = 0; i < operands->count; i++) free(operands->data[i]);
}

static void run_compiled(const CompiledKernel *compiled, SkyKernel *function, Operands *operands, bool split)
{
    char *raw = memory_allocate(compiled->scratch_bytes + 64);
    void *scratch = (void *)(((uintptr_t)raw + 63) & ~(uintptr_t)63);
    if (!split) {
        function(operands->data, 0, compiled->units, scratch);
    } else { /* backwards, in pieces */
        for (int64_t end = compiled->units; end > 0;) {
            int64_t begin = end - 1 - draw(end < 9 ? (uint32_t)end : 9);
            if (begin < 0) begin = 0;
            function(operands->data, begin, end, scratch);
            end = begin;
        }
    }
    free(raw);
}

static void compare(const Kernel *kernel, const Operands *expected, const Operands *found, double tolerance)
{
    for (int i = 0; i < kernel->operand_count; i++) {
        DType dtype = kernel->operands[i].dtype;
        int64_t elements = operand_elements(kernel, i);
        double largest = 1e-30;
        for (int64_t k = 0; k < elements; k++) {
            double value = fabs(element_as_double(dtype, expected->data[i], k));
            if (isfinite(value) && value > largest) largest = value;
        }
        for (int64_t k = 0; k < elements; k++) {
            double a = element_as_double(dtype, expected->data[i], k), b = element_as_double(dtype, found->data[i], k);
            if ((isnan(a) && isnan(b)) || a == b) continue;
            double bound = dtype_is_float(dtype) ? tolerance * (fabs(a) + 0.1 * largest) : 0;
            if (dtype == DTYPE_BF16) bound += 0.01 * fabs(a);
            if (dtype == DTYPE_F16) bound += 0.001 * fabs(a);
            if (!(fabs(a - b) <= bound)) {
                Buffer text = {0};
                kernel_print(kernel, &text);
                fail_msg("%s\noperand %d, element %lld: expected %.9g, found %.9g", buffer_text(&text), i, (long long)k,
                         a, b);
            }
        }
    }
}

static void check_filled(const Kernel *kernel, double tolerance, Fill *fill)
{
    kernel_verify(kernel);
    const Kernel *list[] = {kernel};
    CompiledKernels *compiled = codegen_compile(list, 1, &target, (CodegenOptions){0}, &diagnostics);
    assert_non_null(compiled);
    JitProgram *jit = jit_load(compiled, &diagnostics);
    assert_non_null(jit);
    const CompiledKernel *code = codegen_find(compiled, kernel);
    assert_non_null(code);
    Operands interpreted = operands_new(kernel, fill);
    Operands whole = operands_copy(&interpreted), split = operands_copy(&interpreted);
    assert_true(kernel_interpret(kernel, interpreted.data));
    run_compiled(code, jit_find(jit, code), &whole, false);
    run_compiled(code, jit_find(jit, code), &split, true);
    compare(kernel, &interpreted, &whole, tolerance);
    for (int i = 0; i < whole.count; i++) assert_memory_equal(whole.data[i], split.data[i], whole.bytes[i]);
    operands_free(&interpreted);
    operands_free(&whole);
    operands_free(&split);
    jit_free(jit);
    codegen_free(compiled);
}

static void check(const Kernel *kernel) { check_filled(kernel, 1e-5, fill_random); }

/* --- Elementwise ----------------------------------------------------------------------------------------------------
 */

static Kernel kernel;

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

/* --- Accuracy of elementary functions --------------------------------------------------------------------------------
 */

static double ulp_error(float found, double exact)
{
    float rounded = (float)exact;
    if (isnan(exact) || isnan(found)) return isnan(exact) == isnan(found) ? 0 : INFINITY;
    if (rounded == found) return 0;
    if (!isfinite(rounded) || !isfinite(found)) return INFINITY;
    double unit = (double)(nextafterf(fabsf(rounded), INFINITY) - fabsf(rounded));
    return fabs((double)found - exact) / unit;
}

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

/* A sample of all floats, of every sign and exponent. */
static void check_accuracy(KernelOp op, double (*exact)(double), double most_ulps)
{
    enum { COUNT = 1 << 20 };
    int64_t extent[] = {COUNT}, stride[] = {1};
    kernel_begin(&kernel, "accuracy", 1, extent);
    Register x = kernel_load(&kernel, kernel_operand(&kernel, DTYPE_F32, stride));
    Register y = kernel_unary(&kernel, op, x);
    kernel_store(&kernel, kernel_operand(&kernel, DTYPE_F32, stride), y);
    const Kernel *list[] = {&kernel};
    CompiledKernels *compiled = codegen_compile(list, 1, &target, (CodegenOptions){0}, &diagnostics);
    JitProgram *jit = jit_load(compiled, &diagnostics);
    assert_non_null(jit);
    float *data[2] = {memory_allocate(COUNT * sizeof(float)), memory_allocate(COUNT * sizeof(float))};
    for (uint32_t i = 0; i < COUNT; i++) {
        uint32_t bits = i * 4095 + draw(4095);
        memcpy(&data[0][i], &bits, sizeof bits);
    }
    jit_find(jit, compiled->kernels)((void *const *)data, 0, compiled->kernels->units, NULL);
    double worst = 0;
    float where = 0;
    for (uint32_t i = 0; i < COUNT; i++) {
        double error = ulp_error(data[1][i], exact(data[0][i]));
        if (error > worst) worst = error, where = data[0][i];
    }
    if (worst > most_ulps) fail_msg("operation %d: %.2f ulp at %.9g", op, worst, (double)where);
    free(data[0]);
    free(data[1]);
    jit_free(jit);
    codegen_free(compiled);
}

static void test_accuracy(void **state)
{
    (void)state;
    check_accuracy(KERNEL_EXP, exp, 4);
    check_accuracy(KERNEL_LOG, log, 4);
    check_accuracy(KERNEL_ERF, erf, 4);
    check_accuracy(KERNEL_TANH, tanh, 4);
    check_accuracy(KERNEL_SIGMOID, sigmoid, 4);
}

/* --- Random expressions ---------------------------------------------------------------------------------------------
 */

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
    for (int round = 0; round < 60; round++) {
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
    for (int round = 0; round < 40; round++) {
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

/* --- What models are made of ----------------------------------------------------------------------------------------
 */

static void build_softmax(int64_t rows, int64_t columns)
{
    int64_t extent[] = {rows, columns}, stride[] = {columns, 1};
    kernel_begin(&kernel, "softmax", 2, extent);
    int in = kernel_operand(&kernel, DTYPE_F32, stride), out = kernel_operand(&kernel, DTYPE_F32, stride);
    Register largest = kernel_reduce(&kernel, KERNEL_MAXIMUM_OF, kernel_load(&kernel, in));
    kernel_begin_phase(&kernel, true);
    Register x = kernel_load(&kernel, in);
    Register e = kernel_unary(&kernel, KERNEL_EXP, kernel_binary(&kernel, KERNEL_SUBTRACT, x, largest));
    kernel_store(&kernel, out, e);
    Register sum = kernel_reduce(&kernel, KERNEL_SUM, e);
    kernel_begin_phase(&kernel, false);
    Register scale = kernel_unary(&kernel, KERNEL_RECIPROCAL, sum);
    kernel_begin_phase(&kernel, true);
    Register again = kernel_load(&kernel, out);
    kernel_store(&kernel, out, kernel_binary(&kernel, KERNEL_MULTIPLY, again, scale));
}

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
    static const int64_t shapes[][2] = {{300, 128}, {17, 1000}, {1000, 3}, {64, 65}, {2, 1}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        int64_t rows = shapes[i][0], columns = shapes[i][1];
        int64_t extent[] = {columns, rows}, in[] = {1, columns}, out[] = {1, 0};
        kernel_begin(&kernel, "column sums", 2, extent);
        Register x = kernel_load(&kernel, kernel_operand(&kernel, DTYPE_F32, in));
        Register sum = kernel_reduce(&kernel, KERNEL_SUM, x);
        kernel_begin_phase(&kernel, false);
        kernel_store_add(&kernel, kernel_operand(&kernel, DTYPE_F32, out), sum);
        check(&kernel);
    }
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

/* --- Matrix products ------------------------------------------------------------------------------------------------
 */

typedef enum Epilogue { PLAIN, ACCUMULATE, BIAS, BIAS_GELU, RESIDUAL_SCALED, COLUMN_SCATTERED, EPILOGUES } Epilogue;

typedef struct Product {
    int64_t batch, rows, columns, depth;
    bool transpose_a, transpose_b, strided; /* strided: heads, as slices of wider rows */
    DType type, stored;
    Epilogue epilogue;
} Product;

static Register gelu(Register x)
{
    Register scaled = kernel_binary(&kernel, KERNEL_MULTIPLY, x, kernel_constant(&kernel, DTYPE_F32, 0.70710678));
    Register erf = kernel_unary(&kernel, KERNEL_ERF, scaled);
    Register more = kernel_binary(&kernel, KERNEL_ADD, erf, kernel_constant(&kernel, DTYPE_F32, 1));
    Register half = kernel_binary(&kernel, KERNEL_MULTIPLY, x, kernel_constant(&kernel, DTYPE_F32, 0.5));
    return kernel_binary(&kernel, KERNEL_MULTIPLY, half, more);
}

static void build_product(const Product *p)
{
    int64_t extent[] = {p->batch, p->rows, p->columns, p->depth};
    int64_t gap = p->strided ? p->batch : 1; /* batches interleaved within rows, else one after another */
    int64_t a_pitch = (p->transpose_a ? p->rows : p->depth) * gap,
            b_pitch = (p->transpose_b ? p->depth : p->columns) * gap;
    int64_t a_batch = p->strided ? a_pitch / gap : p->rows * p->depth;
    int64_t b_batch = p->strided ? b_pitch / gap : p->columns * p->depth;
    int64_t a[] = {a_batch, p->transpose_a ? 1 : a_pitch, 0, p->transpose_a ? a_pitch : 1};
    int64_t b[] = {b_batch, 0, p->transpose_b ? b_pitch : 1, p->transpose_b ? 1 : b_pitch};
    int64_t c[] = {p->strided ? p->columns : p->rows * p->columns, p->columns * gap, 1, 0}, bias[] = {0, 0, 1, 0};
    int64_t scattered[] = {p->rows * p->columns * 2, 2 * p->columns, 2, 0};
    kernel_begin(&kernel, "product", 4, extent);
    Register x = kernel_load(&kernel, kernel_operand(&kernel, p->stored, a));
    Register y = kernel_load(&kernel, kernel_operand(&kernel, p->stored, b));
    Register sum = kernel_reduce(&kernel, KERNEL_SUM, kernel_binary(&kernel, KERNEL_MULTIPLY, x, y));
    kernel_begin_phase(&kernel, false);
    int out = kernel_operand(&kernel, p->type, p->epilogue == COLUMN_SCATTERED ? scattered : c);
    switch (p->epilogue) {
    case ACCUMULATE: kernel_store_add(&kernel, out, sum); break;
    case BIAS:
    case BIAS_GELU: {
        Register shift = kernel_load(&kernel, kernel_operand(&kernel, p->type, bias));
        Register z = kernel_binary(&kernel, KERNEL_ADD, sum, shift);
        kernel_store(&kernel, out, p->epilogue == BIAS || p->type != DTYPE_F32 ? z : gelu(z));
        break;
    }
    case RESIDUAL_SCALED: {
        Register scaled = kernel_binary(&kernel, KERNEL_MULTIPLY, sum, kernel_constant(&kernel, p->type, 0.125));
        Register old = kernel_load(&kernel, kernel_operand(&kernel, p->type, c));
        kernel_store(&kernel, out, kernel_binary(&kernel, KERNEL_ADD, scaled, old));
        break;
    }
    default: kernel_store(&kernel, out, sum); break;
    }
}

static void test_products(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 2, 3, 5, 8, 13, 16, 17, 24, 31, 47, 64, 65, 96, 128, 130};
    for (int round = 0; round < 120; round++) {
        Product p = {.type = draw(6) ? DTYPE_F32 : DTYPE_F64};
        p.batch = 1 + draw(3) * draw(2);
        p.rows = sizes[draw(16)];
        p.columns = sizes[draw(16)];
        p.depth = sizes[draw(16)];
        p.transpose_a = draw(2);
        p.transpose_b = draw(2);
        p.strided = draw(2);
        p.stored = p.type == DTYPE_F32 && draw(8) == 0 ? DTYPE_BF16 : p.type;
        p.epilogue = (Epilogue)draw(EPILOGUES);
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
        Product p = {1,
                     33,
                     70,
                     3100 + 1700 * (epilogue % 2),
                     epilogue % 2,
                     epilogue % 3,
                     false,
                     DTYPE_F32,
                     DTYPE_F32,
                     (Epilogue)epilogue};
        build_product(&p);
        check_filled(&kernel, 2e-4, fill_random);
        p.rows = 1100;
        p.depth = 40;
        build_product(&p);
        check_filled(&kernel, 2e-4, fill_random);
    }
}

static int set_up(void **state)
{
    (void)state;
    return target_init(&target, (TargetOptions){0}, &diagnostics) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    target_free(&target);
    diagnostics_free(&diagnostics);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unary),
        cmocka_unit_test(test_binary),
        cmocka_unit_test(test_special_values),
        cmocka_unit_test(test_accuracy),
        cmocka_unit_test(test_random_maps),
        cmocka_unit_test(test_random_reductions),
        cmocka_unit_test(test_softmax),
        cmocka_unit_test(test_column_sums),
        cmocka_unit_test(test_gather_and_scatter),
        cmocka_unit_test(test_transposes),
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_long_products),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
