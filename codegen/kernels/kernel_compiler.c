#include "codegen/kernels/kernel_compiler.h"

#include <llvm-c/Analysis.h>
#include <llvm-c/Transforms/PassBuilder.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/units.h"
#include "base/user_cache.h"
#include "codegen/kernels/amx_gemm.h"
#include "codegen/kernels/cache.h"
#include "codegen/kernels/coding.h"
#include "codegen/kernels/emit.h"
#include "codegen/kernels/gemm.h"
#include "codegen/kernels/loop.h"
#include "codegen/kernels/pair_gemm.h"
#include "runtime/program/parallel.h"

/* ---- One kernel ---- */

typedef struct KernelPlan {
    enum { PLAN_LOOP, PLAN_GEMM, PLAN_AMX, PLAN_PAIRS, PLAN_CODING } kind;
    GemmPlan gemm;
    AmxPlan reordered;
    PairPlan pairs;
    CodingPlan coding;
    LoopPlan loop;
} KernelPlan;

static void set_units(CompiledKernel *compiled, const Units *units)
{
    compiled->units = units->total;
    if (units->axis_count) compiled->first_axis = units->axes[0];
}

static void plan_kernel(KernelPlan *plan, const Kernel *kernel, const Target *target, CompiledKernel *compiled)
{
    compiled->hash = kernel_hash(kernel);
    char digits[33];
    snprintf(compiled->symbol, sizeof compiled->symbol, "sky_k_%s", hash_format(compiled->hash, digits));
    if (coding_plan(&plan->coding, kernel, target)) {
        plan->kind = PLAN_CODING;
        set_units(compiled, &plan->coding.units);
        compiled->nanoseconds = plan->coding.nanoseconds;
    } else if (amx_plan(&plan->reordered, kernel, target)) {
        const AmxPlan *reordered = &plan->reordered;
        plan->kind = PLAN_AMX;
        set_units(compiled, &reordered->units);
        compiled->nanoseconds = reordered->nanoseconds;
        compiled->scratch_bytes =
            reordered->a_bytes + reordered->b_bytes + reordered->sum_bytes + reordered->tile_bytes;
        compiled->uses_tiles = true;
    } else if (pair_plan(&plan->pairs, kernel, target)) {
        plan->kind = PLAN_PAIRS;
        set_units(compiled, &plan->pairs.units);
        compiled->nanoseconds = plan->pairs.nanoseconds;
        compiled->scratch_bytes = pair_scratch_bytes(&plan->pairs);
    } else if (gemm_plan(&plan->gemm, kernel, target)) {
        plan->kind = PLAN_GEMM;
        set_units(compiled, &plan->gemm.units);
        compiled->nanoseconds = plan->gemm.nanoseconds;
        compiled->scratch_bytes = plan->gemm.b_bytes + plan->gemm.a_bytes + plan->gemm.sum_bytes;
        compiled->precision = plan->gemm.match.precision;
    } else {
        plan->kind = PLAN_LOOP;
        loop_plan(&plan->loop, kernel, target);
        set_units(compiled, &plan->loop.units);
        compiled->nanoseconds = plan->loop.nanoseconds;
    }
}

/* Kernels are emitted as vectors and unrolled already: what is left to do is common subexpressions and what loops
 * compute again. LLVM's own list of passes ("default<O2>") takes ten times as long, for kernels that are no faster. */
#define PASSES "function(early-cse<memssa>,loop-mssa(licm),gvn,instcombine<no-verify-fixpoint>,simplifycfg)"

static void optimise(LLVMModuleRef module, LLVMTargetMachineRef machine)
{
    LLVMPassBuilderOptionsRef options = LLVMCreatePassBuilderOptions();
    LLVMErrorRef error = LLVMRunPasses(module, PASSES, machine, options);
    if (error) bug("LLVM passes: %s", LLVMGetErrorMessage(error));
    LLVMDisposePassBuilderOptions(options);
}

