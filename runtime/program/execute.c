#include "runtime/program/execute.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/program/parallel.h"
#include "runtime/program/runtime_sizes.h"
#include "runtime/program/subnormals.h"
#include "runtime/program/tiles.h"

enum { MAX_OPERANDS = 64 };

/* An empty space stays NULL. */
static unsigned char *at(unsigned char *base, size_t offset) { return base ? base + offset : NULL; }

static bool out_of_range(const SkyCall *call, Diagnostics *diagnostics)
{
    Place place = {.object = call->name};
    return diagnostics_error(diagnostics, EXIT_RUN_FAILED, place,
                             "check that ids lie inside the vocabulary and labels inside the classes",
                             "an index is outside the tensor it reads");
}

/* The start of each space for one call. */
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

/* A list of calls that all threads go through together. */
typedef struct Walk {
    Execution *execution;
    const WaveList *list;
    Bases bases;
    UpdateScalars *updates; /* per call; NULL: not an update */
    uint32_t lines;         /* of the micro-batch; 1 if rows are not packed */
    const SkyCall *failed;  /* NULL: none. The first thread sets it while the others wait */
} Walk;

/* One thread's place in the walk. */
typedef struct Walker {
    Walk *walk;
    int thread;
    WaveWalk waves;
    void *operands[MAX_OPERANDS];
} Walker;

static unsigned char *scratch_of(const Walker *walker)
{
    const Execution *execution = walker->walk->execution;
    return at(execution->thread_scratch.bytes, (size_t)walker->thread * execution->thread_scratch_stride);
}

/* `block` is the block of a group, else 0. All blocks share one place in the space of blocks. The kernel adds the
 * offset of `block` itself, so its operand starts that much earlier. */
static void resolve_operands(Walker *walker, const SkyCall *call, int64_t block)
{
    const Walk *walk = walker->walk;
    for (uint32_t i = 0; i < call->operand_count; i++) {
        const SkyLocation *location = &call->operands[i];
        bool blocks = location->space == SKY_SPACE_BLOCK;
        uintptr_t base = (uintptr_t)(blocks ? scratch_of(walker) : walk->bases.space[location->space]);
        if (blocks) base += walk->execution->thread_block_offset - (uintptr_t)block * location->block_bytes;
        walker->operands[i] = (void *)(base + location->offset);
    }
    if (!walk->updates) return;
    for (uint32_t i = 0; i < call->operand_count; i++)
        if (call->operands[i].space == SKY_SPACE_STEP)
            walker->operands[i] =
                (unsigned char *)walk->updates[call - walk->list->calls].values + call->operands[i].offset;
}

/* Moves the operands to the next line that the call sums or scatters. */
static void move_operands(Walker *walker, const SkyCall *call, int64_t lines)
{
    for (uint32_t i = 0; i < call->operand_count; i++)
        walker->operands[i] =
            (void *)((uintptr_t)walker->operands[i] + (uintptr_t)(lines * (int64_t)call->operands[i].line_bytes));
}

/* Runs units begin ... end - 1 of a call outside groups, with resolved operands. If the call runs line by line, each
 * unit takes all its lines before the next unit begins, so that its sums stay in the nearest cache. */
static void run_units(Walker *walker, const SkyCall *call, int64_t begin, int64_t end)
{
    uint32_t lines = walker->walk->lines;
    if (!call->line_loops) {
        call->kernel(walker->operands, begin, end, scratch_of(walker), sky_work_limit(call, lines));
        return;
    }
    for (int64_t unit = begin; unit < end; unit++) {
        for (uint32_t line = 0; line < lines; line++) {
            call->kernel(walker->operands, unit, unit + 1, scratch_of(walker), SKY_NO_LIMIT);
            move_operands(walker, call, 1);
        }
        move_operands(walker, call, -(int64_t)lines);
    }
}

static bool interpret_units(Walker *walker, const SkyCall *call)
{
    ExecuteInterpreter *interpreter = walker->walk->execution->interpreter;
    if (!call->line_loops) return interpreter(call->interpreted, walker->operands, EXECUTE_ALL_BLOCKS);
    bool ok = true;
    for (uint32_t line = 0; line < walker->walk->lines && ok; line++) {
        ok = interpreter(call->interpreted, walker->operands, EXECUTE_ALL_BLOCKS);
        move_operands(walker, call, 1);
    }
    return ok;
}

