#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/order.h"
#include "profiler/probe/measure.h"

enum {
    ROUNDS = 3,
    MORE_THREADS = 2, /* than one, whose processor time would count */
};

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
    LayerTraffic traffic; /* of all layers */
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

/* What a micro-batch's lists read and write: of a table whose rows it looks up, those rows. */
static size_t microbatch_bytes(const SkyStage *stage)
{
    size_t bytes = stage->space_bytes[SKY_SPACE_SLOT];
    for (uint32_t p = 0; p < stage->parameter_count; p++) {
        const SkyParameter *parameter = &stage->parameters[p];
        size_t whole = parameter->value.bytes;
        if (parameter->reads) whole = whole / (size_t)parameter->value.dim[0] * parameter->reads;
        bytes += parameter->frozen ? whole : 2 * whole; /* the gradient */
    }
    return bytes;
}

void layer_traffic_add(LayerTraffic *traffic, const SkyStage *stage)
{
    traffic->microbatch_bytes += microbatch_bytes(stage);
    traffic->update_bytes += stage->space_bytes[SKY_SPACE_STATE];
}

/* Other layers run between two micro-batches of a layer; this leaves the caches as they do: full of something else. */
static void fill_caches(size_t bytes)
{
    static volatile uint64_t *other; /* kept; not in the program's own memory, which a look for leaks reads whole */
    const size_t most = 32 << 20, line = 64 / sizeof *other;
    if (!other) other = memory_allocate(most);
    if (bytes > most) bytes = most;
    for (size_t i = 0; i < bytes / sizeof *other; i += line) other[i] = i; /* memset of so much goes past the caches */
}

/* One micro-batch and an update. `seconds` has a place for all work. */
static bool run_round(Execution *execution, Clock *clock, const Works *works, double *seconds, Diagnostics *diagnostics)
{
    for (int list = 0; list < SKY_LIST_COUNT; list++) {
        if (!execution->program->stages[0].lists[list].count) continue;
        fill_caches(list == SKY_LIST_UPDATE ? clock->traffic.update_bytes : clock->traffic.microbatch_bytes);
        clock_start(clock, seconds + works->first[list]);
        if (!execution_run(execution, 0, (SkyListKind)list, 0, diagnostics)) return false;
    }
    if (clock->seconds != seconds + works->total) bug("a stage does more or less than its lists say");
    return true;
}

/* ---- Company ---- */

MeasureCompany measure_company(const Cluster *cluster, int threads, int processors)
{
    double others = 0;
    enum { MOST = 7 }; /* each takes memory of its own */
    int alike = 0, most = processors - threads < MOST ? processors - threads : MOST;
    for (int d = 0; d < cluster->device_count; d++) {
        const ClusterDevice *device = &cluster->devices[d];
        if (device->threads != threads || device->opencl_device) continue;
        alike++;
        for (int o = 0; o < cluster->device_count; o++)
            if (o != d && !cluster->devices[o].opencl_device && strcmp(cluster->devices[o].host, device->host) == 0)
                others += cluster->devices[o].threads / fmax(1, cluster->devices[o].slowdown);
    }
    if (!alike || others <= 0 || most < 1) return (MeasureCompany){0};
    others /= alike;
    int count = others < most ? (int)ceil(others) : most;
    return (MeasureCompany){count, fmin(1, others / count)};
}

/* A thread that does what is measured, too, until it is to stop. */
typedef struct Companion {
    Execution *execution;
    atomic_bool *stop;
    pthread_t thread;
    bool started;
} Companion;

static void *keep_company(void *context)
{
    Companion *companion = context;
    FREED_WITH(diagnostics_free) Diagnostics ignored = {0};
    bool ok = true;
    for (; ok && !atomic_load(companion->stop); companion->execution->step[SKY_STEP_WEIGHTS_KEPT] = 1)
        for (int list = 0; list < SKY_LIST_COUNT && ok; list++)
            ok = execution_run(companion->execution, 0, (SkyListKind)list, 0, &ignored);
    return NULL;
}

/* ---- Rounds ---- */

/* `seconds`: [ROUNDS][works->total] */
static bool run_rounds(double *seconds, Execution *execution, Clock *clock, const Works *works,
                       Diagnostics *diagnostics)
{
    float *kept = &execution->step[SKY_STEP_WEIGHTS_KEPT];
    *kept = 0;
    bool ok = run_round(execution, clock, works, seconds, diagnostics); /* touches everything; does not count */
    *kept = 1;
    for (int round = 0; ok && round < ROUNDS; round++)
        ok = run_round(execution, clock, works, seconds + (size_t)round * works->total, diagnostics);
    return ok;
}

