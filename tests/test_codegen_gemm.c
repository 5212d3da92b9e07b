/* Compiled matrix products against the interpreter, and code for other machines. */
#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "codegen/gemm_bf16.h"
#include "tests/kernel_check.h"

/* --- Matrix products ------------------------------------------------------------------------------------------------
 */

typedef enum Epilogue {
    PLAIN,
    ACCUMULATE,
    BIAS,
    BIAS_GELU,
    RESIDUAL_SCALED,
    COLUMN_SCATTERED,
    MASKED_TWICE,
    DROPPED,
    EPILOGUES
} Epilogue;

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
    case DROPPED: {
        Register key = kernel_load(&kernel, kernel_operand(&kernel, DTYPE_I64, (int64_t[4]){0}));
        Register first =
            kernel_binary(&kernel, KERNEL_MULTIPLY, key, kernel_constant_integer(&kernel, 1 + p->depth % 2));
        Register bound = kernel_constant_integer(&kernel, 0x4000), zero = kernel_constant(&kernel, p->type, 0);
        Register dropped = kernel_random(&kernel, kernel_operand(&kernel, DTYPE_F32, c), key, first, bound);
        kernel_store(&kernel, out, kernel_select(&kernel, dropped, zero, sum));
        break;
    }
    case RESIDUAL_SCALED: {
        Register scaled = kernel_binary(&kernel, KERNEL_MULTIPLY, sum, kernel_constant(&kernel, p->type, 0.125));
        Register old = kernel_load(&kernel, kernel_operand(&kernel, p->type, c));
        kernel_store(&kernel, out, kernel_binary(&kernel, KERNEL_ADD, scaled, old));
        break;
    }
    case MASKED_TWICE: { /* lower triangle only; the sum itself is stored too */
        Register row = kernel_axis(&kernel, 1), column = kernel_axis(&kernel, 2);
        Register below = kernel_binary(&kernel, KERNEL_LESS_EQUAL, column, row);
        Register zero = kernel_constant(&kernel, p->type, 0);
        kernel_store(&kernel, out, kernel_select(&kernel, below, sum, zero));
        kernel_store(&kernel, kernel_operand(&kernel, p->type, c), sum);
        break;
    }
    default: kernel_store(&kernel, out, sum); break;
    }
}

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

/* Products of bf16 numbers, by every unit that this machine has for them: sizes around blocks and tiles, sums in
 * several blocks of k, sums of numbers that are not rounded alike if they are rounded otherwise. */
