#include "runtime/execute.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/parallel.h"
#include "runtime/subnormals.h"
#include "base/tiles.h"

enum { MAX_OPERANDS = 64 };

typedef struct CallShare {
    const SkyCall *call;
    void *const *operands;
    unsigned char *scratch;
    size_t scratch_stride;
    bool flush; /* takes subnormal numbers for 0 */
} CallShare;

/* An empty space stays NULL. */
static unsigned char *at(unsigned char *base, size_t offset) { return base ? base + offset : NULL; }

static void run_share(void *context, int thread, int threads)
{
    const CallShare *share = context;
    int64_t begin = parallel_begin(share->call->units, thread, threads);
    int64_t end = parallel_begin(share->call->units, thread + 1, threads);
    if (begin >= end) return;
    uint64_t before = share->flush ? subnormals_flush() : 0;
    share->call->kernel(share->operands, begin, end, at(share->scratch, (size_t)thread * share->scratch_stride));
    if (share->flush) subnormals_restore(before);
}

static int threads_for(const Execution *execution, const SkyCall *call)
{
    int64_t worthwhile = call->grain > 0 ? call->units / call->grain : call->units;
    return worthwhile < execution->threads ? (int)(worthwhile < 1 ? 1 : worthwhile) : execution->threads;
}

static bool out_of_range(const SkyCall *call, Diagnostics *diagnostics)
{
    Place place = {.object = call->name};
    return diagnostics_error(diagnostics, EXIT_RUN_FAILED, place,
                             "check that ids lie inside the vocabulary and labels inside the classes",
                             "an index is outside the tensor it reads");
}

/* Where each space starts for one call. */
typedef struct Bases {
    unsigned char *space[SKY_SPACE_COUNT];
} Bases;

static Bases bases_of(const Execution *execution, uint32_t stage, uint32_t slot)
{
    const StageSpaces *spaces = &execution->stages[stage];
    return (Bases){{[SKY_SPACE_CONSTANT] = (unsigned char *)(uintptr_t)spaces->stage->constants,
                    [SKY_SPACE_STATE] = spaces->state.bytes,
                    [SKY_SPACE_SLOT] = at(spaces->slots.bytes, slot * spaces->slot_stride),
                    [SKY_SPACE_SCRATCH] = execution->scratch.bytes,
                    [SKY_SPACE_STEP] = (unsigned char *)(uintptr_t)execution->step}};
}

static bool run_call(Execution *execution, const SkyCall *call, const Bases *bases, bool flush,
                     Diagnostics *diagnostics)
{
    void *operands[MAX_OPERANDS];
    for (uint32_t i = 0; i < call->operand_count; i++)
        operands[i] = bases->space[call->operands[i].space] + call->operands[i].offset;
    if (!call->kernel) {
        if (!execution->interpreter(call->interpreted, operands)) return out_of_range(call, diagnostics);
    } else {
        CallShare share = {call, operands, execution->thread_scratch.bytes, execution->thread_scratch_stride, flush};
        parallel_run(threads_for(execution, call), run_share, &share);
    }
    if (execution->between) execution->between(execution->between_context);
    return true;
}

static bool run_list(Execution *execution, const SkyCall *calls, uint32_t count, uint32_t stage, uint32_t slot,
                     Diagnostics *diagnostics)
{
    Bases bases = bases_of(execution, stage, slot);
    for (uint32_t i = 0; i < count; i++)
        if (!run_call(execution, &calls[i], &bases, false, diagnostics)) return false;
    return true;
}

bool execution_forward(Execution *execution, uint32_t stage, uint32_t slot, Diagnostics *diagnostics)
{
    const SkyStage *s = execution->stages[stage].stage;
    return run_list(execution, s->forward, s->forward_count, stage, slot, diagnostics);
}

bool execution_backward(Execution *execution, uint32_t stage, uint32_t slot, Diagnostics *diagnostics)
{
    const SkyStage *s = execution->stages[stage].stage;
    return run_list(execution, s->backward, s->backward_count, stage, slot, diagnostics);
}

