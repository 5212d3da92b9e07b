#include "runtime/program/execute.h"

#include <math.h>
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
    const Execution *execution;
    const WaveList *list;
    Bases bases;
    UpdateScalars *updates; /* per call; NULL: not an update */
    uint32_t lines;         /* of the micro-batch; 1 if rows are not packed */
    int first_operand;      /* which operand every call is given as its first */
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
    walker->operands[0] = walker->operands[walk->first_operand];
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
    const Execution *execution = walk->execution;
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

static const WaveList *list_of(const StageSpaces *spaces, SkyListKind list, uint32_t slot)
{
    return &spaces->lists[(spaces->slot_lines[slot] - 1) * SKY_LIST_COUNT + (uint32_t)list];
}

bool execution_run(Execution *execution, uint32_t stage, SkyListKind list, uint32_t slot, Diagnostics *diagnostics)
{
    const StageSpaces *spaces = &execution->stages[stage];
    bool update = list == SKY_LIST_UPDATE;
    Walk walk = {.execution = execution,
                 .list = list_of(spaces, list, slot),
                 .lines = spaces->slot_lines[slot],
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
    spaces->squares = memory_allocate((stage->parameter_count + 1) * sizeof *spaces->squares);
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
        free(execution->stages[i].squares);
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

/* The next of the parameter's update calls, from call `from` on; NULL after the last. */
static UpdateScalars *next_update(const StageSpaces *spaces, const SkyParameter *parameter, uint32_t *from)
{
    if (*from >= spaces->stage->lists[SKY_LIST_UPDATE].count) return NULL;
    UpdateScalars *update = &spaces->updates[*from];
    *from = parameter->update_stride ? *from + parameter->update_stride : UINT32_MAX;
    return update;
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
            uint32_t call = parameter->update;
            for (UpdateScalars *update; (update = next_update(spaces, parameter, &call));)
                update->exempt = classes >> parameter->decay_exempt_class & 1;
        }
    }
}

void execution_set_rate(Execution *execution, uint32_t stage, const SkyParameter *parameter, double rate)
{
    uint32_t call = parameter->update;
    for (UpdateScalars *update; (update = next_update(&execution->stages[stage], parameter, &call));)
        update->rate = rate;
}

/* ---- Uses and squares ---- */

void execution_sum_uses(const Execution *execution, uint32_t stage)
{
    const SkyStage *from = execution->stages[stage].stage;
    for (uint32_t p = 0; p < from->parameter_count; p++) {
        const SkyParameter *parameter = &from->parameters[p];
        if (parameter->use_count < 2) continue;
        float **uses = memory_allocate(parameter->use_count * sizeof *uses);
        for (uint32_t u = 0; u < parameter->use_count; u++)
            uses[u] = execution_address(execution, stage, 0, parameter->uses[u].gradient);
        float *sum = execution_address(execution, stage, 0, parameter->gradient);
        parallel_add(execution->threads, sum, uses, (int)parameter->use_count, parameter->value.bytes / sizeof *sum);
        for (uint32_t u = 0; u < parameter->use_count; u++)
            if (uses[u] != sum) parallel_zero(execution->threads, uses[u], parameter->value.bytes);
        free(uses);
    }
}

const double *execution_squares(const Execution *execution, uint32_t stage, int tensor)
{
    const StageSpaces *spaces = &execution->stages[stage];
    Walk walk = {.execution = execution,
                 .list = list_of(spaces, SKY_LIST_SQUARES, 0),
                 .lines = 1,
                 .bases = bases_of(execution, stage, 0),
                 .first_operand = tensor};
    Diagnostics none = {0};
    if (!run_walk(&walk, &none)) bug("stage %u: no squares", spaces->stage->index);
    for (uint32_t p = 0; p < spaces->stage->parameter_count; p++) {
        const SkyParameter *parameter = &spaces->stage->parameters[p];
        spaces->squares[p] = 0;
        if (parameter->frozen) continue;
        const SkyCall *call = &walk.list->calls[parameter->squares];
        const double *parts = execution_address(execution, stage, 0, call->operands[1]);
        for (uint32_t i = 0; i < parameter->square_parts; i++) spaces->squares[p] += parts[i];
    }
    return spaces->squares;
}

/* A sum of squares in double is finite if and only if all its numbers are: none overflows. */
const SkyParameter *execution_not_finite(const Execution *execution, uint32_t stage, int *state)
{
    const SkyStage *s = execution->stages[stage].stage;
    uint32_t states = 0, first = s->parameter_count;
    for (uint32_t p = 0; p < s->parameter_count; p++)
        if (s->parameters[p].state_count > states) states = s->parameters[p].state_count;
    for (uint32_t i = 0; i <= states; i++) {
        const double *squares = execution_squares(execution, stage, EXECUTION_VALUE + (int)i);
        for (uint32_t p = 0; p < first; p++) {
            if (isfinite(squares[p])) continue;
            first = p;
            *state = (int)i - 1;
        }
    }
    return first < s->parameter_count ? &s->parameters[first] : NULL;
}

typedef struct SpotCheck {
    const Execution *execution;
    uint32_t stage;
    atomic_uint first; /* parameter that is not finite there */
} SpotCheck;

/* The first unit of every call: at least one part. */
static void spot_share(void *context, int thread, int threads)
{
    SpotCheck *check = context;
    const SkyStage *stage = check->execution->stages[check->stage].stage;
    for (uint32_t p = (uint32_t)thread; p < stage->parameter_count; p += (uint32_t)threads) {
        const SkyParameter *parameter = &stage->parameters[p];
        if (parameter->frozen || !parameter->square_parts) continue;
        const SkyCall *call = &stage->lists[SKY_LIST_SQUARES].calls[parameter->squares];
        void *value = execution_address(check->execution, check->stage, 0, parameter->value.location);
        double *parts = execution_address(check->execution, check->stage, 0, call->operands[1]);
        if (call->kernel)
            call->kernel((void *[]){value, parts}, 0, 1, NULL, SKY_NO_LIMIT);
        else
            check->execution->interpreter(call->interpreted, (void *[]){value, parts}, EXECUTE_ALL_BLOCKS);
        unsigned first = check->first;
        while (!isfinite(parts[0]) && p < first && !atomic_compare_exchange_weak(&check->first, &first, p)) continue;
    }
}

const SkyParameter *execution_spot_not_finite(const Execution *execution, uint32_t stage)
{
    const SkyStage *s = execution->stages[stage].stage;
    SpotCheck check = {.execution = execution, .stage = stage, .first = s->parameter_count};
    parallel_run(wave_sharers(1e3 * s->parameter_count, s->parameter_count, execution->threads), spot_share, &check);
    return check.first < s->parameter_count ? &s->parameters[check.first] : NULL;
}
