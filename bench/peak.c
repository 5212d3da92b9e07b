#include "bench/peak.h"

#include <llvm-c/LLJIT.h>
#include <time.h>

#include "codegen/emit.h"

enum { ACCUMULATORS = 12, ROUNDS = 2000000, TRIES = 12 };

double bench_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* void peak(float *p): ROUNDS times ACCUMULATORS fused multiply-adds. */
static void emit_peak(Emit *emit, int lanes)
{
    emit_function(emit, "peak", LLVMFunctionType(emit->void_type, &emit->pointer, 1, false), false);
    Ir p = LLVMGetParam(emit->function, 0), sum[ACCUMULATORS];
    Ir factor = emit_broadcast(emit, emit_load(emit, emit->f32, p, NULL, 4), lanes);
    for (int i = 0; i < ACCUMULATORS; i++) sum[i] = emit_float_like(emit, factor, i);
    Loop loop;
    emit_loop_begin(emit, &loop, emit_i64(emit, 0), emit_i64(emit, ROUNDS), 1, ACCUMULATORS, sum);
    for (int i = 0; i < ACCUMULATORS; i++) sum[i] = emit_fma(emit, loop.carried[i], factor, factor);
    emit_loop_end(emit, &loop, sum);
    Ir total = loop.carried[0];
    for (int i = 1; i < ACCUMULATORS; i++) total = LLVMBuildFAdd(emit->builder, total, loop.carried[i], "");
    emit_store(emit, total, p, NULL, 4);
    LLVMBuildRetVoid(emit->builder);
}

double bench_peak_gflops(const Target *target)
{
    int lanes = target->vector_bytes / 4;
    LLVMTargetMachineRef machine = target_machine(target);
    Emit emit;
    emit_init(&emit, target, machine);
    emit_peak(&emit, lanes);
    LLVMMemoryBufferRef object;
    char *message = NULL;
    if (LLVMTargetMachineEmitToMemoryBuffer(machine, emit.module, LLVMObjectFile, &message, &object))
        bug("%s", message);
    emit_free(&emit);
    LLVMDisposeTargetMachine(machine);
    LLVMOrcLLJITRef jit;
    if (LLVMOrcCreateLLJIT(&jit, NULL)) bug("no LLJIT");
    LLVMOrcExecutorAddress address;
    if (LLVMOrcLLJITAddObjectFile(jit, LLVMOrcLLJITGetMainJITDylib(jit), object) ||
        LLVMOrcLLJITLookup(jit, &address, "peak")) {
        bug("the probe does not load");
    }
    void (*peak)(float *) = (void (*)(float *))(uintptr_t)address;
    float data[16];
    double best = 0;
    for (int i = 0; i < TRIES; i++) {
        data[0] = 1e-9F;
        double start = bench_seconds();
        peak(data);
        double rate = 2e-9 * ROUNDS * ACCUMULATORS * lanes / (bench_seconds() - start);
        if (rate > best) best = rate;
    }
    LLVMConsumeError(LLVMOrcDisposeLLJIT(jit));
    return best;
}