/* Takes each of the blocks through all calls of the group. */
static void run_blocks(Walker *walker, const SkyCall *group, int64_t begin, int64_t end)
{
    Walk *walk = walker->walk;
    for (int64_t block = begin; block < end; block++)
        for (const SkyCall *call = group; call < group + group->group_count; call++) {
            int64_t units = call->units / group->block_count;
            resolve_operands(walker, call, block);
            if (call->kernel)
                call->kernel(walker->operands, block * units, (block + 1) * units, scratch_of(walker), SKY_NO_LIMIT);
            else if (!walk->execution->interpreter(call->interpreted, walker->operands, block))
                walk->failed = call;
        }
}

static void run_whole(Walker *walker, const SkyCall *call)
{
    Walk *walk = walker->walk;
    int64_t pieces = sky_work_pieces(call, walk->lines);
    if (call->group_count) {
        run_blocks(walker, call, 0, pieces);
        return;
    }
    resolve_operands(walker, call, 0);
    if (call->kernel && pieces > 0)
        run_units(walker, call, 0, pieces);
    else if (!call->kernel && !interpret_units(walker, call))
        walk->failed = call;
}

static void run_shared(Walker *walker, const Wave *wave)
{
    wave_begin(&walker->waves, wave);
    for (WavePiece piece; wave_take(&walker->waves, &piece);) {
        if (piece.call->group_count) {
            run_blocks(walker, piece.call, piece.begin, piece.end);
            continue;
        }
        resolve_operands(walker, piece.call, 0);
        run_units(walker, piece.call, piece.begin, piece.end);
    }
}

static void run_alone(Walker *walker, const Wave *wave)
{
    const SkyCall *calls = walker->walk->list->calls;
    for (uint32_t c = wave->first; c < wave->end && !walker->walk->failed; c += sky_group_size(&calls[c]))
        run_whole(walker, &calls[c]);
}

/* The first thread runs unshared waves alone; threads need not meet between two of these. */
static void walk_waves(void *context, int thread, int threads)
{
    Walk *walk = context;
    Execution *execution = walk->execution;
    const WaveList *list = walk->list;
    Walker walker = {.walk = walk,
                     .thread = thread,
                     .waves = {.team = execution->team, .list = list, .thread = thread, .threads = threads}};
    uint64_t before = subnormals_flush();
    for (uint32_t i = 0; i < list->count; i++) {
        bool shared = list->waves[i].sharers > 1, next_shared = i + 1 < list->count && list->waves[i + 1].sharers > 1;
        if (shared)
            run_shared(&walker, &list->waves[i]);
        else if (thread == 0 && !walk->failed)
            run_alone(&walker, &list->waves[i]);
        if (shared || next_shared) team_meet(execution->team, threads);
        if (next_shared && walk->failed) break; /* all threads see the same value here */
        if (thread == 0 && !walk->failed && execution->between) execution->between(execution->between_context);
    }
    subnormals_restore(before);
}

static bool run_walk(Walk *walk, Diagnostics *diagnostics)
{
    team_start(walk->execution->team);
    parallel_run(walk->execution->threads, walk_waves, walk);
    return !walk->failed || out_of_range(walk->failed, diagnostics);
}

static void fill_updates(const Execution *execution, const StageSpaces *spaces)
{
    for (uint32_t i = 0; i < spaces->stage->lists[SKY_LIST_UPDATE].count; i++) {
        UpdateScalars *update = &spaces->updates[i];
        memcpy(update->values, &execution->step[update->exempt ? SKY_STEP_GROUP : 0], sizeof update->values);
        float *rate = &update->values[SKY_STEP_LEARNING_RATE];
        *rate = (float)((double)*rate * update->rate);
    }
}

bool execution_run(Execution *execution, uint32_t stage, SkyListKind list, uint32_t slot, Diagnostics *diagnostics)
{
    const StageSpaces *spaces = &execution->stages[stage];
    bool update = list == SKY_LIST_UPDATE;
    uint32_t lines = spaces->slot_lines[slot];
    Walk walk = {.execution = execution,
                 .list = &spaces->lists[(lines - 1) * SKY_LIST_COUNT + (uint32_t)list],
                 .lines = lines,
                 .bases = bases_of(execution, stage, slot),
                 .updates = update ? spaces->updates : NULL};
    if (update) fill_updates(execution, spaces);
    return run_walk(&walk, diagnostics);
}

void *execution_address(const Execution *execution, uint32_t stage, uint32_t slot, SkyLocation location)
{
    Bases bases = bases_of(execution, stage, slot);
    return at(bases.space[location.space], location.offset);
}

