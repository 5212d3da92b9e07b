/* Code for any machine, and what does not depend on the machine: work units, the cache of compiled objects. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "codegen/kernels/amx_gemm.h"
#include "codegen/kernels/pair_gemm.h"
#include "tests/codegen/kernels/kernel_check.h"
#include "tests/codegen/kernels/product.h"
#include "tests/common/limits.h"
#include "tests/common/scratch.h"

/* No second thread idles: neither with few rows, nor with few columns, nor with a micro-batch's rows in one block. */
static void test_units(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = {{512, 768, 768}, {512, 128, 128}, {128, 512, 1024}, {1024, 768, 3072}};
    Target tiles, pairs;
    assert_true(target_init(&tiles, (TargetOptions){.cpu = "sapphirerapids"}, &diagnostics));
    assert_true(target_init(&pairs, (TargetOptions){.cpu = "znver4"}, &diagnostics));
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        Product p = {1,     shapes[i][0], shapes[i][1], shapes[i][2], false, false,
                     false, DTYPE_F32,    DTYPE_F32,    PLAIN,        false};
        AmxPlan plan;
        build_product(&p);
        assert_true(amx_plan(&plan, &kernel, &tiles));
        assert_int_equal(plan.parts, AMX_MAX_PARTS);
        assert_true(plan.units.total >= 2);
        PairPlan pair;
        assert_false(pair_plan(&pair, &kernel, &pairs)); /* of float32 */
        kernel_set_precision(&kernel, PRODUCTS_BF16);
        assert_false(pair_plan(&pair, &kernel, &tiles));
        assert_true(pair_plan(&pair, &kernel, &pairs));
        assert_true(pair.units.total >= 2);
    }
    target_free(&tiles);
    target_free(&pairs);
}

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
    Product product = {1, 37, 70, 40, false, true, false, DTYPE_F32, DTYPE_F32, BIAS_GELU, false};
    build_product(&product);
    kernels[2] = kernel;
    product.transpose_b = false;
    product.epilogue = ACCUMULATE;
    build_product(&product);
    kernels[3] = kernel;
    build_softmax(9, 50);
    kernels[0] = kernel;
    product.depth = 64;
    build_product(&product);
    kernel_set_precision(&kernel, PRODUCTS_BF16);
    kernels[1] = kernel;
    /* The sanitizers, under which LLVM is slow, see a loop and a product; these are what our code differs in. */
    const size_t count = ADDRESS_SANITIZER ? 2 : 4;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Target other;
        TargetOptions options = {.triple = cases[i].triple, .cpu = cases[i].cpu};
        assert_true(target_init(&other, options, &diagnostics));
        assert_int_equal(other.vector_bytes, cases[i].vector_bytes);
        assert_int_equal(other.bf16, cases[i].bf16);
        const Kernel *list[] = {&kernels[0], &kernels[1], &kernels[2], &kernels[3]};
        CompiledKernels *compiled = kernels_compile(list, count, &other, (KernelCacheOptions){0}, &diagnostics);
        assert_non_null(compiled);
        for (size_t k = 0; k < compiled->count; k++) {
            const Buffer *object = &compiled->kernels[k].object;
            assert_true(object->size > 64 && memcmp(object->bytes, "\177ELF", 4) == 0);
            assert_int_equal((unsigned char)object->bytes[18], cases[i].machine);
        }
        FREED_WITH(buffer_free) Buffer text = {0};
        kernels_print(compiled, KERNEL_TEXT_ASSEMBLY, &text);
        assert_non_null(strstr(buffer_text(&text), cases[i].registers));
        kernels_free(compiled);
        target_free(&other);
    }
}

static void test_unknown_targets(void **state)
{
    (void)state;
    static const TargetOptions cases[] = {{.triple = "vax-dec-vms"}, {.cpu = "pentium-9"}, {.features = "+warp-drive"}};
    static const char *const names[] = {"vax", "pentium-9", "warp-drive"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        FREED_WITH(diagnostics_free) Diagnostics reported = {0};
        Target other;
        assert_false(target_init(&other, cases[i], &reported));
        assert_int_equal(reported.exit_code, EXIT_TOOLCHAIN);
        assert_true(mentions(&reported, names[i]));
    }
}

/* ---- The cache on disk ---- */

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
    static const char nested[] = "a/b";
    Kernel softmax;
    build_softmax(20, 40);
    softmax = kernel;
    Product product = {1, 20, 30, 40, false, true, false, DTYPE_F32, DTYPE_F32, PLAIN, false};
    build_product(&product);
    const Kernel *list[] = {&softmax, &kernel, &softmax};
    Buffer first[2] = {{0}};
    for (int round = 0; round < 3; round++) {
        KernelCacheOptions options = {.cache_directory = nested};
        CompiledKernels *compiled = kernels_compile(list, 3, &target, options, &diagnostics);
        assert_int_equal(compiled->count, 2);
        for (int i = 0; i < 2; i++) {
            const Buffer *object = &compiled->kernels[i].object;
            if (round == 0) buffer_append(&first[i], object->bytes, object->size);
            assert_int_equal(object->size, first[i].size);
            assert_memory_equal(object->bytes, first[i].bytes, object->size);
            assert_true(compiled->kernels[i].units > 0);
        }
        kernels_free(compiled);
        int count;
        each_file(nested, round == 1 ? damage : NULL, &count);
        assert_int_equal(count, 2);
    }
    int count;
    each_file(nested, discard, &count);
    assert_int_equal(rmdir(nested), 0);
    buffer_free(&first[0]);
    buffer_free(&first[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_units),
        cmocka_unit_test(test_other_targets),
        cmocka_unit_test(test_unknown_targets),
        cmocka_unit_test_setup_teardown(test_cache, scratch_folder_enter, scratch_folder_leave),
    };
    return check_run_here(tests, sizeof tests / sizeof *tests);
}