static void emit_kernel(Emit *emit, const Kernel *kernel, const KernelPlan *plan, const CompiledKernel *compiled)
{
    switch (plan->kind) {
    case PLAN_LOOP: loop_emit(emit, kernel, &plan->loop, compiled->symbol); break;
    case PLAN_GEMM: gemm_emit(emit, kernel, &plan->gemm, compiled->symbol); break;
    case PLAN_AMX: amx_emit(emit, kernel, &plan->reordered, compiled->symbol); break;
    case PLAN_CODING: coding_emit(emit, kernel, &plan->coding, compiled->symbol); break;
    case PLAN_PAIRS: pair_emit(emit, kernel, &plan->pairs, compiled->symbol); break;
    }
}

static void finish_module(Emit *emit, LLVMTargetMachineRef machine)
{
    char *message = NULL;
    if (LLVMVerifyModule(emit->module, LLVMReturnStatusAction, &message))
        bug("%s\n%s", message, LLVMPrintModuleToString(emit->module));
    LLVMDisposeMessage(message);
    optimise(emit->module, machine);
}

static void append_code(LLVMTargetMachineRef machine, LLVMModuleRef module, LLVMCodeGenFileType form, Buffer *buffer)
{
    LLVMMemoryBufferRef code = NULL;
    char *message = NULL;
    if (LLVMTargetMachineEmitToMemoryBuffer(machine, module, form, &message, &code)) bug("LLVM: %s", message);
    buffer_append(buffer, LLVMGetBufferStart(code), LLVMGetBufferSize(code));
    LLVMDisposeMemoryBuffer(code);
}

/* Whether the cache had it. */
static bool compile_kernel(const Kernel *kernel, const Target *target, const Cache *cache, CompiledKernel *compiled)
{
    KernelPlan plan;
    plan_kernel(&plan, kernel, target, compiled);
    if (cache_load(cache, compiled->hash, &compiled->object)) return true;
    LLVMTargetMachineRef machine = target_machine(target);
    Emit emit;
    emit_init(&emit, target, machine);
    emit_kernel(&emit, kernel, &plan, compiled);
    finish_module(&emit, machine);
    append_code(machine, emit.module, LLVMObjectFile, &compiled->object);
    emit_free(&emit);
    LLVMDisposeTargetMachine(machine);
    cache_store(cache, compiled->hash, &compiled->object);
    return false;
}

/* ---- A set of kernels ---- */

typedef struct Entry {
    Hash hash;
    const Kernel *kernel;
    size_t position;
} Entry;

static int compare_hashes(Hash a, Hash b)
{
    if (a.high != b.high) return a.high < b.high ? -1 : 1;
    return a.low < b.low ? -1 : a.low > b.low;
}

static int compare_entries(const void *a, const void *b)
{
    const Entry *x = a, *y = b;
    int order = compare_hashes(x->hash, y->hash);
    if (order) return order;
    return x->position < y->position ? -1 : x->position > y->position;
}

/* Sorted by hash, each once. */
static size_t distinct_kernels(Entry *entries, const Kernel *const *kernels, size_t count)
{
    for (size_t i = 0; i < count; i++) entries[i] = (Entry){kernel_hash(kernels[i]), kernels[i], i};
    qsort(entries, count, sizeof *entries, compare_entries);
    size_t distinct = 0;
    for (size_t i = 0; i < count; i++) {
        if (i > 0 && compare_hashes(entries[i].hash, entries[distinct - 1].hash) == 0) continue;
        entries[distinct++] = entries[i];
    }
    return distinct;
}

typedef struct Turn {
    int effort;
    size_t kernel;
} Turn;

static int compare_turns(const void *a, const void *b)
{
    const Turn *x = a, *y = b;
    if (x->effort != y->effort) return x->effort > y->effort ? -1 : 1;
    return x->kernel < y->kernel ? -1 : x->kernel > y->kernel;
}

/* What takes long comes first, lest one thread is left with it in the end: matrix products, whose tiles are unrolled,
 * with what is fused into them. To be freed. */
static Turn *compile_order(const CompiledKernels *compiled)
{
    enum { PRODUCT = 1000 };
    Turn *turns = memory_allocate((compiled->count + 1) * sizeof *turns);
    for (size_t i = 0; i < compiled->count; i++) {
        KernelGemm gemm;
        int effort = compiled->sources[i]->instruction_count;
        turns[i] = (Turn){kernel_match_gemm(compiled->sources[i], &gemm) ? effort + PRODUCT : effort, i};
    }
    qsort(turns, compiled->count, sizeof *turns, compare_turns);
    return turns;
}