bool execution_weight_gradient(Execution *execution, uint32_t stage, uint32_t slot, Diagnostics *diagnostics)
{
    const SkyStage *s = execution->stages[stage].stage;
    return run_list(execution, s->weight_gradient, s->weight_gradient_count, stage, slot, diagnostics);
}

bool execution_update(Execution *execution, uint32_t stage, Diagnostics *diagnostics)
{
    const StageSpaces *spaces = &execution->stages[stage];
    for (uint32_t i = 0; i < spaces->stage->update_count; i++) {
        Bases bases = bases_of(execution, stage, 0);
        bases.space[SKY_SPACE_STEP] = (unsigned char *)(execution->step + spaces->step_offset[i]);
        if (!run_call(execution, &spaces->stage->update[i], &bases, true, diagnostics)) return false;
    }
    return true;
}

void *execution_address(const Execution *execution, uint32_t stage, uint32_t slot, SkyLocation location)
{
    Bases bases = bases_of(execution, stage, slot);
    return at(bases.space[location.space], location.offset);
}

static void check_calls(const SkyStage *stage, const SkyCall *calls, uint32_t count, const Execution *execution)
{
    for (uint32_t i = 0; i < count; i++) {
        const SkyCall *call = &calls[i];
        if (call->operand_count > MAX_OPERANDS) bug("stage %u: %s has too many operands", stage->index, call->name);
        if (!call->interpreted && !call->kernel) bug("stage %u: %s has no code", stage->index, call->name);
        if (!call->kernel && !execution->interpreter)
            bug("stage %u: %s needs an interpreter", stage->index, call->name);
        for (uint32_t k = 0; k < call->operand_count; k++)
            if (call->operands[k].space >= SKY_SPACE_COUNT)
                bug("stage %u: %s: no such space", stage->index, call->name);
    }
}

static bool open_stage(StageSpaces *spaces, const SkyStage *stage, int threads, Diagnostics *diagnostics)
{
    spaces->stage = stage;
    spaces->slot_stride = memory_round_up(stage->space_bytes[SKY_SPACE_SLOT], MEMORY_ALIGNMENT);
    spaces->step_offset = memory_allocate((stage->update_count + 1) * sizeof *spaces->step_offset);
    size_t slots;
    if (!size_multiply(spaces->slot_stride, stage->slot_count, &slots)) bug("stage %u: slots overflow", stage->index);
    return memory_map(&spaces->state, stage->space_bytes[SKY_SPACE_STATE], threads, "parameters and optimiser state",
                      diagnostics) &&
           memory_map(&spaces->slots, slots, threads, "micro-batches in flight", diagnostics);
}

bool execution_open(Execution *execution, const SkyProgram *program, int threads, ExecuteInterpreter *interpreter,
                    Diagnostics *diagnostics)
{
    *execution = (Execution){.program = program, .threads = threads, .interpreter = interpreter};
    if (program->uses_tiles && !tiles_request())
        return diagnostics_error(diagnostics, EXIT_RUN_FAILED, PLACE_NONE, "compile for this processor: --target-cpu",
                                 "this program uses AMX tiles, which the processor or the system does not have");
    execution->stages = memory_allocate(program->stage_count * sizeof *execution->stages);
    uint64_t scratch = 0, thread_scratch = 0;
    bool ok = true;
    for (uint32_t i = 0; i < program->stage_count && ok; i++) {
        const SkyStage *stage = &program->stages[i];
        check_calls(stage, stage->forward, stage->forward_count, execution);
        check_calls(stage, stage->backward, stage->backward_count, execution);
        check_calls(stage, stage->weight_gradient, stage->weight_gradient_count, execution);
        check_calls(stage, stage->update, stage->update_count, execution);
        if (stage->space_bytes[SKY_SPACE_SCRATCH] > scratch) scratch = stage->space_bytes[SKY_SPACE_SCRATCH];
        if (stage->thread_scratch_bytes > thread_scratch) thread_scratch = stage->thread_scratch_bytes;
        ok = open_stage(&execution->stages[i], stage, threads, diagnostics);
    }
    execution->thread_scratch_stride = memory_round_up(thread_scratch, MEMORY_ALIGNMENT);
    ok = ok && memory_map(&execution->scratch, scratch, threads, "scratch", diagnostics) &&
         memory_map(&execution->thread_scratch, execution->thread_scratch_stride * (size_t)threads, 1,
                    "scratch of threads", diagnostics);
    if (!ok) execution_close(execution);
    return ok;
}

