#include "profiler/probe/measure.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/order.h"
#include "codegen/kernels/kernel_compiler.h"
#include "runtime/program/parallel.h"
#include "runtime/program/waves.h"

enum { SAMPLES = 7 };
static const double sample_s = 2e-3, budget_s = 0.5; /* least length of a sample; most time for one kernel */

double measure_now_s(int threads) { return threads > 1 ? monotonic_seconds() : thread_seconds(); }

size_t measure_operand_bytes(const Kernel *kernel, const KernelOperand *operand)
{
    int64_t last = 0;
    for (int a = 0; a < kernel->axis_count; a++)
        if (operand->stride[a] > 0) last += (kernel->extent[a] - 1) * operand->stride[a];
    int64_t elements = last + 1 > operand->elements ? last + 1 : operand->elements;
    return (size_t)dtype_bytes(operand->dtype, elements + DTYPE_BLOCK - 1);
}

/* A compiled kernel over its own buffers. */
typedef struct Bench {
    SkyKernel *function;
    void *operands[KERNEL_MAX_OPERANDS];
    char *scratch; /* scratch_bytes for every thread */
    size_t scratch_bytes;
    int64_t units;
    int threads;
} Bench;

static void run_share(void *context, int thread, int threads)
{
    const Bench *bench = context;
    int64_t begin = parallel_begin(bench->units, thread, threads);
    int64_t end = parallel_begin(bench->units, thread + 1, threads);
    if (begin < end)
        bench->function(bench->operands, begin, end, bench->scratch + (size_t)thread * bench->scratch_bytes,
                        SKY_NO_LIMIT);
}

static double run_s(Bench *bench, int times)
{
    double start = measure_now_s(bench->threads);
    for (int i = 0; i < times; i++) parallel_run(bench->threads, run_share, bench);
    return (measure_now_s(bench->threads) - start) / times;
}

static void *new_buffer(size_t bytes)
{
    void *buffer;
    if (posix_memalign(&buffer, 64, bytes + 64) != 0) memory_exhausted();
    memset(buffer, 0, bytes + 64);
    return buffer;
}

/* What a compiled kernel takes over its own buffers. */
static double kernel_s(const CompiledKernels *compiled, const JitProgram *jit, const Kernel *source, int threads)
{
    const CompiledKernel *kernel = compiled->kernels;
    for (Hash hash = kernel_hash(source); !hash_equal(kernel->hash, hash);) kernel++;
    SkyKernel *function = jit_find(jit, kernel);
    Bench bench = {.function = function,
                   .units = kernel->units,
                   .threads = wave_sharers((double)kernel->nanoseconds, kernel->units, threads)};
    for (int i = 0; i < source->operand_count; i++)
        bench.operands[i] = new_buffer(measure_operand_bytes(source, &source->operands[i]));
    bench.scratch_bytes = (kernel->scratch_bytes + 63) / 64 * 64;
    bench.scratch = new_buffer(bench.scratch_bytes * (size_t)bench.threads);

    double begun = measure_now_s(bench.threads), once = run_s(&bench, 1);
    int times = once > sample_s ? 1 : (int)(sample_s / (once + 1e-8)) + 1;
    double samples[SAMPLES];
    int count = 0;
    do samples[count++] = run_s(&bench, times);
    while (count < SAMPLES && measure_now_s(bench.threads) - begun < budget_s);

    free(bench.scratch);
    for (int i = 0; i < source->operand_count; i++) free(bench.operands[i]);
    return median(samples, (size_t)count);
}

void measure_describe_product(Kernel *kernel, int size)
{
    int64_t rows = 128 << size, side = 256 << size;
    kernel_begin(kernel, "product", 3, (int64_t[]){rows, side, side});
    Register a = kernel_load(kernel, kernel_operand(kernel, DTYPE_F32, (int64_t[]){side, 0, 1}));
    Register b = kernel_load(kernel, kernel_operand(kernel, DTYPE_F32, (int64_t[]){0, 1, side}));
    Register sum = kernel_reduce(kernel, KERNEL_SUM, kernel_binary(kernel, KERNEL_MULTIPLY, a, b));
    kernel_begin_phase(kernel, false);
    kernel_store(kernel, kernel_operand(kernel, DTYPE_F32, (int64_t[]){side, 1, 0}), sum);
    kernel_canonicalize(kernel);
}

void measure_describe_sum(Kernel *kernel, int size)
{
    kernel_begin(kernel, "sum", 1, (int64_t[]){(int64_t)1 << (20 + 2 * (size < MEASURE_USUAL ? size : MEASURE_USUAL))});
    Register a = kernel_load(kernel, kernel_operand(kernel, DTYPE_F32, (int64_t[]){1}));
    Register b = kernel_load(kernel, kernel_operand(kernel, DTYPE_F32, (int64_t[]){1}));
    kernel_store(kernel, kernel_operand(kernel, DTYPE_F32, (int64_t[]){1}), kernel_binary(kernel, KERNEL_ADD, a, b));
    kernel_canonicalize(kernel);
}

bool measure_machine(MachineProfile *machine, const Target *target, Diagnostics *diagnostics)
{
    FREED_WITH(arena_free) Arena arena = {0};
    Kernel *product = arena_new(&arena, Kernel), *sum = arena_new(&arena, Kernel);
    measure_describe_product(product, MEASURE_USUAL);
    measure_describe_sum(sum, MEASURE_USUAL);
    const Kernel *kernels[] = {product, sum};
    CompiledKernels *compiled = kernels_compile(kernels, 2, target, kernel_cache_defaults(&arena), diagnostics);
    JitProgram *jit = compiled ? jit_load(compiled, diagnostics) : NULL;
    if (jit) {
        machine->gflops = 1e-9 * kernel_flops(product) / kernel_s(compiled, jit, product, machine->threads);
        machine->bandwidth_Bps = kernel_bytes(sum) / kernel_s(compiled, jit, sum, machine->threads);
    }
    bool ok = jit;
    jit_free(jit);
    if (compiled) kernels_free(compiled);
    return ok;
}