/* Threads take the next kernel as they become free. */
typedef struct CompileQueue {
    CompiledKernels *compiled;
    const Turn *turns;
    Cache cache;
    atomic_size_t next, cached;
} CompileQueue;

static void compile_queued(void *context, int thread, int threads)
{
    (void)thread, (void)threads;
    CompileQueue *queue = context;
    CompiledKernels *compiled = queue->compiled;
    for (size_t turn; (turn = atomic_fetch_add(&queue->next, 1)) < compiled->count;) {
        size_t i = queue->turns[turn].kernel;
        if (compile_kernel(compiled->sources[i], compiled->target, &queue->cache, &compiled->kernels[i]))
            atomic_fetch_add(&queue->cached, 1);
    }
}

KernelCacheOptions kernel_cache_defaults(Arena *arena)
{
    KernelCacheOptions options = {.cache_directory = user_cache_directory(arena)};
    options.cache_limit_invalid = !cache_default_limit(&options.cache_limit);
    return options;
}

/* Where products run on units for float32 for lack of others. */
static void warn_of_emulation(const CompiledKernels *compiled, Diagnostics *diagnostics)
{
    const Target *target = compiled->target;
    bool computes[PRODUCTS_BF16X3 + 1] = {0};
    for (size_t i = 0; i < compiled->count; i++) computes[compiled->kernels[i].precision] = true;
    if (computes[PRODUCTS_BF16X3] && target->bf16 != BF16_TILES)
        diagnostics_warning(
            diagnostics, PLACE_NONE, NULL,
            "%s (%s) has no AMX and multiplies float32 faster than three times bf16: --precision bf16x3 "
            "computes as f32 there",
            target->cpu, target->triple);
    if (computes[PRODUCTS_BF16] && !target->bf16)
        diagnostics_warning(diagnostics, PLACE_NONE, "--precision f32 is faster there",
                            "%s (%s) has no instructions for bf16: they are emulated", target->cpu, target->triple);
}

CompiledKernels *kernels_compile(const Kernel *const *kernels, size_t count, const Target *target,
                                 KernelCacheOptions options, Diagnostics *diagnostics)
{
    Entry *entries = memory_allocate((count + 1) * sizeof *entries);
    CompiledKernels *compiled = memory_allocate(sizeof *compiled);
    size_t distinct = distinct_kernels(entries, kernels, count);
    *compiled = (CompiledKernels){.target = target, .count = distinct};
    compiled->sources = memory_allocate((distinct + 1) * sizeof *compiled->sources);
    compiled->kernels = memory_allocate((distinct + 1) * sizeof *compiled->kernels);
    memset(compiled->kernels, 0, (distinct + 1) * sizeof *compiled->kernels);
    for (size_t i = 0; i < distinct; i++) compiled->sources[i] = entries[i].kernel;
    free(entries);
    Turn *turns = compile_order(compiled);
    CompileQueue queue = {.compiled = compiled, .turns = turns};
    cache_open(&queue.cache, options.cache_directory, target, diagnostics);
    parallel_run(parallel_threads(0), compile_queued, &queue);
    free(turns);
    compiled->cached = queue.cached;
    if (compiled->cached < distinct) cache_prune(&queue.cache, options.cache_limit);
    if (options.cache_limit_invalid)
        diagnostics_warning(diagnostics, PLACE_NONE, UNITS_BYTES_HINT, "SKYCC_CACHE_SIZE is no size: ignored");
    warn_of_emulation(compiled, diagnostics);
    return compiled;
}

