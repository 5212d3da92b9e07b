#include "tests/frontend/onnx/compiled_calls.h"

#include "codegen/kernels/kernel_compiler.h"

typedef struct KnownKernel {
    Hash hash;
    SkyKernel *function;
    int64_t units;
    size_t scratch_bytes;
} KnownKernel;

static KnownKernel *known;
static size_t known_count, known_capacity;

static const KnownKernel *find(const Kernel *kernel)
{
    Hash hash = kernel_hash(kernel);
    for (size_t i = 0; i < known_count; i++)
        if (known[i].hash.high == hash.high && known[i].hash.low == hash.low) return &known[i];
    return NULL;
}

/* Compiles the kernels into this process, where they stay. */
static bool learn(const Kernel *const *kernels, size_t count, Diagnostics *diagnostics)
{
    static Target target;
    if (!count) return true;
    if (!target.triple && !target_init(&target, (TargetOptions){0}, diagnostics)) return false;
    CompiledKernels *code = kernels_compile(kernels, count, &target, (KernelCacheOptions){0}, diagnostics);
    JitProgram *jit = code ? jit_load(code, diagnostics) : NULL;
    for (size_t i = 0; jit && i < code->count; i++) {
        const CompiledKernel *kernel = &code->kernels[i];
        KnownKernel added = {kernel->hash, jit_find(jit, kernel), kernel->units, kernel->scratch_bytes};
        array_push(known, known_count, known_capacity, added);
    }
    return jit != NULL;
}

bool compiled_calls_run(Evaluator *evaluator)
{
    const Lowering *lowering = &evaluator->lowering;
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    const Kernel **fresh = memory_allocate((lowering->call_count + 1) * sizeof *fresh);
    size_t count = 0;
    for (size_t i = 0; i < lowering->call_count; i++)
        if (!find(lowering->calls[i].kernel)) fresh[count++] = lowering->calls[i].kernel;
    bool ok = learn(fresh, count, &diagnostics);
    for (size_t i = 0; ok && i < lowering->call_count; i++) {
        void *address[KERNEL_MAX_OPERANDS];
        evaluator_addresses(evaluator, &lowering->calls[i], address);
        const KnownKernel *kernel = find(lowering->calls[i].kernel);
        FREED void *scratch = aligned_alloc(64, (kernel->scratch_bytes + 64) / 64 * 64);
        if (kernel->units) kernel->function(address, 0, kernel->units, scratch, SKY_NO_LIMIT);
    }
    diagnostics_print(&diagnostics, stdout);
    free(fresh);
    return ok;
}