static void check_list(const SkyStage *stage, const SkyCallList *list, const Execution *execution)
{
    for (uint32_t i = 0; i < list->count; i++) {
        const SkyCall *call = &list->calls[i];
        if (call->operand_count > MAX_OPERANDS) bug("stage %u: %s has too many operands", stage->index, call->name);
        if (call->group_count > list->count - i || call->wave_count > list->count - i)
            bug("stage %u: the group or wave of %s is too long", stage->index, call->name);
        if (!call->interpreted && !call->kernel) bug("stage %u: %s has no code", stage->index, call->name);
        if (!call->kernel && !execution->interpreter)
            bug("stage %u: %s needs an interpreter", stage->index, call->name);
        for (uint32_t k = 0; k < call->operand_count; k++)
            if (call->operands[k].space >= SKY_SPACE_COUNT)
                bug("stage %u: %s: no such space", stage->index, call->name);
    }
}

/* The most units of a micro-batch. */
static uint32_t most_lines(const SkyProgram *program) { return program->packing.slots ? program->packing.lines : 1; }

static void make_waves(const Execution *execution, StageSpaces *spaces, bool apart)
{
    uint32_t most = most_lines(execution->program), fewest = execution->program->lines_vary ? 1 : most;
    for (uint32_t lines = fewest; lines <= most; lines++)
        for (uint32_t list = 0; list < SKY_LIST_COUNT; list++) {
            const SkyCallList *from = &spaces->stage->lists[list];
            wave_list_make(&spaces->lists[(lines - 1) * SKY_LIST_COUNT + list], from->calls, from->count, lines,
                           execution->threads, apart);
        }
}

static void free_waves(const Execution *execution, StageSpaces *spaces)
{
    for (uint32_t i = 0; spaces->lists && i < most_lines(execution->program) * SKY_LIST_COUNT; i++)
        wave_list_free(&spaces->lists[i]);
}

void execution_set_lines(Execution *execution, uint32_t stage, uint32_t slot, uint32_t lines)
{
    if (!lines || lines > most_lines(execution->program)) bug("a micro-batch has %u lines", lines);
    execution->stages[stage].slot_lines[slot] = lines;
}

void execution_keep_apart(Execution *execution)
{
    for (uint32_t i = 0; i < execution->program->stage_count; i++) {
        free_waves(execution, &execution->stages[i]);
        make_waves(execution, &execution->stages[i], true);
    }
}

static bool open_stage(const Execution *execution, StageSpaces *spaces, const SkyStage *stage, Diagnostics *diagnostics)
{
    int threads = execution->threads;
    uint32_t most = most_lines(execution->program);
    spaces->stage = stage;
    spaces->lists = memory_allocate(most * SKY_LIST_COUNT * sizeof *spaces->lists);
    spaces->slot_lines = memory_allocate((stage->slot_count + 1) * sizeof *spaces->slot_lines);
    for (uint32_t slot = 0; slot <= stage->slot_count; slot++) spaces->slot_lines[slot] = most;
    spaces->slot_stride = memory_round_up(stage->space_bytes[SKY_SPACE_SLOT], MEMORY_ALIGNMENT);
    make_waves(execution, spaces, false);
    spaces->updates = memory_allocate((stage->lists[SKY_LIST_UPDATE].count + 1) * sizeof *spaces->updates);
    for (uint32_t i = 0; i < stage->lists[SKY_LIST_UPDATE].count; i++) spaces->updates[i].rate = 1;
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
    execution->team = team_create(threads);
    execution->stages = memory_allocate(program->stage_count * sizeof *execution->stages);
    uint64_t scratch = 0, thread_scratch = 0, blocks = 0;
    bool ok = true;
    for (uint32_t i = 0; i < program->stage_count && ok; i++) {
        const SkyStage *stage = &program->stages[i];
        for (int list = 0; list < SKY_LIST_COUNT; list++) check_list(stage, &stage->lists[list], execution);
        if (stage->space_bytes[SKY_SPACE_SCRATCH] > scratch) scratch = stage->space_bytes[SKY_SPACE_SCRATCH];
        if (stage->thread_scratch_bytes > thread_scratch) thread_scratch = stage->thread_scratch_bytes;
        if (stage->space_bytes[SKY_SPACE_BLOCK] > blocks) blocks = stage->space_bytes[SKY_SPACE_BLOCK];
        ok = open_stage(execution, &execution->stages[i], stage, diagnostics);
    }
    execution->thread_block_offset = memory_round_up(thread_scratch, MEMORY_ALIGNMENT);
    execution->thread_scratch_stride = execution->thread_block_offset + memory_round_up(blocks, MEMORY_ALIGNMENT);
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
        free(execution->stages[i].updates);
        free_waves(execution, &execution->stages[i]);
        free(execution->stages[i].lists);
        free(execution->stages[i].slot_lines);
    }
    free(execution->stages);
    memory_unmap(&execution->scratch);
    memory_unmap(&execution->thread_scratch);
    team_free(execution->team);
    execution->stages = NULL;
    execution->team = NULL;
}

