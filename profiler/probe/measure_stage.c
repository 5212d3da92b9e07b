#include <stdlib.h>
#include <string.h>

#include "profiler/probe/measure.h"

enum {
    LEAST_ROUNDS = 3,
    MOST_ROUNDS = 9,
    MORE_THREADS = 2, /* than one, whose processor time would count */
};
static const double budget_s = 1; /* no round starts later, beyond LEAST_ROUNDS */

/* What the stage does, list after list: waves of calls. */
typedef struct Works {
    Hash *hash;
    uint32_t first[SKY_LIST_COUNT], total; /* of every list */
} Works;

/* Free its hashes. */
static Works works_of(const SkyStage *stage)
{
    Works works = {.hash = memory_allocate((sky_call_count(stage) + 1) * sizeof *works.hash)};
    for (int l = 0; l < SKY_LIST_COUNT; l++) {
        const SkyCallList *list = &stage->lists[l];
        works.first[l] = works.total;
        for (uint32_t i = 0; i < list->count; i += sky_wave_size(&list->calls[i]))
            works.hash[works.total++] = profile_work(&list->calls[i]);
    }
    return works;
}

bool stage_is_measured(const MachineProfile *machine, const SkyStage *stage)
{
    Works works = works_of(stage);
    uint32_t known = 0;
    while (known < works.total && machine_profile_seconds(machine, works.hash[known]) >= 0) known++;
    free(works.hash);
    return known == works.total;
}

/* Notes what all work of the list that runs has taken. */
typedef struct Clock {
    int threads;
    double last, *seconds;
} Clock;

static void clock_start(Clock *clock, double *seconds)
{
    clock->seconds = seconds;
    clock->last = measure_now_s(clock->threads);
}

static void clock_tick(void *context, uint32_t calls)
{
    (void)calls;
    Clock *clock = context;
    double now = measure_now_s(clock->threads);
    *clock->seconds++ = now - clock->last;
    clock->last = now;
}

/* In a pipeline other layers run between two micro-batches of a layer; this leaves the caches near the core as they do:
 * full of something else. */
static void fill_caches(void)
{
    static unsigned char *other; /* kept; not in the program's own memory, which a look for leaks reads whole */
    const size_t size = 32 << 20;
    if (!other) other = memory_allocate(size);
    memset(other, 1, size);
    __asm__ volatile("" : : "r"(other) : "memory"); /* nobody reads it, and yet it is to be written */
}

/* One micro-batch and an update. `seconds` has a place for all work. */
static bool run_round(Execution *execution, Clock *clock, const Works *works, double *seconds, Diagnostics *diagnostics)
{
    for (int list = 0; list < SKY_LIST_COUNT; list++) {
        if (!execution->program->stages[0].lists[list].count) continue;
        fill_caches();
        clock_start(clock, seconds + works->first[list]);
        if (!execution_run(execution, 0, (SkyListKind)list, 0, diagnostics)) return false;
    }
    if (clock->seconds != seconds + works->total) bug("a stage does more or less than its lists say");
    return true;
}

/* The median of all that the same work took in `rounds` rounds. */
static double median_s(const Works *works, Hash hash, const double *seconds, int rounds)
{
    double *samples = memory_allocate((size_t)rounds * works->total * sizeof *samples);
    size_t count = 0;
    for (uint32_t w = 0; w < works->total; w++)
        for (int r = 0; r < rounds && hash_equal(works->hash[w], hash); r++)
            samples[count++] = seconds[(size_t)r * works->total + w];
    double median = measure_median(samples, count);
    free(samples);
    return median;
}

static void add_times(MachineProfile *machine, Arena *arena, const Works *works, const double *seconds, int rounds)
{
    size_t known = machine->kernel_count;
    KernelTime *times = arena_new_array(arena, KernelTime, known + works->total);
    if (known) memcpy(times, machine->kernels, known * sizeof *times);
    machine->kernels = times;
    for (uint32_t w = 0; w < works->total; w++) {
        Hash hash = works->hash[w];
        if (machine_profile_seconds(machine, hash) >= 0) continue;
        times[machine->kernel_count++] = (KernelTime){hash, median_s(works, hash, seconds, rounds)};
        machine_profile_sort(machine);
    }
}

void stage_works_append(StageWorks *works, const SkyStage *stage)
{
    Works one = works_of(stage);
    works->hash = memory_resize(works->hash, works->count + one.total + 1, sizeof *works->hash);
    if (one.total) memcpy(works->hash + works->count, one.hash, one.total * sizeof *one.hash);
    works->count += one.total;
    works->structure =
        hash_extend(hash_extend(works->structure, one.first, sizeof one.first), &one.total, sizeof one.total);
    free(one.hash);
}

bool stage_works_interpolate(MachineProfile *machine, Arena *arena, const StageWorks *works, double rows,
                             const StageWorks *fewer, double fewer_rows, const StageWorks *more, double more_rows)
{
    if (!hash_equal(works->structure, fewer->structure) || !hash_equal(works->structure, more->structure)) return false;
    double share = (rows - fewer_rows) / (more_rows - fewer_rows);
    KernelTime *times = arena_new_array(arena, KernelTime, machine->kernel_count + works->count);
    if (machine->kernel_count) memcpy(times, machine->kernels, machine->kernel_count * sizeof *times);
    machine->kernels = times;
    for (size_t w = 0; w < works->count; w++) {
        double low = machine_profile_seconds(machine, fewer->hash[w]),
               high = machine_profile_seconds(machine, more->hash[w]);
        if (low < 0 || high < 0 || machine_profile_seconds(machine, works->hash[w]) >= 0) continue;
        times[machine->kernel_count++] = (KernelTime){works->hash[w], low + share * (high - low)};
        machine_profile_sort(machine);
    }
    return true;
}

bool measure_stage(MachineProfile *machine, Arena *arena, Execution *execution, Diagnostics *diagnostics)
{
    Works works = works_of(&execution->program->stages[0]);
    Clock clock = {.threads = execution_by_this_thread(execution) ? 1 : MORE_THREADS};
    execution->between = clock_tick;
    execution->between_context = &clock;
    execution->timed = true;
    double *seconds = memory_allocate((size_t)MOST_ROUNDS * works.total * sizeof *seconds);
    bool ok = run_round(execution, &clock, &works, seconds, diagnostics); /* touches everything; does not count */
    double begun = measure_now_s(clock.threads);
    int rounds = 0;
    while (ok && rounds < MOST_ROUNDS && (rounds < LEAST_ROUNDS || measure_now_s(clock.threads) - begun < budget_s))
        ok = run_round(execution, &clock, &works, seconds + (size_t)rounds++ * works.total, diagnostics);
    if (ok) add_times(machine, arena, &works, seconds, rounds);
    free(seconds);
    free(works.hash);
    execution->between = NULL;
    execution->timed = false;
    return ok;
}
