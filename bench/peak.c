#include "bench/peak.h"

#include <llvm-c/LLJIT.h>

#include "base/clock.h"
#include "codegen/kernels/amx_gemm.h"
#include "codegen/kernels/emit.h"
#include "runtime/program/memory.h"
#include "runtime/program/parallel.h"
#include "runtime/program/tiles.h"

enum {
    ACCUMULATORS = 12,
    ROUNDS = 2000000,
    TILE_PRODUCTS = 4,                        /* of a round */
    TILE_FLOPS = 2 * 16 * 16 * 32,            /* of one */
    TILE_ROUNDS = ROUNDS * ACCUMULATORS / 64, /* about as long */
    TRIES = 12,
    UPDATE_VECTORS = 8, /* of one round */
    UPDATE_BYTES = 1 << 30
};

double bench_seconds(int threads) { return threads > 1 ? monotonic_seconds() : thread_seconds(); }

/* void probe(float *p, i64 begin, i64 end): what one thread does between two readings of the clock. */
typedef void Probe(float *, int64_t, int64_t);
typedef void EmitProbe(Emit *emit, int lanes);

/* ACCUMULATORS fused multiply-adds in each of end - begin rounds. */
static void emit_peak(Emit *emit, int lanes)
{
    Ir p = LLVMGetParam(emit->function, 0), sum[ACCUMULATORS];
    Ir factor = emit_broadcast(emit, emit_load(emit, emit->f32, p, NULL, 4), lanes);
    for (int i = 0; i < ACCUMULATORS; i++) sum[i] = emit_float_like(emit, factor, i);
    EmitLoop loop;
    emit_loop_begin(emit, &loop, LLVMGetParam(emit->function, 1), LLVMGetParam(emit->function, 2), 1, ACCUMULATORS,
                    sum);
    for (int i = 0; i < ACCUMULATORS; i++) sum[i] = emit_fma(emit, loop.carried[i], factor, factor);
    emit_loop_end(emit, &loop, sum);
    Ir total = loop.carried[0];
    for (int i = 1; i < ACCUMULATORS; i++) total = LLVMBuildFAdd(emit->builder, total, loop.carried[i], "");
    emit_store(emit, total, p, NULL, 4);
}

/* As many VDPBF16PS, whose factors are pairs of zeros: how long they take does not depend on that. */
static void emit_bf16_peak(Emit *emit, int lanes)
{
    Ir p = LLVMGetParam(emit->function, 0), sum[ACCUMULATORS];
    LLVMTypeRef pairs = LLVMVectorType(LLVMBFloatTypeInContext(emit->context), 2 * (unsigned)lanes);
    Ir pair = emit_broadcast(emit, emit_load(emit, emit->i32, p, NULL, 4), lanes);
    Ir factor = LLVMBuildBitCast(emit->builder, pair, pairs, "");
    for (int i = 0; i < ACCUMULATORS; i++) sum[i] = emit_splat_constant(LLVMConstReal(emit->f32, i), lanes);
    EmitLoop loop;
    emit_loop_begin(emit, &loop, LLVMGetParam(emit->function, 1), LLVMGetParam(emit->function, 2), 1, ACCUMULATORS,
                    sum);
    for (int i = 0; i < ACCUMULATORS; i++)
        sum[i] = emit_intrinsic(emit, "llvm.x86.avx512bf16.dpbf16ps.512", NULL, 0,
                                (Ir[]){loop.carried[i], factor, factor}, 3);
    emit_loop_end(emit, &loop, sum);
    Ir total = loop.carried[0];
    for (int i = 1; i < ACCUMULATORS; i++) total = LLVMBuildFAdd(emit->builder, total, loop.carried[i], "");
    emit_store(emit, total, p, NULL, 4);
}

/* TILE_PRODUCTS TDPBF16PS of zeros, of two tiles by two, in each round. */
static void emit_amx_peak(Emit *emit, int lanes)
{
    (void)lanes;
    Ir configuration = amx_tile_configuration(emit), tile[8];
    for (int i = 0; i < 8; i++) tile[i] = LLVMConstInt(LLVMInt8TypeInContext(emit->context), (unsigned)i, false);
    emit_intrinsic(emit, "llvm.x86.ldtilecfg", NULL, 0, &configuration, 1);
    for (int i = 0; i < 8; i++) emit_intrinsic(emit, "llvm.x86.tilezero", NULL, 0, &tile[i], 1);
    EmitLoop loop;
    emit_loop_begin(emit, &loop, LLVMGetParam(emit->function, 1), LLVMGetParam(emit->function, 2), 1, 0, NULL);
    for (int i = 0; i < TILE_PRODUCTS; i++)
        emit_intrinsic(emit, "llvm.x86.tdpbf16ps", NULL, 0, (Ir[]){tile[i], tile[4 + i / 2], tile[6 + i % 2]}, 3);
    emit_loop_end(emit, &loop, NULL);
    emit_intrinsic(emit, "llvm.x86.tilerelease", NULL, 0, NULL, 0);
}

