#include "profiler/measure.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SAMPLES = 7 };
static const double sample_s = 2e-3, budget_s = 0.5; /* least length of a sample; most time for one kernel */

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now); /* not the time that other work on this machine takes */
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Elements from the operand's address to the last one it touches. */
static size_t operand_elements(const Kernel *kernel, const KernelOperand *operand)
{
    int64_t last = 0;
    for (int a = 0; a < kernel->axis_count; a++)
        if (operand->stride[a] > 0) last += (kernel->extent[a] - 1) * operand->stride[a];
    return (size_t)(last + 1 > operand->elements ? last + 1 : operand->elements);
}

static double run_s(SkyKernel *function, void *const *operands, const CompiledKernel *kernel, void *scratch, int times)
{
    double start = now_s();
    for (int i = 0; i < times; i++) function(operands, 0, kernel->units, scratch);
    return (now_s() - start) / times;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double measure(const Kernel *source, const CompiledKernel *kernel, SkyKernel *function)
{
    void *operands[KERNEL_MAX_OPERANDS], *scratch = NULL;
    for (int i = 0; i < source->operand_count; i++) {
        size_t bytes = operand_elements(source, &source->operands[i]) * dtype_size(source->operands[i].dtype);
        if (posix_memalign(&operands[i], 64, bytes + 64) != 0) memory_exhausted();
        memset(operands[i], 0, bytes + 64);
    }
    if (posix_memalign(&scratch, 64, kernel->scratch_bytes + 64) != 0) memory_exhausted();

    double begun = now_s(), once = run_s(function, operands, kernel, scratch, 1);
    int times = once > sample_s ? 1 : (int)(sample_s / (once + 1e-8)) + 1;
    double samples[SAMPLES];
    int count = 0;
    do samples[count++] = run_s(function, operands, kernel, scratch, times);
    while (count < SAMPLES && now_s() - begun < budget_s);
    qsort(samples, (size_t)count, sizeof *samples, ascending);

    free(scratch);
    for (int i = 0; i < source->operand_count; i++) free(operands[i]);
    return samples[count / 2];
}

static bool known(const Profile *profile, Hash hash)
{
    for (size_t i = 0; i < profile->kernel_count; i++)
        if (profile->kernels[i].kernel.high == hash.high && profile->kernels[i].kernel.low == hash.low) return true;
    return false;
}

void measure_kernels(Profile *profile, const CompiledKernels *compiled, const JitProgram *jit)
{
    KernelTime *times = arena_new_array(&profile->arena, KernelTime, profile->kernel_count + compiled->count);
    if (profile->kernel_count) memcpy(times, profile->kernels, profile->kernel_count * sizeof *times);
    profile->kernels = times;
    for (size_t i = 0; i < compiled->count; i++) {
        const CompiledKernel *kernel = &compiled->kernels[i];
        if (known(profile, kernel->hash)) continue;
        double seconds = measure(compiled->sources[i], kernel, jit_find(jit, kernel));
        times[profile->kernel_count++] = (KernelTime){kernel->hash, seconds};
    }
    profile_sort(profile);
}
