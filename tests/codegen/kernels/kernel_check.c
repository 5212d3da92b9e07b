#include "tests/codegen/kernels/kernel_check.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "base/weight_blocks.h"
#include "runtime/program/tiles.h"
#include "tests/codegen/kernels/emulated_tiles.h"
#include "tests/codegen/kernels/foreign.h"
#include "tests/codegen/kernels/opencl_runner.h"
#include "tests/common/limits.h"

Target target;
Diagnostics diagnostics;
Kernel kernel;
static uint64_t seed = 1;

uint32_t draw(uint32_t limit) { return (uint32_t)random_draw_below(&seed, limit); }

static double draw_real(void) { return (double)draw(1u << 24) / (1 << 23) - 1; }

/* Elements of operand `i` that the kernel may touch. */
static int64_t operand_elements(const Kernel *checked, int i)
{
    const KernelOperand *operand = &checked->operands[i];
    int64_t last = 0;
    if (!operand->read && !operand->written) return 0;
    for (int axis = 0; axis < checked->axis_count; axis++) {
        if (checked->extent[axis] > 0) last += (checked->extent[axis] - 1) * operand->stride[axis];
    }
    return (operand->elements ? operand->elements : 1) + last;
}

typedef struct Operands {
    int count;
    size_t bytes[KERNEL_MAX_OPERANDS];
    void *data[KERNEL_MAX_OPERANDS];
} Operands;

void fill_random(const Kernel *checked, int operand, int64_t elements, void *data)
{
    DType dtype = checked->operands[operand].dtype;
    if (dtype_in_blocks(dtype)) {
        FREED float *values = memory_allocate((size_t)elements * sizeof *values);
        for (int64_t i = 0; i < elements; i++) values[i] = (float)draw_real();
        weight_blocks_encode(dtype, values, elements, data);
        return;
    }
    for (int64_t i = 0; i < elements; i++) {
        if (dtype_is_float(dtype))
            element_store_double(dtype, data, i, draw_real());
        else if (dtype == DTYPE_BOOL)
            element_store_integer(dtype, data, i, draw(2));
        else
            element_store_integer(dtype, data, i, draw(7));
    }
}

