/* Matrix products as BERT uses them, one thread: GFLOP/s and the fraction of the measured peak.
 *
 *   bench_gemm [CPU [K N M]]     generates code for CPU (default: native), and measures all shapes or one
 *
 * NN is Y = X W, NT is dX = dY W', TN is dW += X' dY; then the products of attention per head. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/peak.h"
#include "codegen/codegen.h"
#include "runtime/memory.h"

static Target target;
static Diagnostics diagnostics;
static double peak;

typedef struct Layout {
    int64_t a_row, a_depth, b_depth, b_column, c_row; /* strides */
    int64_t batch, a_batch, b_batch, c_batch;
} Layout;

static void build(Kernel *kernel, int64_t rows, int64_t columns, int64_t depth, const Layout *l, bool accumulate)
{
    int64_t extent[] = {l->batch, rows, columns, depth};
    int64_t a[] = {l->a_batch, l->a_row, 0, l->a_depth}, b[] = {l->b_batch, 0, l->b_column, l->b_depth};
    int64_t c[] = {l->c_batch, l->c_row, 1, 0};
    kernel_begin(kernel, "product", 4, extent);
    Register x = kernel_load(kernel, kernel_operand(kernel, DTYPE_F32, a));
    Register y = kernel_load(kernel, kernel_operand(kernel, DTYPE_F32, b));
    Register sum = kernel_reduce(kernel, KERNEL_SUM, kernel_binary(kernel, KERNEL_MULTIPLY, x, y));
    kernel_begin_phase(kernel, false);
    int out = kernel_operand(kernel, DTYPE_F32, c);
    if (accumulate)
        kernel_store_add(kernel, out, sum);
    else
        kernel_store(kernel, out, sum);
    kernel_canonicalize(kernel);
}

/* Memory as the runtime allocates it. */
static MemoryRegion allocate(size_t bytes)
{
    MemoryRegion region;
    if (!memory_map(&region, bytes, 1, "benchmark", &diagnostics)) {
        diagnostics_print(&diagnostics, stderr);
        exit(diagnostics.exit_code);
    }
    return region;
}

static MemoryRegion operand(const Kernel *kernel, int number)
{
    int64_t elements = 1;
    for (int i = 0; i < kernel->axis_count; i++)
        elements += (kernel->extent[i] - 1) * kernel->operands[number].stride[i];
    MemoryRegion region = allocate((size_t)elements * sizeof(float));
    float *data = (float *)(void *)region.bytes;
    for (int64_t i = 0; i < elements; i++) data[i] = (float)((i * 37 % 101) - 50) / 64;
    return region;
}

/* The best of several timings of the whole kernel, in GFLOP/s. */
static double measure(const Kernel *kernel)
{
    const Kernel *list[] = {kernel};
    CompiledKernels *compiled = codegen_compile(list, 1, &target, (CodegenOptions){0}, &diagnostics);
    JitProgram *jit = jit_load(compiled, &diagnostics);
    if (!jit) {
        diagnostics_print(&diagnostics, stderr);
        exit(diagnostics.exit_code);
    }
    const CompiledKernel *code = codegen_find(compiled, kernel);
    SkyKernel *function = jit_find(jit, code);
    void *data[3];
    MemoryRegion regions[3], scratch = allocate(code->scratch_bytes + 64);
    for (int i = 0; i < 3; i++) {
        regions[i] = operand(kernel, i);
        data[i] = regions[i].bytes;
    }
    double best = HUGE_VAL, spent = 0;
    for (int i = 0; i < 1000 && (i < 3 || spent < 0.15); i++) {
        double start = bench_seconds();
        function(data, 0, code->units, scratch.bytes);
        double seconds = bench_seconds() - start;
        spent += seconds;
        if (seconds < best) best = seconds;
    }
    for (int i = 0; i < 3; i++) memory_unmap(&regions[i]);
    memory_unmap(&scratch);
    jit_free(jit);
    codegen_free(compiled);
    return kernel_flops(kernel) / best * 1e-9;
}