void execution_close(Execution *execution)
{
    for (uint32_t i = 0; execution->stages && i < execution->program->stage_count; i++) {
        memory_unmap(&execution->stages[i].state);
        memory_unmap(&execution->stages[i].slots);
        free(execution->stages[i].step_offset);
    }
    free(execution->stages);
    memory_unmap(&execution->scratch);
    memory_unmap(&execution->thread_scratch);
    execution->stages = NULL;
}

void execution_exempt_from_decay(Execution *execution, uint32_t classes)
{
    for (uint32_t i = 0; i < execution->program->stage_count; i++) {
        StageSpaces *spaces = &execution->stages[i];
        for (uint32_t p = 0; p < spaces->stage->parameter_count; p++) {
            const SkyParameter *parameter = &spaces->stage->parameters[p];
            if (parameter->update >= spaces->stage->update_count) bug("%s has no update", parameter->value.name);
            bool exempt = classes >> parameter->decay_exempt_class & 1;
            spaces->step_offset[parameter->update] = exempt ? SKY_STEP_GROUP : 0;
        }
    }
}

void execution_sum_uses(const Execution *execution, uint32_t stage)
{
    const SkyStage *from = execution->stages[stage].stage;
    for (uint32_t p = 0; p < from->parameter_count; p++) {
        const SkyParameter *parameter = &from->parameters[p];
        float *sum = execution_address(execution, stage, 0, parameter->gradient);
        size_t elements = parameter->value.bytes / sizeof *sum;
        for (uint32_t u = 1; u < parameter->use_count; u++) {
            float *term = execution_address(execution, stage, 0, parameter->uses[u].gradient);
            for (size_t i = 0; i < elements; i++) sum[i] += term[i];
            memset(term, 0, elements * sizeof *term); /* as an update leaves its gradient */
        }
    }
}

enum { SQUARE_BLOCK = 1 << 14, SQUARE_MAX_BLOCKS = 1 << 10 };

typedef struct SquareSum {
    const float *values;
    int64_t count, block;
    double partial[SQUARE_MAX_BLOCKS];
} SquareSum;

static void square_share(void *context, int thread, int threads)
{
    SquareSum *sum = context;
    int64_t blocks = (sum->count + sum->block - 1) / sum->block;
    for (int64_t b = parallel_begin(blocks, thread, threads); b < parallel_begin(blocks, thread + 1, threads); b++) {
        int64_t end = (b + 1) * sum->block < sum->count ? (b + 1) * sum->block : sum->count;
        double lanes[8] = {0}; /* independent chains, so that additions overlap */
        for (int64_t i = b * sum->block; i < end; i++) lanes[i % 8] += (double)sum->values[i] * sum->values[i];
        double total = 0;
        for (int lane = 0; lane < 8; lane++) total += lanes[lane];
        sum->partial[b] = total;
    }
}

double execution_gradient_square(const Execution *execution, uint32_t stage, const SkyParameter *parameter)
{
    SquareSum sum = {.values = execution_address(execution, stage, 0, parameter->gradient),
                     .count = (int64_t)(parameter->value.bytes / sizeof(float)),
                     .block = SQUARE_BLOCK};
    while (sum.count / sum.block >= SQUARE_MAX_BLOCKS) sum.block *= 2;
    int64_t blocks = (sum.count + sum.block - 1) / sum.block;
    parallel_run(blocks < execution->threads ? (int)blocks : execution->threads, square_share, &sum);
    double total = 0;
    for (int64_t b = 0; b < blocks; b++) total += sum.partial[b];
    return total;
}