static void check_bf16(void)
{
    static const Sizes sizes = {16, {2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 48, 49, 64, 65, 100, 130}};
    for (int round = 0, rounds = check_rounds(20); round < rounds; round++) {
        Product p = draw_product(&sizes, &sizes);
        if (round % 10 == 0) p.depth = 2100;
        if (round % 20 == 5) p.rows = 530;
        p.stored = draw(8) ? DTYPE_F32 : DTYPE_BF16;
        build_product(&p);
        if (draw(2)) kernel_canonicalize(&kernel);
        kernel_round_factors(&kernel);
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

/* --- Split factors --------------------------------------------------------------------------------------------------
 */

/* Numbers of very different sizes, of whose products none is beyond the range of float32. */
static void fill_uneven(const Kernel *checked, int operand, int64_t elements, void *data)
{
    fill_random(checked, operand, elements, data);
    if (checked->operands[operand].dtype != DTYPE_F32) return;
    float *numbers = data;
    for (int64_t i = 0; i < elements; i++) numbers[i] = ldexpf(numbers[i], (int)draw(60) - 30);
}

static bool nothing_is_split(void)
{
    if (target.bf16 != BF16_TILES) print_message("%s has no AMX tiles: nothing is split\n", target.cpu);
    return target.bf16 != BF16_TILES;
}

static void test_split_products(void **state)
{
    (void)state;
    if (nothing_is_split()) return;
    static const Sizes sides = {6, {120, 128, 131, 160, 200, 545}}, depths = {7, {128, 130, 256, 257, 300, 530, 700}};
    for (int round = 0, rounds = check_rounds(20); round < rounds; round++) {
        Product p = draw_product(&sides, &depths);
        build_product(&p);
        if (draw(2)) kernel_canonicalize(&kernel);
        check_filled(&kernel, 1e-5, draw(2) ? fill_random : fill_uneven);
    }
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

/* Products of split factors are at least as exact as sums of fused multiply-adds. */
static void test_split_accuracy(void **state)
{
    (void)state;
    if (nothing_is_split()) return;
    Target tiles = target;
    assert_true(target_init(&target, (TargetOptions){.features = "-amx-bf16"}, &diagnostics));
    assert_int_equal(target.bf16, BF16_PAIRS);
    Target multiply_add = target;
    for (int round = 0; round < 5; round++) {
        Product p = {1, 128, 140, 200 << round, round & 1, round & 2, false, DTYPE_F32, DTYPE_F32, PLAIN};
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
    if (nothing_is_split()) return;
    Product p = {1, 128, 140, 200, false, false, false, DTYPE_F32, DTYPE_F32, PLAIN};
    build_product(&p);
    check_compared(&kernel, 0, fill_with_infinity, expect_one_row);
}

/* No second thread idles: neither with few rows, nor with few columns, nor with a micro-batch's rows in one block. */
static void test_units(void **state)
{
    (void)state;
    check_needs_own_processor();
    static const int64_t shapes[][3] = {{512, 768, 768}, {512, 128, 128}, {128, 512, 1024}, {1024, 768, 3072}};
    Target tiles;
    assert_true(target_init(&tiles, (TargetOptions){.cpu = "sapphirerapids"}, &diagnostics));
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        Product p = {1, shapes[i][0], shapes[i][1], shapes[i][2], false, false, false, DTYPE_F32, DTYPE_F32, PLAIN};
        Bf16Plan plan;
        build_product(&p);
        assert_true(bf16_plan(&plan, &kernel, &tiles));
        assert_int_equal(plan.parts, BF16_MAX_PARTS);
        assert_true(plan.units.total >= 2);
    }
    target_free(&tiles);
}

/* --- Other machines -------------------------------------------------------------------------------------------------
 */

static bool mentions(const Diagnostics *reported, const char *what)
{
    char *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    diagnostics_print(reported, stream);
    fclose(stream);
    bool found = strstr(text, what);
    free(text);
    return found;
}

/* Code for processors that this one need not be: it is an ELF object for the right machine, with its vector registers.
 */
static void test_other_targets(void **state)
{
    (void)state;
    check_needs_own_processor();
    static const struct {
        const char *triple, *cpu, *registers;
        int vector_bytes, machine;
        Bf16Unit bf16;
    } cases[] = {{"x86_64-linux-gnu", "x86-64", "%xmm", 16, 62, BF16_NONE},
                 {"x86_64-linux-gnu", "x86-64-v3", "%ymm", 32, 62, BF16_NONE},
                 {"x86_64-linux-gnu", "x86-64-v4", "%zmm", 64, 62, BF16_NONE},
                 {"x86_64-linux-gnu", "znver4", "vdpbf16ps", 64, 62, BF16_PAIRS},
                 {"x86_64-linux-gnu", "sapphirerapids", "tdpbf16ps", 64, 62, BF16_TILES},
                 {"aarch64-linux-gnu", "cortex-a72", "v0.4s", 16, 183, BF16_NONE}};
    static Kernel kernels[4];
    Product product = {1, 37, 70, 40, false, true, false, DTYPE_F32, DTYPE_F32, BIAS_GELU};
    build_product(&product);
    kernels[0] = kernel;
    product.transpose_b = false;
    product.epilogue = ACCUMULATE;
    build_product(&product);
    kernels[1] = kernel;
    build_softmax(9, 50);
    kernels[2] = kernel;
    product.depth = 64;
    build_product(&product);
    kernel_round_factors(&kernel);
    kernels[3] = kernel;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Target other;
        TargetOptions options = {.triple = cases[i].triple, .cpu = cases[i].cpu};
        assert_true(target_init(&other, options, &diagnostics));
        assert_int_equal(other.vector_bytes, cases[i].vector_bytes);
        assert_int_equal(other.bf16, cases[i].bf16);
        const Kernel *list[] = {&kernels[0], &kernels[1], &kernels[2], &kernels[3]};
        CompiledKernels *compiled = codegen_compile(list, 4, &other, (CodegenOptions){0}, &diagnostics);
        assert_non_null(compiled);
        for (size_t k = 0; k < compiled->count; k++) {
            const Buffer *object = &compiled->kernels[k].object;
            assert_true(object->size > 64 && memcmp(object->bytes, "\177ELF", 4) == 0);
            assert_int_equal((unsigned char)object->bytes[18], cases[i].machine);
        }
        Buffer text = {0};
        codegen_print(compiled, CODEGEN_ASSEMBLY, &text);
        assert_non_null(strstr(buffer_text(&text), cases[i].registers));
        buffer_free(&text);
        codegen_free(compiled);
        target_free(&other);
    }
}

static void test_unknown_targets(void **state)
{
    (void)state;
    check_needs_own_processor();
    static const TargetOptions cases[] = {{.triple = "vax-dec-vms"}, {.cpu = "pentium-9"}, {.features = "+warp-drive"}};
    static const char *const names[] = {"vax", "pentium-9", "warp-drive"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Diagnostics reported = {0};
        Target other;
        assert_false(target_init(&other, cases[i], &reported));
        assert_int_equal(reported.exit_code, EXIT_TOOLCHAIN);
        assert_true(mentions(&reported, names[i]));
        diagnostics_free(&reported);
    }
}

/* --- The cache on disk ----------------------------------------------------------------------------------------------
 */

static void each_file(const char *directory, void (*action)(const char *path), int *count)
{
    DIR *listing = opendir(directory);
    assert_non_null(listing);
    *count = 0;
    for (struct dirent *entry; (entry = readdir(listing));) {
        if (*entry->d_name == '.') continue;
        char path[512];
        snprintf(path, sizeof path, "%s/%.200s", directory, entry->d_name);
        if (action) action(path);
        ++*count;
    }
    closedir(listing);
}

static void damage(const char *path)
{
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    fseek(file, 200, SEEK_SET);
    fputs("damaged", file);
    fclose(file);
}

static void discard(const char *path) { assert_int_equal(unlink(path), 0); }

static void test_cache(void **state)
{
    (void)state;
    check_needs_own_processor();
    char directory[] = "/tmp/skycc-cache-XXXXXX";
    assert_non_null(mkdtemp(directory));
    char nested[64];
    snprintf(nested, sizeof nested, "%s/a/b", directory);
    Kernel softmax;
    build_softmax(20, 40);
    softmax = kernel;
    Product product = {1, 20, 30, 40, false, true, false, DTYPE_F32, DTYPE_F32, PLAIN};
    build_product(&product);
    const Kernel *list[] = {&softmax, &kernel, &softmax};
    Buffer first[2] = {{0}};
    for (int round = 0; round < 3; round++) {
        CodegenOptions options = {.cache_directory = nested};
        CompiledKernels *compiled = codegen_compile(list, 3, &target, options, &diagnostics);
        assert_int_equal(compiled->count, 2);
        for (int i = 0; i < 2; i++) {
            const Buffer *object = &compiled->kernels[i].object;
            if (round == 0) buffer_append(&first[i], object->bytes, object->size);
            assert_int_equal(object->size, first[i].size);
            assert_memory_equal(object->bytes, first[i].bytes, object->size);
            assert_true(compiled->kernels[i].units > 0);
        }
        codegen_free(compiled);
        int count;
        each_file(nested, round == 1 ? damage : NULL, &count);
        assert_int_equal(count, 2);
    }
    int count;
    each_file(nested, discard, &count);
    assert_int_equal(rmdir(nested), 0);
    *strrchr(nested, '/') = 0;
    assert_int_equal(rmdir(nested), 0);
    assert_int_equal(rmdir(directory), 0);
    buffer_free(&first[0]);
    buffer_free(&first[1]);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bf16_products),   cmocka_unit_test(test_split_products),
        cmocka_unit_test(test_split_accuracy),  cmocka_unit_test(test_infinite_factor),
        cmocka_unit_test(test_units),           cmocka_unit_test(test_products),
        cmocka_unit_test(test_long_products),   cmocka_unit_test(test_other_targets),
        cmocka_unit_test(test_unknown_targets), cmocka_unit_test(test_cache),
    };
    return check_run(argc, argv, tests, sizeof tests / sizeof *tests);
}
