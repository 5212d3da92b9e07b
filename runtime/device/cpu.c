#include "runtime/device/device.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/program/parallel.h"
#include "runtime/program/subnormals.h"
#include "runtime/program/tiles.h"

enum { MAX_OPERANDS = 64 };

/* A list of calls that all threads go through together. */
typedef struct Walk {
    DeviceWork *work;
    const Execution *execution;
    const WaveList *list;
    uint32_t count; /* of calls */
    DeviceBases bases;
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
    unsigned char *all = execution->thread_scratch.bytes;
    return all ? all + (size_t)walker->thread * execution->thread_scratch_stride : NULL;
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
    walker->operands[0] = walker->operands[walk->work->first_operand];
    if (!walk->work->updates) return;
    for (uint32_t i = 0; i < call->operand_count; i++)
        if (call->operands[i].space == SKY_SPACE_STEP)
            walker->operands[i] =
                (unsigned char *)walk->work->updates[call - walk->list->calls].values + call->operands[i].offset;
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
    uint32_t lines = walker->walk->work->present.lines;
    if (!call->line_loops) {
        int64_t limit = sky_work_limit(call, walker->walk->work->present);
        call->kernel(walker->operands, begin, end, scratch_of(walker), limit);
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
    SkyPresent present = walker->walk->work->present;
    if (!call->line_loops)
        return interpreter(call->interpreted, walker->operands, EXECUTE_ALL_BLOCKS, sky_work_limit(call, present));
    bool ok = true;
    for (uint32_t line = 0; line < present.lines && ok; line++) {
        ok = interpreter(call->interpreted, walker->operands, EXECUTE_ALL_BLOCKS, SKY_NO_LIMIT);
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
            else if (!walk->execution->interpreter(call->interpreted, walker->operands, block, SKY_NO_LIMIT))
                walk->work->failed = call;
        }
}

static void run_whole(Walker *walker, const SkyCall *call)
{
    Walk *walk = walker->walk;
    int64_t pieces = sky_work_pieces(call, walk->work->present);
    if (call->group_count) {
        run_blocks(walker, call, 0, pieces);
        return;
    }
    resolve_operands(walker, call, 0);
    if (call->kernel && pieces > 0)
        run_units(walker, call, 0, pieces);
    else if (!call->kernel && !interpret_units(walker, call))
        walk->work->failed = call;
}

static void run_shared(Walker *walker, const Wave *wave)
{
    wave_begin(&walker->waves, wave);
    for (WavePiece piece; wave_take(&walker->waves, &piece);) {
        if (piece.call->group_count) {
            run_blocks(walker, piece.call, piece.begin, piece.end);
            continue;
        }
        int64_t pieces = sky_work_pieces(piece.call, walker->walk->work->present); /* parts are made for whole lines */
        if (piece.end > pieces) piece.end = pieces;
        if (piece.begin >= piece.end) continue;
        resolve_operands(walker, piece.call, 0);
        run_units(walker, piece.call, piece.begin, piece.end);
    }
}

/* Makes 0 what the wave has left out of the last line. */
static void clear_tails(const Walk *walk, const Wave *wave)
{
    uint32_t length = walk->execution->line_length;
    SkyPresent present = walk->work->present;
    for (const SkyCall *call = walk->list->calls + wave->first; call < walk->list->calls + wave->end; call++)
        for (uint32_t i = 0; i < call->tail_count; i++) {
            const SkyLocation *value = &call->tails[i];
            uint64_t token_bytes = value->line_bytes / length,
                     absent = (uint64_t)present.lines * length - present.tokens;
            unsigned char *bytes = walk->bases.space[value->space] + value->offset;
            memset(bytes + present.tokens * token_bytes, 0, absent * token_bytes);
        }
}

static void run_alone(Walker *walker, const Wave *wave)
{
    const SkyCall *calls = walker->walk->list->calls;
    for (uint32_t c = wave->first; c < wave->end && !walker->walk->work->failed; c += sky_group_size(&calls[c]))
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
    bool whole = walk->work->present.tokens == walk->work->present.lines * execution->line_length;
    for (uint32_t i = 0; i < list->count; i++) {
        bool shared = list->waves[i].sharers > 1, next_shared = i + 1 < list->count && list->waves[i + 1].sharers > 1;
        if (shared)
            run_shared(&walker, &list->waves[i]);
        else if (thread == 0 && !walk->work->failed)
            run_alone(&walker, &list->waves[i]);
        if (list->waves[i].has_tails && !whole) {
            if (shared) team_meet(execution->team, threads);
            if (thread == 0) clear_tails(walk, &list->waves[i]);
        }
        if (shared || next_shared) team_meet(execution->team, threads);
        if (next_shared && walk->work->failed) break; /* all threads see the same value here */
        if (thread == 0 && !walk->work->failed && execution->between)
            execution->between(execution->between_context, list->waves[i].end);
    }
    subnormals_restore(before);
}

/* The first unit of every call that is this thread's. */
static void spot_share(void *context, int thread, int threads)
{
    Walk *walk = context;
    Walker walker = {.walk = walk, .thread = thread};
    for (uint32_t c = (uint32_t)thread; c < walk->count; c += (uint32_t)threads) {
        const SkyCall *call = &walk->list->calls[c];
        resolve_operands(&walker, call, 0);
        if (call->kernel)
            call->kernel(walker.operands, 0, 1, scratch_of(&walker), SKY_NO_LIMIT);
        else
            walk->execution->interpreter(call->interpreted, walker.operands, EXECUTE_ALL_BLOCKS, SKY_NO_LIMIT);
    }
}

static bool run(DeviceWork *work, Diagnostics *diagnostics)
{
    (void)diagnostics;
    const Execution *execution = work->execution;
    const StageSpaces *spaces = &execution->stages[work->stage];
    Walk walk = {.work = work,
                 .execution = execution,
                 .list = &spaces->lists[(work->present.lines - 1) * SKY_LIST_COUNT + (uint32_t)work->list],
                 .count = spaces->stage->lists[work->list].count,
                 .bases = device_bases(execution, work->stage, work->slot)};
    if (work->spot) {
        parallel_run(wave_sharers(1e3 * walk.count, walk.count, execution->threads), spot_share, &walk);
        return true;
    }
    team_start(execution->team);
    parallel_run(execution->threads, walk_waves, &walk);
    return !work->failed;
}

/* ---- Opening ---- */

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

void cpu_make_waves(const Execution *execution, StageSpaces *spaces, bool apart)
{
    uint32_t most = device_most_lines(execution->program), fewest = execution->program->lines_vary ? 1 : most;
    if (!spaces->lists) spaces->lists = memory_allocate(most * SKY_LIST_COUNT * sizeof *spaces->lists);
    for (uint32_t lines = fewest; lines <= most; lines++)
        for (uint32_t list = 0; list < SKY_LIST_COUNT; list++) {
            const SkyCallList *from = &spaces->stage->lists[list];
            WaveList *to = &spaces->lists[(lines - 1) * SKY_LIST_COUNT + list];
            wave_list_free(to);
            wave_list_make(to, from->calls, from->count, (SkyPresent){lines, lines * execution->line_length},
                           execution->threads, apart);
        }
}

/* Only compiled code stops at any token. */
static bool is_compiled(const SkyProgram *program)
{
    for (uint32_t s = 0; s < program->stage_count; s++)
        for (uint32_t c = 0; c < sky_call_count(&program->stages[s]); c++)
            if (!sky_call(&program->stages[s], c)->kernel) return false;
    return true;
}

static bool cpu_open(Execution *execution, Diagnostics *diagnostics)
{
    const SkyProgram *program = execution->program;
    uint64_t scratch = 0, thread_scratch = 0, blocks = 0;
    if (program->uses_tiles && !tiles_request())
        return run_error(diagnostics, "compile for this processor: --target-cpu",
                         "this program uses AMX tiles, which the processor or the system does not have");
    execution->counts_tokens = program->tokens_vary && is_compiled(program);
    execution->team = team_create(execution->threads);
    for (uint32_t i = 0; i < program->stage_count; i++) {
        const SkyStage *stage = &program->stages[i];
        for (int list = 0; list < SKY_LIST_COUNT; list++) check_list(stage, &stage->lists[list], execution);
        cpu_make_waves(execution, &execution->stages[i], false);
        if (stage->space_bytes[SKY_SPACE_SCRATCH] > scratch) scratch = stage->space_bytes[SKY_SPACE_SCRATCH];
        if (stage->thread_scratch_bytes > thread_scratch) thread_scratch = stage->thread_scratch_bytes;
        if (stage->space_bytes[SKY_SPACE_BLOCK] > blocks) blocks = stage->space_bytes[SKY_SPACE_BLOCK];
    }
    execution->thread_block_offset = memory_round_up(thread_scratch, MEMORY_ALIGNMENT);
    execution->thread_scratch_stride = execution->thread_block_offset + memory_round_up(blocks, MEMORY_ALIGNMENT);
    return memory_map(&execution->scratch, scratch, execution->threads, "scratch", diagnostics) &&
           memory_map(&execution->thread_scratch, execution->thread_scratch_stride * (size_t)execution->threads, 1,
                      "scratch of threads", diagnostics);
}

static void cpu_close(Execution *execution)
{
    uint32_t lists = device_most_lines(execution->program) * SKY_LIST_COUNT;
    for (uint32_t s = 0; s < execution->program->stage_count; s++) {
        StageSpaces *spaces = &execution->stages[s];
        for (uint32_t i = 0; spaces->lists && i < lists; i++) wave_list_free(&spaces->lists[i]);
        free(spaces->lists);
    }
    memory_unmap(&execution->thread_scratch);
    team_free(execution->team);
    execution->team = NULL;
}

const DeviceKind device_cpu = {.open = cpu_open, .close = cpu_close, .run = run};