const CompiledKernel *kernels_find(const CompiledKernels *compiled, const Kernel *kernel)
{
    Hash hash = kernel_hash(kernel);
    size_t low = 0, high = compiled->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = compare_hashes(compiled->kernels[middle].hash, hash);
        if (order == 0) return &compiled->kernels[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

void kernels_free(CompiledKernels *compiled)
{
    if (!compiled) return;
    for (size_t i = 0; i < compiled->count; i++) buffer_free(&compiled->kernels[i].object);
    free(compiled->kernels);
    free(compiled->sources);
    free(compiled);
}

/* What the functions compute, as comments: "#" begins one in the assembly of every target. */
static void print_description(const CompiledKernel *compiled, const Kernel *kernel, KernelText form, Buffer *text)
{
    char mark = form == KERNEL_TEXT_LLVM ? ';' : '#';
    FREED_WITH(buffer_free) Buffer description = {0};
    kernel_print(kernel, &description);
    buffer_print(text, "%c %s:\n", mark, compiled->symbol);
    for (const char *line = buffer_text(&description); *line;) {
        int length = (int)strcspn(line, "\n");
        buffer_print(text, "%c   %.*s\n", mark, length, line);
        line += length + (line[length] == '\n');
    }
    buffer_print(text, "\n");
}

void kernels_print(const CompiledKernels *compiled, KernelText form, Buffer *text)
{
    LLVMTargetMachineRef machine = target_machine(compiled->target);
    Emit emit;
    emit_init(&emit, compiled->target, machine);
    for (size_t i = 0; i < compiled->count; i++) {
        KernelPlan plan;
        CompiledKernel planned = {0};
        plan_kernel(&plan, compiled->sources[i], compiled->target, &planned);
        print_description(&planned, compiled->sources[i], form, text);
        emit_kernel(&emit, compiled->sources[i], &plan, &planned);
    }
    finish_module(&emit, machine);
    if (form == KERNEL_TEXT_LLVM) {
        char *ir = LLVMPrintModuleToString(emit.module);
        buffer_append(text, ir, strlen(ir));
        LLVMDisposeMessage(ir);
    } else {
        append_code(machine, emit.module, LLVMAssemblyFile, text);
    }
    emit_free(&emit);
    LLVMDisposeTargetMachine(machine);
}

/* ---- Programs ---- */

void kernel_list_add_program(KernelList *list, const SkyProgram *program)
{
    for (uint32_t s = 0; s < program->stage_count; s++)
        for (uint32_t c = 0; c < sky_call_count(&program->stages[s]); c++)
            array_push(list->kernels, list->count, list->capacity, sky_call(&program->stages[s], c)->interpreted);
}

CompiledKernels *kernels_compile_program(const SkyProgram *program, const Target *target, KernelCacheOptions options,
                                         Diagnostics *diagnostics)
{
    KernelList list = {0};
    kernel_list_add_program(&list, program);
    CompiledKernels *compiled = kernels_compile(list.kernels, list.count, target, options, diagnostics);
    free(list.kernels);
    return compiled;
}

/* Whether the kernel uses AMX tiles. */
static bool bind_call(const CompiledKernels *compiled, const JitProgram *jit, SkyStage *stage, SkyCall *call)
{
    const CompiledKernel *kernel = kernels_find(compiled, call->interpreted);
    if (!kernel) bug("call %s: its kernel was not compiled", call->name);
    call->units = kernel->units;
    call->nanoseconds = kernel->nanoseconds * sky_call_runs(call);
    const UnitAxis *axis = &kernel->first_axis;
    if (call->line_axis && axis->step && axis->axis == (int)call->line_axis - 1 && kernel->units) {
        call->unit_extent = (uint32_t)axis->step;
        call->unit_count = (uint32_t)(kernel->units / axis->count);
    }
    if (call->block_count && kernel->units % call->block_count)
        bug("call %s: its %lld work units are not of %u blocks", call->name, (long long)kernel->units,
            call->block_count);
    if (jit) call->kernel = jit_find(jit, kernel);
    if (stage->thread_scratch_bytes < kernel->scratch_bytes) stage->thread_scratch_bytes = kernel->scratch_bytes;
    return kernel->uses_tiles;
}

void kernels_bind(const CompiledKernels *compiled, const JitProgram *jit, SkyProgram *program)
{
    for (uint32_t s = 0; s < program->stage_count; s++) {
        SkyStage *stage = (SkyStage *)&program->stages[s];
        for (uint32_t c = 0; c < sky_call_count(stage); c++)
            program->uses_tiles |= bind_call(compiled, jit, stage, (SkyCall *)sky_call(stage, c));
    }
}
