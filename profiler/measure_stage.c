#include <stdlib.h>
#include <string.h>

#include "graph/kernel.h"
#include "profiler/measure.h"

enum {
    LEAST_ROUNDS = 3,
    MOST_ROUNDS = 9,
};
static const double budget_s = 1; /* no round starts later, beyond LEAST_ROUNDS */

/* Call lists one after the other: forward, backward, update. */
enum { LISTS = 3 };

typedef struct Calls {
    const SkyCall *list[LISTS];
    uint32_t count[LISTS], total;
} Calls;

static Calls calls_of(const SkyStage *stage)
{
    return (Calls){.list = {stage->forward, stage->backward, stage->update},
                   .count = {stage->forward_count, stage->backward_count, stage->update_count},
                   .total = stage->forward_count + stage->backward_count + stage->update_count};
}

static Hash hash_of_call(const Calls *calls, uint32_t number)
{
    int list = 0;
    while (number >= calls->count[list]) number -= calls->count[list++];
    return kernel_hash(calls->list[list][number].interpreted);
}

bool stage_is_measured(const MachineProfile *machine, const SkyStage *stage)
{
    Calls calls = calls_of(stage);
    for (uint32_t c = 0; c < calls.total; c++)
        if (machine_profile_seconds(machine, hash_of_call(&calls, c)) < 0) return false;
    return true;
}

/* Notes what every call of the list that runs has taken. */
typedef struct Clock {
    int threads;
    double last, *seconds;
} Clock;

static void clock_start(Clock *clock, double *seconds)
{
    clock->seconds = seconds;
    clock->last = measure_now_s(clock->threads);
}

static void clock_tick(void *context)
{
    Clock *clock = context;
    double now = measure_now_s(clock->threads);
    *clock->seconds++ = now - clock->last;
    clock->last = now;
}

/* In a pipeline other layers run between two micro-batches of a layer; this leaves the caches near the core as they do:
 * full of something else. */
static void fill_caches(void)
{
    static unsigned char other[32 << 20];
    memset(other, 1, sizeof other);
    __asm__ volatile("" : : "r"(other) : "memory"); /* nobody reads it, and yet it is to be written */
}

/* One micro-batch and an update. `seconds` has a place for every call. */
static bool run_round(Execution *execution, Clock *clock, const Calls *calls, double *seconds, Diagnostics *diagnostics)
{
    fill_caches();
    clock_start(clock, seconds);
    if (!execution_forward(execution, 0, 0, diagnostics)) return false;
    fill_caches();
    clock_start(clock, seconds + calls->count[0]);
    if (!execution_backward(execution, 0, 0, diagnostics)) return false;
    fill_caches();
    clock_start(clock, seconds + calls->count[0] + calls->count[1]);
    return execution_update(execution, 0, diagnostics);
}

/* The median of all runs of the kernel in `rounds` rounds. */
static double median_s(const Hash *hashes, uint32_t calls, Hash kernel, const double *seconds, int rounds)
{
    double *samples = memory_allocate((size_t)rounds * calls * sizeof *samples);
    size_t count = 0;
    for (uint32_t c = 0; c < calls; c++)
        for (int r = 0; r < rounds && hash_equal(hashes[c], kernel); r++)
            samples[count++] = seconds[(size_t)r * calls + c];
    double median = measure_median(samples, count);
    free(samples);
    return median;
}

static void add_times(MachineProfile *machine, Arena *arena, const Calls *calls, const double *seconds, int rounds)
{
    size_t known = machine->kernel_count;
    KernelTime *times = arena_new_array(arena, KernelTime, known + calls->total);
    if (known) memcpy(times, machine->kernels, known * sizeof *times);
    machine->kernels = times;
    Hash *hashes = memory_allocate(calls->total * sizeof *hashes);
    for (uint32_t c = 0; c < calls->total; c++) hashes[c] = hash_of_call(calls, c);
    for (uint32_t c = 0; c < calls->total; c++) {
        if (machine_profile_seconds(machine, hashes[c]) >= 0) continue;
        double time = median_s(hashes, calls->total, hashes[c], seconds, rounds);
        times[machine->kernel_count++] = (KernelTime){hashes[c], time};
        machine_profile_sort(machine);
    }
    free(hashes);
}

bool measure_stage(MachineProfile *machine, Arena *arena, Execution *execution, Diagnostics *diagnostics)
{
    Calls calls = calls_of(&execution->program->stages[0]);
    Clock clock = {.threads = execution->threads};
    execution->between = clock_tick;
    execution->between_context = &clock;
    double *seconds = memory_allocate((size_t)MOST_ROUNDS * calls.total * sizeof *seconds);
    bool ok = run_round(execution, &clock, &calls, seconds, diagnostics); /* touches everything; does not count */
    double begun = measure_now_s(clock.threads);
    int rounds = 0;
    while (ok && rounds < MOST_ROUNDS && (rounds < LEAST_ROUNDS || measure_now_s(clock.threads) - begun < budget_s))
        ok = run_round(execution, &clock, &calls, seconds + (size_t)rounds++ * calls.total, diagnostics);
    if (ok) add_times(machine, arena, &calls, seconds, rounds);
    free(seconds);
    execution->between = NULL;
    return ok;
}