static void bench_linear(int64_t k, int64_t n, int64_t m, double logarithms[3])
{
    static Kernel kernel;
    double rate[3];
    build(&kernel, m, n, k, &(Layout){.a_row = k, .a_depth = 1, .b_depth = n, .b_column = 1, .c_row = n, .batch = 1},
          false);
    rate[0] = measure(&kernel);
    build(&kernel, m, k, n, &(Layout){.a_row = n, .a_depth = 1, .b_depth = 1, .b_column = n, .c_row = k, .batch = 1},
          false);
    rate[1] = measure(&kernel);
    build(&kernel, k, n, m, &(Layout){.a_row = 1, .a_depth = k, .b_depth = n, .b_column = 1, .c_row = n, .batch = 1},
          true);
    rate[2] = measure(&kernel);
    printf("%5lld %5lld %5lld ", (long long)k, (long long)n, (long long)m);
    for (int i = 0; i < 3; i++) {
        printf("   %6.1f (%.2f)", rate[i], rate[i] / peak);
        logarithms[i] += log(rate[i] / peak);
    }
    printf("\n");
    fflush(stdout);
}

/* Per head: scores = Q K', output = P V, dV = P' dO, with heads as slices of [batch, tokens, heads, size]. */
static void bench_attention(int64_t batch, int64_t heads, int64_t tokens, int64_t size)
{
    static Kernel kernel;
    int64_t pitch = heads * size, square = tokens * tokens;
    Layout qk = {.a_row = pitch,
                 .a_depth = 1,
                 .b_depth = 1,
                 .b_column = pitch,
                 .c_row = tokens,
                 .batch = heads * batch,
                 .a_batch = size,
                 .b_batch = size,
                 .c_batch = square};
    Layout pv = {.a_row = tokens,
                 .a_depth = 1,
                 .b_depth = pitch,
                 .b_column = 1,
                 .c_row = pitch,
                 .batch = heads * batch,
                 .a_batch = square,
                 .b_batch = size,
                 .c_batch = size};
    Layout dv = pv;
    dv.a_row = 1;
    dv.a_depth = tokens;
    double rate[3];
    build(&kernel, tokens, tokens, size, &qk, false);
    rate[0] = measure(&kernel);
    build(&kernel, tokens, size, tokens, &pv, false);
    rate[1] = measure(&kernel);
    build(&kernel, tokens, size, tokens, &dv, false);
    rate[2] = measure(&kernel);
    printf("%3lld heads of %3lld, %4lld tokens: QK' %6.1f (%.2f)   PV %6.1f (%.2f)   P'dO %6.1f (%.2f)\n",
           (long long)(batch * heads), (long long)size, (long long)tokens, rate[0], rate[0] / peak, rate[1],
           rate[1] / peak, rate[2], rate[2] / peak);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    if (!target_init(&target, (TargetOptions){.cpu = argc > 1 ? argv[1] : NULL}, &diagnostics)) {
        diagnostics_print(&diagnostics, stderr);
        return diagnostics.exit_code;
    }
    peak = bench_peak_gflops(&target, 1);
    printf("%s, vectors of %d bytes, peak %.1f GFLOP/s on one core\n", target.cpu, target.vector_bytes, peak);
    printf("    K     N     M            NN              NT              TN\n");
    static const int64_t weights[][2] = {{128, 128},  {128, 512},  {512, 128},   {256, 1024},  {768, 768},
                                         {768, 3072}, {3072, 768}, {1024, 1024}, {1024, 4096}, {4096, 1024}};
    double logarithms[3] = {0};
    int count = 0;
    if (argc == 5) {
        bench_linear(atoll(argv[2]), atoll(argv[3]), atoll(argv[4]), logarithms);
        return 0;
    }
    for (size_t i = 0; i < sizeof weights / sizeof *weights; i++) {
        for (int64_t m = 1024; m <= 4096; m *= 4, count++) bench_linear(weights[i][0], weights[i][1], m, logarithms);
    }
    printf("geometric mean       ");
    for (int i = 0; i < 3; i++) printf("          (%.2f)", exp(logarithms[i] / count));
    printf("\n");
    bench_attention(32, 2, 128, 64);
    bench_attention(8, 12, 128, 64);
    bench_attention(8, 4, 128, 32);
    bench_attention(2, 16, 512, 64);
    target_free(&target);
    return 0;
}