/* Elements begin ... end - 1, in place. */
static void emit_update(Emit *emit, int lanes)
{
    Ir p = LLVMGetParam(emit->function, 0);
    LLVMTypeRef vector = emit_vector_type(emit->f32, lanes);
    EmitLoop loop;
    emit_loop_begin(emit, &loop, LLVMGetParam(emit->function, 1), LLVMGetParam(emit->function, 2),
                    (int64_t)lanes * UPDATE_VECTORS, 0, NULL);
    for (int i = 0; i < UPDATE_VECTORS; i++) {
        Ir address = emit_address(emit, emit->f32, p, emit_add(emit, loop.index, emit_i64(emit, (int64_t)i * lanes)));
        Ir x = emit_load(emit, vector, address, NULL, 4);
        emit_store(emit, emit_fma(emit, x, emit_float_like(emit, x, 0.5), emit_float_like(emit, x, 1)), address, NULL,
                   4);
    }
    emit_loop_end(emit, &loop, NULL);
}

static LLVMMemoryBufferRef compile_probe(const Target *target, EmitProbe *body)
{
    LLVMTargetMachineRef machine = target_machine(target);
    FREED_WITH(emit_free) Emit emit = {0};
    emit_init(&emit, target, machine);
    LLVMTypeRef parameters[] = {emit.pointer, emit.i64, emit.i64};
    emit_function(&emit, "probe", LLVMFunctionType(emit.void_type, parameters, 3, false), false);
    body(&emit, target->vector_bytes / 4);
    LLVMBuildRetVoid(emit.builder);
    LLVMMemoryBufferRef object;
    char *message = NULL;
    if (LLVMTargetMachineEmitToMemoryBuffer(machine, emit.module, LLVMObjectFile, &message, &object))
        bug("%s", message);
    LLVMDisposeTargetMachine(machine);
    return object;
}

typedef struct Run {
    Probe *probe;
    float *data;   /* of all threads; NULL: each has its own */
    int64_t count; /* rounds of every thread, or elements of all */
} Run;

static void run_share(void *context, int thread, int threads)
{
    const Run *run = context;
    float own[16] = {1e-9F};
    if (run->data) {
        int64_t blocks = run->count / 4096;
        run->probe(run->data, parallel_begin(blocks, thread, threads) * 4096,
                   parallel_begin(blocks, thread + 1, threads) * 4096);
    } else {
        run->probe(own, 0, run->count);
    }
}

/* Seconds of the fastest try. */
static double time_probe(const Target *target, EmitProbe *body, Run run, int threads)
{
    LLVMOrcLLJITRef jit;
    if (LLVMOrcCreateLLJIT(&jit, NULL)) bug("no LLJIT");
    LLVMOrcExecutorAddress address;
    if (LLVMOrcLLJITAddObjectFile(jit, LLVMOrcLLJITGetMainJITDylib(jit), compile_probe(target, body)) ||
        LLVMOrcLLJITLookup(jit, &address, "probe")) {
        bug("the probe does not load");
    }
    run.probe = (Probe *)(uintptr_t)address;
    double best = 0;
    for (int i = 0; i < TRIES; i++) {
        double start = bench_seconds(threads);
        parallel_run(threads, run_share, &run);
        double seconds = bench_seconds(threads) - start;
        if (i == 0 || seconds < best) best = seconds;
    }
    LLVMConsumeError(LLVMOrcDisposeLLJIT(jit));
    return best;
}

double bench_peak_gflops(const Target *target, int threads)
{
    double seconds = time_probe(target, emit_peak, (Run){.count = ROUNDS}, threads);
    return 2e-9 * ROUNDS * ACCUMULATORS * (target->vector_bytes / 4) * threads / seconds;
}

double bench_bf16_peak_gflops(const Target *target, int threads)
{
    if (!target->bf16) return 0;
    double seconds = time_probe(target, emit_bf16_peak, (Run){.count = ROUNDS}, threads);
    return 4e-9 * ROUNDS * ACCUMULATORS * (target->vector_bytes / 4) * threads / seconds;
}

double bench_amx_peak_gflops(const Target *target, int threads)
{
    if (target->bf16 != BF16_TILES || !tiles_request()) return 0;
    double seconds = time_probe(target, emit_amx_peak, (Run){.count = TILE_ROUNDS}, threads);
    return 1e-9 * TILE_ROUNDS * TILE_PRODUCTS * TILE_FLOPS * threads / seconds;
}

double bench_update_gigabytes(const Target *target, int threads, Diagnostics *diagnostics)
{
    MemoryRegion region;
    if (!memory_map(&region, UPDATE_BYTES, threads, "the measurement of bandwidth", diagnostics)) return 0;
    Run run = {.data = (float *)(void *)region.bytes, .count = UPDATE_BYTES / (int64_t)sizeof(float)};
    double seconds = time_probe(target, emit_update, run, threads);
    memory_unmap(&region);
    return 2e-9 * UPDATE_BYTES / seconds;
}
