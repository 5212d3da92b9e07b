/* bench_gpu PLATFORM DEVICE [TOKENS HIDDEN]: matrix products of a BERT on an OpenCL device, compared with its peak.
 *
 * PLATFORM and DEVICE are as in a cluster file. The peak is that of a map of multiply-adds, 16 chains an item, measured
 * by the same clock; the last row is the bandwidth of a sum of two arrays. */
#include <stdio.h>
#include <stdlib.h>

#include "profiler/probe/measure.h"

enum { CHAINS = 16, LINKS = 14, ITEMS = 1 << 20 };

typedef struct Shape3 {
    const char *name;
    int64_t batch, rows, columns, depth;
} Shape3;

static void describe_peak(Kernel *kernel)
{
    kernel_begin(kernel, "multiply-adds", 1, (int64_t[]){ITEMS});
    int in = kernel_operand(kernel, DTYPE_F32, (int64_t[]){1}), out = kernel_operand(kernel, DTYPE_F32, (int64_t[]){1});
    Register x = kernel_load(kernel, in), chain[CHAINS];
    for (int c = 0; c < CHAINS; c++) chain[c] = x;
    for (int l = 0; l < LINKS / 2; l++)
        for (int c = 0; c < CHAINS; c++) {
            Register product = kernel_binary(kernel, KERNEL_MULTIPLY, chain[c], x);
            chain[c] = kernel_binary(kernel, KERNEL_ADD, product, chain[(c + 1) % CHAINS]);
        }
    for (int c = 1; c < CHAINS; c++) chain[0] = kernel_binary(kernel, KERNEL_ADD, chain[0], chain[c]);
    kernel_store(kernel, out, chain[0]);
}

/* C[b][m][n] = A[b][m][k] B[b][n][k], as dense layers have their weights. */
static void describe_product(Kernel *kernel, const Shape3 *shape)
{
    int64_t m = shape->rows, n = shape->columns, k = shape->depth;
    kernel_begin(kernel, shape->name, 4, (int64_t[]){shape->batch, m, n, k});
    Register a = kernel_load(kernel, kernel_operand(kernel, DTYPE_F32, (int64_t[]){m * k, k, 0, 1}));
    Register b = kernel_load(kernel, kernel_operand(kernel, DTYPE_F32, (int64_t[]){n * k, 0, k, 1}));
    Register sum = kernel_reduce(kernel, KERNEL_SUM, kernel_binary(kernel, KERNEL_MULTIPLY, a, b));
    kernel_begin_phase(kernel, false);
    kernel_store(kernel, kernel_operand(kernel, DTYPE_F32, (int64_t[]){m * n, n, 1, 0}), sum);
    kernel_canonicalize(kernel);
}

static double flops_of(const Shape3 *shape)
{
    return 2.0 * (double)shape->batch * (double)shape->rows * (double)shape->columns * (double)shape->depth;
}

int main(int argc, char **argv)
{
    if (argc != 3 && argc != 5) {
        fprintf(stderr, "usage: bench_gpu PLATFORM DEVICE [TOKENS HIDDEN], as in a cluster file\n");
        return EXIT_USAGE;
    }
    ClusterDevice device = {.name = "device", .opencl_platform = argv[1], .opencl_device = argv[2]};
    int64_t tokens = argc > 3 ? atoll(argv[3]) : 1024, hidden = argc > 3 ? atoll(argv[4]) : 768;
    if (tokens < 16 || hidden < 16 || tokens > 1 << 16 || hidden > 1 << 14) return EXIT_USAGE;
    const Shape3 shapes[] = {{"query, key or value", 1, tokens, hidden, hidden},
                             {"intermediate", 1, tokens, 4 * hidden, hidden},
                             {"output", 1, tokens, hidden, 4 * hidden},
                             {"gradient of weights", 1, 4 * hidden, hidden, tokens},
                             {"scores of attention", tokens / 16 * (hidden / 64 + 1) / 8 + 1, 128, 128, 64}};
    enum { PRODUCTS = sizeof shapes / sizeof *shapes, PEAK = PRODUCTS, SUM, ALL };
    Kernel *kernels[ALL];
    double seconds[ALL];
    for (int i = 0; i < ALL; i++) kernels[i] = memory_allocate(sizeof **kernels);
    for (int i = 0; i < PRODUCTS; i++) describe_product(kernels[i], &shapes[i]);
    describe_peak(kernels[PEAK]);
    measure_describe_sum(kernels[SUM], MEASURE_USUAL);
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    bool ok = measure_kernels_on_opencl(&device, kernels, ALL, seconds, &diagnostics);
    double peak = !ok ? 0 : 2.0 * ITEMS * CHAINS * (LINKS / 2) / seconds[PEAK];
    if (ok) printf("%-20s %6s %6s %6s %6s %10s %8s\n", "product", "batch", "m", "n", "k", "GFLOP/s", "of peak");
    for (int i = 0; i < PRODUCTS && ok; i++)
        printf("%-20s %6lld %6lld %6lld %6lld %10.1f %7.1f%%\n", shapes[i].name, (long long)shapes[i].batch,
               (long long)shapes[i].rows, (long long)shapes[i].columns, (long long)shapes[i].depth,
               1e-9 * flops_of(&shapes[i]) / seconds[i], 100 * flops_of(&shapes[i]) / seconds[i] / peak);
    if (ok)
        printf("peak of multiply-adds %.1f GFLOP/s, bandwidth of a sum %.1f GB/s\n", 1e-9 * peak,
               1e-9 * kernel_bytes(kernels[SUM]) / seconds[SUM]);
    for (int i = 0; i < ALL; i++) free(kernels[i]);
    diagnostics_print(&diagnostics, stderr);
    return ok ? EXIT_OK : diagnostics.exit_code;
}
