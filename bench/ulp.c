/* The largest error of every elementary function that kernels compute, over all floats:
 *
 *   bench_ulp [CPU [STRIDE]]     code for a processor (default: native) that this one can stand in for; every STRIDEth
 *                                float (default: 1)
 *
 * In units in the last place, compared with the C library's double functions. Exits with 1 where an error is above 4,
 * or where NaN or an infinity comes out and should not, or should and does not. All 2^32 floats take some minutes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/kernels/kernel_compiler.h"
#include "runtime/program/parallel.h"
#include "tests/common/ulp.h"

enum { BLOCK = 1 << 16 };

static const double most_ulps = 4;

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

static const struct {
    const char *name;
    KernelOp op;
    double (*exact)(double);
} functions[] = {{"exp", KERNEL_EXP, exp},
                 {"log", KERNEL_LOG, log},
                 {"erf", KERNEL_ERF, erf},
                 {"tanh", KERNEL_TANH, tanh},
                 {"sigmoid", KERNEL_SIGMOID, sigmoid}};

typedef struct Worst {
    double error;
    float where, found;
} Worst;

typedef struct Sweep {
    SkyKernel *kernel;
    int64_t units, blocks;
    uint64_t stride;
    double (*exact)(double);
    Worst *worst; /* per thread */
} Sweep;

/* Floats by their bits, block after block. */
static void sweep_share(void *context, int thread, int threads)
{
    const Sweep *sweep = context;
    FREED float *x = memory_allocate(BLOCK * sizeof *x), *y = memory_allocate(BLOCK * sizeof *y);
    Worst worst = {0};
    int64_t end = parallel_begin(sweep->blocks, thread + 1, threads);
    for (int64_t block = parallel_begin(sweep->blocks, thread, threads); block < end; block++) {
        for (int64_t i = 0; i < BLOCK; i++) {
            uint32_t bits = (uint32_t)((uint64_t)(block * BLOCK + i) * sweep->stride);
            memcpy(&x[i], &bits, sizeof bits);
        }
        sweep->kernel((void *const[]){x, y}, 0, sweep->units, NULL, SKY_NO_LIMIT);
        for (int64_t i = 0; i < BLOCK; i++) {
            double error = ulp_error(y[i], sweep->exact(x[i]));
            if (error > worst.error) worst = (Worst){error, x[i], y[i]};
        }
    }
    sweep->worst[thread] = worst;
}

static Worst sweep(SkyKernel *kernel, int64_t units, uint64_t stride, double (*exact)(double))
{
    int threads = parallel_processors();
    Sweep all = {.kernel = kernel, .units = units, .stride = stride, .exact = exact};
    all.blocks = (int64_t)(((1ull << 32) + stride * BLOCK - 1) / (stride * BLOCK));
    all.worst = calloc((size_t)threads, sizeof *all.worst);
    parallel_run(threads, sweep_share, &all);
    Worst worst = {0};
    for (int i = 0; i < threads; i++)
        if (all.worst[i].error > worst.error) worst = all.worst[i];
    free(all.worst);
    return worst;
}

static void build(Kernel *kernel, KernelOp op)
{
    int64_t extent[] = {BLOCK}, stride[] = {1};
    kernel_begin(kernel, "function", 1, extent);
    Register x = kernel_load(kernel, kernel_operand(kernel, DTYPE_F32, stride));
    Register y = kernel_unary(kernel, op, x);
    kernel_store(kernel, kernel_operand(kernel, DTYPE_F32, stride), y);
}

int main(int argc, char **argv)
{
    Diagnostics diagnostics = {0};
    FREED_WITH(target_free) Target target = {0};
    uint64_t stride = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    bool accurate = true;
    if (!stride) return fputs("usage: bench_ulp [CPU [STRIDE]]\n", stderr), EXIT_USAGE;
    if (!target_init(&target, (TargetOptions){.cpu = argc > 1 ? argv[1] : NULL}, &diagnostics)) {
        diagnostics_print(&diagnostics, stderr);
        return diagnostics.exit_code;
    }
    printf("%s, vectors of %d bytes\n", target.cpu, target.vector_bytes);
    for (size_t f = 0; f < sizeof functions / sizeof *functions; f++) {
        static Kernel kernel;
        build(&kernel, functions[f].op);
        const Kernel *list[] = {&kernel};
        CompiledKernels *compiled = kernels_compile(list, 1, &target, (KernelCacheOptions){0}, &diagnostics);
        JitProgram *jit = jit_load(compiled, &diagnostics);
        if (!jit) bug("the code does not load");
        Worst worst = sweep(jit_find(jit, compiled->kernels), compiled->kernels->units, stride, functions[f].exact);
        printf("%-8s %.3f ulp, at %.9g: %.9g\n", functions[f].name, worst.error, (double)worst.where,
               (double)worst.found);
        fflush(stdout);
        accurate = accurate && worst.error <= most_ulps;
        jit_free(jit);
        kernels_free(compiled);
    }
    return accurate ? 0 : 1;
}