static Operands operands_new(const Kernel *checked, Fill *fill)
{
    Operands operands = {.count = checked->operand_count};
    for (int i = 0; i < checked->operand_count; i++) {
        int64_t elements = operand_elements(checked, i);
        operands.bytes[i] = (size_t)dtype_bytes(checked->operands[i].dtype, elements);
        operands.data[i] = memory_allocate(operands.bytes[i] + 1);
        fill(checked, i, elements, operands.data[i]);
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

static void run_compiled(const CompiledKernel *compiled, SkyKernel *function, Operands *operands, bool split,
                         int64_t limit)
{
    FREED char *raw = memory_allocate(compiled->scratch_bytes + 64);
    void *scratch = (void *)(((uintptr_t)raw + 63) & ~(uintptr_t)63);
    if (!split) {
        function(operands->data, 0, compiled->units, scratch, limit);
    } else { /* backwards, in pieces */
        for (int64_t end = compiled->units; end > 0;) {
            int64_t begin = end - 1 - draw(end < 9 ? (uint32_t)end : 9);
            if (begin < 0) begin = 0;
            function(operands->data, begin, end, scratch, limit);
            end = begin;
        }
    }
}

static void compare(const Kernel *checked, void *const *expected, void *const *found, double tolerance)
{
    for (int i = 0; i < checked->operand_count; i++) {
        DType dtype = checked->operands[i].dtype;
        int64_t elements = operand_elements(checked, i);
        double largest = 1e-30;
        for (int64_t k = 0; k < elements; k++) {
            double value = fabs(element_as_double(dtype, expected[i], k));
            if (isfinite(value) && value > largest) largest = value;
        }
        for (int64_t k = 0; k < elements; k++) {
            double a = element_as_double(dtype, expected[i], k), b = element_as_double(dtype, found[i], k);
            if ((isnan(a) && isnan(b)) || a == b) continue;
            double bound = dtype_is_float(dtype) ? tolerance * (fabs(a) + 0.1 * largest) : 0;
            if (dtype == DTYPE_BF16) bound += 0.01 * fabs(a);
            if (dtype == DTYPE_F16) bound += 0.001 * fabs(a);
            if (!(fabs(a - b) <= bound)) {
                Buffer text = {0};
                kernel_print(checked, &text);
                fail_msg("%s\noperand %d, element %lld: expected %.9g, found %.9g", buffer_text(&text), i, (long long)k,
                         a, b);
            }
        }
    }
}

/* ---- Emulated processors ---- */

enum { NOT_POSSIBLE = 77 };

typedef struct Expectation {
    Kernel kernel;
    Operands operands;
    double tolerance;
    Compare *compare;
} Expectation;

static bool emulated, on_opencl;
static bool between; /* the widest and the narrowest vectors: nothing new happens in our code, only in LLVM's */
static Expectation *expectations;
static size_t expectation_count, expectation_capacity;

static void expect_later(const CompiledKernel *code, const Kernel *checked, const Operands *before,
                         const Operands *interpreted, double tolerance, Compare *compared)
{
    Expectation expectation = {*checked, operands_copy(interpreted), tolerance, compared};
    foreign_add(code, before->count, before->bytes, before->data);
    array_push(expectations, expectation_count, expectation_capacity, expectation);
}

static void check_expectation(size_t index, void *const *data)
{
    Expectation *expectation = &expectations[index];
    expectation->compare(&expectation->kernel, expectation->operands.data, data, expectation->tolerance);
}

static void test_expectations(void **state)
{
    (void)state;
    bool ran = foreign_run(check_expectation);
    for (size_t i = 0; i < expectation_count; i++) operands_free(&expectations[i].operands);
    free(expectations);
    assert_true(ran);
    printf("%zu cases ran\n", expectation_count);
}

/* A share of the random cases, less in emulation and under the sanitizers, where LLVM's allocations are slow; with
 * SKYCC_TEST_ALL in the environment all. */
int check_rounds(int rounds)
{
    int part = getenv("SKYCC_TEST_ALL") ? 1
               : ADDRESS_SANITIZER      ? 60
               : emulated               ? 30
                                        : 10,
        share = (rounds + part - 1) / part;
    if (share < rounds) printf("%d of %d random cases\n", share, rounds);
    return share;
}

/* ---- Checks ---- */

/* Goes through what an operand has of the first `limit` iterations of `axis`: from `index` to the next element; false
 * after the last one. */
static bool next_element(const Kernel *checked, const KernelOperand *operand, int axis, int64_t limit, int64_t *index)
{
    for (int a = checked->axis_count - 1; a >= 0; a--) {
        int64_t end = a == axis ? limit : checked->extent[a];
        if (operand->stride[a] && ++index[a] < end) return true;
        index[a] = 0;
    }
    return false;
}

static void *element_at(const Kernel *checked, const Operands *operands, int i, const int64_t *index)
{
    const KernelOperand *operand = &checked->operands[i];
    int64_t offset = 0;
    for (int a = 0; a < checked->axis_count; a++) offset += index[a] * operand->stride[a];
    return (char *)operands->data[i] + (size_t)offset * dtype_size(operand->dtype);
}

/* What the kernel writes of the first `limit` iterations of `axis` is the same in both. */
static void compare_until(const Kernel *checked, int axis, int64_t limit, const Operands *whole,
                          const Operands *limited)
{
    for (int i = 0; i < checked->operand_count; i++) {
        const KernelOperand *operand = &checked->operands[i];
        int64_t index[KERNEL_MAX_AXES] = {0};
        if (!operand->written) continue;
        do
            assert_memory_equal(element_at(checked, whole, i, index), element_at(checked, limited, i, index),
                                dtype_size(operand->dtype));
        while (next_element(checked, operand, axis, limit, index));
    }
}

/* Copies; what factors have after the first `limit` iterations of the inner axis is no number in them. */
static Operands operands_until(const Kernel *checked, const Operands *operands, int64_t limit)
{
    Operands copy = operands_copy(operands);
    int inner = checked->axis_count - 1;
    for (int i = 0; i < checked->operand_count; i++) {
        const KernelOperand *operand = &checked->operands[i];
        int64_t index[KERNEL_MAX_AXES] = {0};
        if (!operand->stride[inner]) continue;
        memset(copy.data[i], 0xff, copy.bytes[i]);
        do
            memcpy(element_at(checked, &copy, i, index), element_at(checked, operands, i, index),
                   dtype_size(operand->dtype));
        while (next_element(checked, operand, inner, limit, index));
    }
    return copy;
}

/* With a limit of a SkyKernel, as far as that can be seen: where no register says which elements are written. */
static void check_limited(const CompiledKernel *code, SkyKernel *function, const Kernel *checked,
                          const Operands *before, const Operands *whole)
{
    const UnitAxis *axis = &code->first_axis;
    bool several = code->units > 1 || checked->extent[axis->axis] > 1;
    for (int i = 0; i < checked->operand_count; i++)
        if (checked->operands[i].written && checked->operands[i].elements) return;
    if (!axis->step || !code->units || !several) return;
    Operands limited = operands_copy(before);
    int64_t limit = 1 + draw((uint32_t)checked->extent[axis->axis]);
    int64_t units = (limit + axis->step - 1) / axis->step * (code->units / axis->count);
    FREED void *scratch = aligned_alloc(64, (code->scratch_bytes + 127) / 64 * 64);
    assert_non_null(scratch);
    function(limited.data, 0, units, scratch, limit);
    compare_until(checked, axis->axis, limit, whole, &limited);
    operands_free(&limited);
}

static CompiledKernels *compile_one(const Kernel *checked)
{
    CompiledKernels *compiled = kernels_compile(&checked, 1, &target, (KernelCacheOptions){0}, &diagnostics);
    assert_non_null(compiled);
    if (target.bf16 == BF16_TILES && !tiles_request()) emulate_tiles(compiled);
    return compiled;
}

/* Products that may keep their factor b: with it kept, whatever becomes of b itself, and while it is being kept, they
 * make the same bits as products that do not keep it. */
static void check_kept(const Kernel *checked, const Operands *before, const Operands *whole)
{
    Kernel keeping = *checked;
    KernelGemm gemm;
    float said = 0;
    kernel_canonicalize(&keeping);
    size_t bytes = (size_t)kernel_keep_b(&keeping);
    if (!bytes || target.bf16 == BF16_NONE || !kernel_match_gemm(&keeping, &gemm)) return;
    CompiledKernels *compiled = compile_one(&keeping);
    JitProgram *jit = jit_load(compiled, &diagnostics);
    assert_non_null(jit);
    FREED void *kept = memset(aligned_alloc(64, (bytes + 63) / 64 * 64), 0xff, bytes);
    for (int run = 0; run < 4; run++) {
        Operands operands = operands_copy(before);
        operands.data[operands.count] = kept;
        operands.data[operands.count + 1] = &said;
        if (run > 1) memset(operands.data[gemm.b], 0xff, operands.bytes[gemm.b]);
        run_compiled(&compiled->kernels[0], jit_find(jit, &compiled->kernels[0]), &operands, run & 1, SKY_NO_LIMIT);
        for (int i = 0; i < whole->count; i++)
            if (i != gemm.b) assert_memory_equal(whole->data[i], operands.data[i], whole->bytes[i]);
        said = run > 0;
        operands_free(&operands);
    }
    jit_free(jit);
    kernels_free(compiled);
}

/* Products whose sums may end early do so at any limit, and read nothing after it; with none they make the same bits as
 * those that may not. */
static void check_sum_limits(const Kernel *checked, const Operands *before, const Operands *whole, double tolerance,
                             Compare *compared)
{
    Kernel limited = *checked;
    if (between || !kernel_limit_sum(&limited)) return;
    int64_t depth = kernel_inner_extent(checked), limits[] = {1, 7, 31, 32, 33, depth - 1, depth};
    CompiledKernels *compiled = compile_one(&limited);
    JitProgram *jit = jit_load(compiled, &diagnostics);
    assert_non_null(jit);
    SkyKernel *function = jit_find(jit, &compiled->kernels[0]);
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        if (limits[i] < 1 || limits[i] > depth) continue;
        Operands found = operands_until(checked, before, limits[i]), interpreted = operands_copy(&found);
        run_compiled(&compiled->kernels[0], function, &found, i % 2, limits[i] < depth ? limits[i] : SKY_NO_LIMIT);
        assert_true(kernel_interpret_until(&limited, interpreted.data, limits[i]));
        compared(&limited, interpreted.data, found.data, tolerance);
        for (int o = 0; o < whole->count && limits[i] == depth; o++)
            assert_memory_equal(whole->data[o], found.data[o], whole->bytes[o]);
        operands_free(&found);
        operands_free(&interpreted);
    }
    jit_free(jit);
    kernels_free(compiled);
}

static void check_here(const CompiledKernels *compiled, const CompiledKernel *code, const Kernel *checked,
                       const Operands *before, const Operands *interpreted, double tolerance, Compare *compared)
{
    Operands whole = operands_copy(before), split = operands_copy(before);
    JitProgram *jit = jit_load(compiled, &diagnostics);
    assert_non_null(jit);
    run_compiled(code, jit_find(jit, code), &whole, false, SKY_NO_LIMIT);
    run_compiled(code, jit_find(jit, code), &split, true, SKY_NO_LIMIT);
    compared(checked, interpreted->data, whole.data, tolerance);
    check_limited(code, jit_find(jit, code), checked, before, &whole);
    for (int i = 0; i < whole.count; i++) assert_memory_equal(whole.data[i], split.data[i], whole.bytes[i]);
    check_kept(checked, before, &whole);
    check_sum_limits(checked, before, &whole, tolerance, compared);
    operands_free(&whole);
    operands_free(&split);
    jit_free(jit);
}

static void check_on_opencl(const Kernel *checked, double tolerance, Fill *fill, Compare *compared)
{
    Operands before = operands_new(checked, fill);
    Kernel limited = *checked;
    int64_t depth = kernel_inner_extent(checked);
    for (int run = 0; run < (kernel_limit_sum(&limited) ? 2 : 1); run++) {
        int64_t limit = run ? depth - depth / 3 : SKY_NO_LIMIT;
        Operands found = run ? operands_until(checked, &before, limit) : operands_copy(&before),
                 interpreted = operands_copy(&found);
        assert_true(kernel_interpret_until(run ? &limited : checked, interpreted.data, limit));
        opencl_run(run ? &limited : checked, found.data, found.bytes, limit);
        compared(checked, interpreted.data, found.data, tolerance);
        operands_free(&found);
        operands_free(&interpreted);
    }
    operands_free(&before);
}

void check_compared(const Kernel *checked, double tolerance, Fill *fill, Compare *compared)
{
    kernel_verify(checked);
    if (on_opencl) {
        check_on_opencl(checked, tolerance, fill, compared);
        return;
    }
    CompiledKernels *compiled = compile_one(checked);
    const CompiledKernel *code = kernels_find(compiled, checked);
    assert_non_null(code);
    Operands before = operands_new(checked, fill), interpreted = operands_copy(&before);
    assert_true(kernel_interpret(checked, interpreted.data));
    if (emulated)
        expect_later(code, checked, &before, &interpreted, tolerance, compared);
    else
        check_here(compiled, code, checked, &before, &interpreted, tolerance, compared);
    operands_free(&before);
    operands_free(&interpreted);
    kernels_free(compiled);
}

void check_filled(const Kernel *checked, double tolerance, Fill *fill)
{
    check_compared(checked, tolerance, fill, compare);
}

void check(const Kernel *checked) { check_filled(checked, 1e-5, fill_random); }

void build_softmax(int64_t rows, int64_t columns)
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

/* The processors that this machine can stand in for: vectors of other widths, without fused multiply-add. */
static const char *const processors[] = {
    "native",
#ifdef __x86_64__
    "x86-64-v4",
    "x86-64-v3",
    "x86-64",
#endif
};

static bool can_run(const char *processor)
{
#ifdef __x86_64__
    if (strcmp(processor, "x86-64-v4") == 0)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    if (strcmp(processor, "x86-64-v3") == 0) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
    return processor != NULL;
}

static TargetOptions chosen;

static int set_up(void **state)
{
    (void)state;
    return target_init(&target, chosen, &diagnostics) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    target_free(&target);
    diagnostics_free(&diagnostics);
    return 0;
}

static int run_emulated(const struct CMUnitTest *tests, size_t count)
{
    const char *missing = foreign_missing();
    if (missing) {
        printf("skipped: %s\n", missing);
        return NOT_POSSIBLE;
    }
    emulated = true;
    chosen = (TargetOptions){.triple = "aarch64-linux-gnu", .cpu = "cortex-a72"};
    struct CMUnitTest run = cmocka_unit_test(test_expectations);
    int failed = _cmocka_run_group_tests("aarch64", tests, count, set_up, tear_down);
    return failed + _cmocka_run_group_tests("aarch64, under emulation", &run, 1, NULL, NULL);
}

int check_run_on_opencl(const struct CMUnitTest *tests, size_t count)
{
    const char *missing = opencl_missing();
    if (missing) {
        printf("skipped: %s\n", missing);
        return NOT_POSSIBLE;
    }
    on_opencl = true;
    return _cmocka_run_group_tests("OpenCL", tests, count, set_up, tear_down);
}

int check_run(int argc, char **argv, const struct CMUnitTest *tests, size_t count)
{
    if (argc > 1 && strcmp(argv[1], "opencl") == 0) return check_run_on_opencl(tests, count);
    if (argc > 1 && strcmp(argv[1], "aarch64") == 0) return run_emulated(tests, count);
    int failed = 0;
    for (size_t i = 0; i < sizeof processors / sizeof *processors; i++) {
        between = i > 0 && i + 1 < sizeof processors / sizeof *processors;
        if (ADDRESS_SANITIZER && between) continue;
        chosen.cpu = processors[i];
        if (can_run(chosen.cpu))
            failed += _cmocka_run_group_tests(chosen.cpu, tests, count, set_up, tear_down);
        else
            printf("skipped: this machine cannot run code for %s\n", chosen.cpu);
    }
    return failed;
}

int check_run_here(const struct CMUnitTest *tests, size_t count)
{
    return _cmocka_run_group_tests("native", tests, count, set_up, tear_down);
}