/* The same while others do it, too. */
static bool run_rounds_together(double *seconds, Execution *executions, int others, Clock *clock, const Works *works,
                                Diagnostics *diagnostics)
{
    atomic_bool stop = false;
    FREED Companion *companions = memory_allocate((size_t)others * sizeof *companions);
    for (int i = 0; i < others; i++) {
        companions[i] = (Companion){.execution = &executions[1 + i], .stop = &stop};
        companions[i].started = pthread_create(&companions[i].thread, NULL, keep_company, &companions[i]) == 0;
    }
    bool ok = run_rounds(seconds, executions, clock, works, diagnostics);
    atomic_store(&stop, true);
    for (int i = 0; i < others; i++)
        if (companions[i].started) pthread_join(companions[i].thread, NULL);
    return ok;
}

/* The median of all that the same work took. */
static double median_s(const Works *works, Hash hash, const double *seconds)
{
    FREED double *samples = memory_allocate((size_t)ROUNDS * works->total * sizeof *samples);
    size_t count = 0;
    for (uint32_t w = 0; w < works->total; w++)
        for (int r = 0; r < ROUNDS && hash_equal(works->hash[w], hash); r++)
            samples[count++] = seconds[(size_t)r * works->total + w];
    return median(samples, count);
}

/* `share`: of the seconds together. */
static void add_times(MachineProfile *machine, Arena *arena, const Works *works, double *const seconds[2], double share)
{
    size_t known = machine->kernel_count;
    KernelTime *times = arena_new_array(arena, KernelTime, known + works->total);
    if (known) memcpy(times, machine->kernels, known * sizeof *times);
    machine->kernels = times;
    for (uint32_t w = 0; w < works->total; w++) {
        Hash hash = works->hash[w];
        if (machine_profile_seconds(machine, hash) >= 0) continue;
        double alone = share < 1 ? median_s(works, hash, seconds[0]) : 0;
        double together = share > 0 ? median_s(works, hash, seconds[1]) : 0;
        times[machine->kernel_count++] = (KernelTime){hash, (1 - share) * alone + share * together};
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

bool measure_stage(MachineProfile *machine, Arena *arena, Execution *executions, LayerTraffic traffic,
                   MeasureCompany company, Diagnostics *diagnostics)
{
    Works works = works_of(&executions->program->stages[0]);
    Clock clock = {.threads = execution_by_this_thread(executions) ? 1 : MORE_THREADS, .traffic = traffic};
    double *seconds[2]; /* alone, together */
    for (int i = 0; i < 2; i++) seconds[i] = memory_allocate((size_t)ROUNDS * works.total * sizeof **seconds);
    executions->between = clock_tick;
    executions->between_context = &clock;
    executions->timed = true;
    bool ok = company.share >= 1 || run_rounds(seconds[0], executions, &clock, &works, diagnostics);
    if (ok && company.share > 0)
        ok = run_rounds_together(seconds[1], executions, company.count, &clock, &works, diagnostics);
    if (ok) add_times(machine, arena, &works, seconds, company.share);
    for (int i = 0; i < 2; i++) free(seconds[i]);
    free(works.hash);
    executions->between = NULL;
    executions->timed = false;
    return ok;
}

/* ---- Passes ---- */

static double total_s(const MachineProfile *machine)
{
    double total = 0;
    for (size_t k = 0; k < machine->kernel_count; k++) total += machine->kernels[k].seconds;
    return total;
}

void measure_passes_add(MeasurePasses *passes, Arena *arena, const MachineProfile *pass)
{
    MachineProfile *mean = &passes->mean;
    double total = total_s(pass);
    if (!passes->count++) {
        *mean = *pass;
        mean->kernels = arena_copy(arena, pass->kernels, pass->kernel_count * sizeof *pass->kernels);
    } else {
        if (pass->kernel_count != mean->kernel_count) bug("a pass measures other kernels than the one before");
        for (size_t k = 0; k < pass->kernel_count; k++)
            mean->kernels[k].seconds += (pass->kernels[k].seconds - mean->kernels[k].seconds) / passes->count;
    }
    double deviation = total - passes->mean_total; /* Welford's */
    passes->mean_total += deviation / passes->count;
    passes->squares += deviation * (total - passes->mean_total);
}

double measure_passes_spread(const MeasurePasses *passes)
{
    if (passes->count < 2 || passes->mean_total <= 0) return 0;
    return sqrt(passes->squares / (passes->count - 1)) / passes->mean_total;
}

bool measure_passes_are_enough(const MeasurePasses *passes)
{
    enum { LEAST = 3, MOST = 12 };
    static const double certain = 0.01; /* of the mean: its standard error */
    if (passes->count < LEAST) return false;
    return passes->count >= MOST || measure_passes_spread(passes) <= certain * sqrt(passes->count);
}