void execution_exempt_from_decay(Execution *execution, uint32_t classes)
{
    for (uint32_t i = 0; i < execution->program->stage_count; i++) {
        StageSpaces *spaces = &execution->stages[i];
        for (uint32_t p = 0; p < spaces->stage->parameter_count; p++) {
            const SkyParameter *parameter = &spaces->stage->parameters[p];
            if (parameter->frozen) continue;
            if (parameter->update >= spaces->stage->lists[SKY_LIST_UPDATE].count)
                bug("%s has no update", parameter->value.name);
            spaces->updates[parameter->update].exempt = classes >> parameter->decay_exempt_class & 1;
        }
    }
}

void execution_set_rate(Execution *execution, uint32_t stage, const SkyParameter *parameter, double rate)
{
    execution->stages[stage].updates[parameter->update].rate = rate;
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

typedef struct SquareSum {
    const float *values;
    int64_t count, block;
    double partial[SIZE_SQUARE_BLOCKS];
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
                     .block = SIZE_SQUARE_BLOCK};
    while (sum.count / sum.block >= SIZE_SQUARE_BLOCKS) sum.block *= 2;
    int64_t blocks = (sum.count + sum.block - 1) / sum.block;
    parallel_run(blocks < execution->threads ? (int)blocks : execution->threads, square_share, &sum);
    double total = 0;
    for (int64_t b = 0; b < blocks; b++) total += sum.partial[b];
    return total;
}

enum { STATES = sizeof((SkyParameter){0}.states) / sizeof(SkyLocation) };

typedef struct FiniteCheck {
    const Execution *execution;
    uint32_t stage;
    _Atomic int64_t first; /* first tensor that is not finite: (1 + STATES) * parameter + 1 + state */
} FiniteCheck;

static bool is_finite(const float *values, int64_t count)
{
    const uint32_t exponent = 0x7f800000;
    uint32_t wrong = 0, bits;
    for (int64_t i = 0; i < count; i++) {
        memcpy(&bits, &values[i], sizeof bits);
        wrong |= (bits & exponent) == exponent;
    }
    return !wrong;
}

static void finite_share(void *context, int thread, int threads)
{
    FiniteCheck *check = context;
    const SkyStage *stage = check->execution->stages[check->stage].stage;
    for (uint32_t p = 0; p < stage->parameter_count; p++) {
        const SkyParameter *parameter = &stage->parameters[p];
        int64_t count = (int64_t)(parameter->value.bytes / sizeof(float));
        int64_t begin = parallel_begin(count, thread, threads), end = parallel_begin(count, thread + 1, threads);
        for (int state = -1; state < (int)parameter->state_count; state++) {
            SkyLocation location = state < 0 ? parameter->value.location : parameter->states[state];
            const float *values = execution_address(check->execution, check->stage, 0, location);
            int64_t number = (int64_t)p * (1 + STATES) + 1 + state, first = check->first;
            if (is_finite(values + begin, end - begin)) continue;
            while (number < first && !atomic_compare_exchange_weak(&check->first, &first, number)) continue;
        }
    }
}

const SkyParameter *execution_not_finite(const Execution *execution, uint32_t stage, int *state)
{
    FiniteCheck check = {.execution = execution, .stage = stage, .first = INT64_MAX};
    parallel_run(execution->threads, finite_share, &check);
    if (check.first == INT64_MAX) return NULL;
    *state = (int)(check.first % (1 + STATES)) - 1;
    return &execution->stages[stage].stage->parameters[check.first / (1 + STATES)];
}

const SkyParameter *execution_spot_not_finite(const Execution *execution, uint32_t stage)
{
    enum { SPOT = 4096 };
    const SkyStage *s = execution->stages[stage].stage;
    for (uint32_t p = 0; p < s->parameter_count; p++) {
        int64_t count = (int64_t)(s->parameters[p].value.bytes / sizeof(float));
        if (!is_finite(execution_address(execution, stage, 0, s->parameters[p].value.location),
                       count < SPOT ? count : SPOT))
            return &s->parameters[p];
    }
    return NULL;
}
