#include "runtime/program/waves.h"

#include <math.h>
#include <stdlib.h>

#include "base/arena.h"
#include "runtime/program/parallel.h"
#include "runtime/program/runtime_sizes.h"

enum { EVERYBODY = -1 };

/* The units and the time of the work that begins with call `c`. */
static void measure_work(WaveList *list, uint32_t c, SkyPresent present)
{
    const SkyCall *call = &list->calls[c];
    int64_t all = call->group_count ? call->block_count : call->units;
    double share = call->line_loops ? (double)present.lines / call->line_loops : 1;
    if (call->sum_extent) share = fmin(1, (double)sky_work_limit(call, present) / call->sum_extent);
    list->units[c] = sky_work_pieces(call, present);
    if (list->units[c] < all) share *= (double)list->units[c] / (double)all;
    for (uint32_t i = 0; i < sky_group_size(call); i++) list->nanoseconds[c] += share * (double)call[i].nanoseconds;
}

int wave_sharers(double nanoseconds, int64_t units, int threads)
{
    double worthwhile = fmin(nanoseconds / SIZE_THREAD_NS, (double)units);
    return worthwhile < 1 ? 1 : worthwhile < threads ? (int)worthwhile : threads;
}

/* ---- Cutting ---- */

static int sharers_of(const WaveList *list, const Wave *wave, int threads)
{
    const SkyCall *calls = list->calls;
    int64_t units = 0;
    double nanoseconds = 0;
    for (uint32_t c = wave->first; c < wave->end; c++)
        if (!calls[c].kernel) return 1;
    for (uint32_t c = wave->first; c < wave->end; c += sky_group_size(&calls[c])) {
        units += list->units[c];
        nanoseconds += list->nanoseconds[c];
    }
    return wave_sharers(nanoseconds, units, threads);
}

/* Which of a call's units are in the part of thread `thread`. */
typedef struct Slice {
    int64_t begin, end;
} Slice;

static Slice slice_of(const WaveList *list, const Wave *wave, uint32_t c, int thread)
{
    int64_t units = list->units[c];
    if (list->owner[c] != EVERYBODY) return (Slice){0, list->owner[c] == thread ? units : 0};
    return (Slice){parallel_begin(units, thread, wave->sharers), parallel_begin(units, thread + 1, wave->sharers)};
}

static void choose_owners(WaveList *list, const Wave *wave)
{
    const SkyCall *calls = list->calls;
    double all = 0, before = 0;
    for (uint32_t c = wave->first; c < wave->end; c += sky_group_size(&calls[c])) {
        list->owner[c] = list->units[c] < wave->sharers ? 0 : EVERYBODY;
        if (list->owner[c] != EVERYBODY) all += list->nanoseconds[c];
    }
    for (uint32_t c = wave->first; c < wave->end; c += sky_group_size(&calls[c])) {
        if (list->owner[c] == EVERYBODY) continue;
        double middle = before + list->nanoseconds[c] / 2;
        int owner = all > 0 ? (int)(middle / all * wave->sharers) : 0;
        list->owner[c] = owner < wave->sharers ? owner : wave->sharers - 1; /* the last one: calls that take no time */
        before += list->nanoseconds[c];
    }
}

static void add_up_parts(const WaveList *list, const Wave *wave, WavePart *parts)
{
    for (uint32_t c = wave->first; c < wave->end; c += sky_group_size(&list->calls[c]))
        for (int thread = 0; thread < wave->sharers; thread++) {
            Slice slice = slice_of(list, wave, c, thread);
            if (slice.begin == slice.end) continue;
            double share = (double)(slice.end - slice.begin) / (double)list->units[c];
            parts[thread].units += slice.end - slice.begin;
            parts[thread].nanoseconds += share * list->nanoseconds[c];
        }
}

void wave_list_make(WaveList *list, const SkyCall *calls, uint32_t count, SkyPresent present, int threads, bool apart)
{
    *list = (WaveList){.calls = calls};
    list->units = memory_allocate((count + 1) * sizeof *list->units);
    list->nanoseconds = memory_allocate((count + 1) * sizeof *list->nanoseconds);
    list->waves = memory_allocate((count + 1) * sizeof *list->waves);
    list->owner = memory_allocate((count + 1) * sizeof *list->owner);
    list->parts = memory_allocate(((size_t)count + 1) * (size_t)threads * sizeof *list->parts);
    WavePart *parts = list->parts;
    for (uint32_t c = 0; c < count; c += sky_group_size(&calls[c])) measure_work(list, c, present);
    for (uint32_t c = 0; c < count;) {
        Wave *wave = &list->waves[list->count++];
        *wave = (Wave){.first = c, .parts = parts};
        c = wave->end = c + (apart ? sky_group_size : sky_wave_size)(&calls[c]);
        wave->sharers = sharers_of(list, wave, threads);
        for (uint32_t k = wave->first; k < wave->end; k++) wave->has_tails |= calls[k].tail_count > 0;
        choose_owners(list, wave);
        add_up_parts(list, wave, parts);
        parts += wave->sharers;
    }
}

void wave_list_free(WaveList *list)
{
    free(list->units);
    free(list->nanoseconds);
    free(list->waves);
    free(list->owner);
    free(list->parts);
    *list = (WaveList){0};
}

/* ---- Taking ---- */

static void begin_part(WaveWalk *walk, int owner)
{
    walk->owner = owner;
    walk->call = walk->wave->first;
    walk->begin = 0;
    walk->before = 0;
}

void wave_begin(WaveWalk *walk, const Wave *wave)
{
    walk->wave = wave;
    team_begin(walk->team, &walk->share, walk->thread, walk->threads);
    if (walk->thread < wave->sharers) begin_part(walk, walk->thread);
}

/* Moves to the call that has unit `unit` of the part. Returns the part's slice of that call. */
static Slice find_call(WaveWalk *walk, int64_t unit)
{
    for (;;) {
        Slice slice = slice_of(walk->list, walk->wave, walk->call, walk->owner);
        int64_t units = slice.end - slice.begin;
        if (unit < walk->begin + units) return slice;
        if (units)
            walk->before += walk->list->nanoseconds[walk->call] * (double)units / (double)walk->list->units[walk->call];
        walk->begin += units;
        walk->call += sky_group_size(&walk->list->calls[walk->call]);
    }
}

/* How many of the call's units to take, from unit `from` of the part, which has `left` of them. */
static int64_t piece_size(const WaveWalk *walk, int64_t from, int64_t left)
{
    double each = walk->list->nanoseconds[walk->call] / (double)walk->list->units[walk->call],
           before = walk->before + each * (double)(from - walk->begin);
    double wanted = fmax((walk->wave->parts[walk->owner].nanoseconds - before) / 2, SIZE_PIECE_NS);
    if (wanted >= each * (double)left) return left;
    return (int64_t)ceil(wanted / each - 1e-6); /* the subtraction absorbs rounding errors */
}

bool wave_take(WaveWalk *walk, WavePiece *piece)
{
    const Wave *wave = walk->wave;
    if (walk->thread >= wave->sharers) return false;
    for (;;) {
        int64_t from = team_taken(walk->team, &walk->share, walk->owner);
        while (from < wave->parts[walk->owner].units) {
            Slice slice = find_call(walk, from);
            int64_t begin = slice.begin + from - walk->begin, size = piece_size(walk, from, slice.end - begin);
            if (!team_take(walk->team, &walk->share, walk->owner, &from, from + size)) continue;
            *piece = (WavePiece){&walk->list->calls[walk->call], begin, begin + size};
            return true;
        }
        int next = (walk->owner + 1) % wave->sharers;
        if (next == walk->thread) return false;
        begin_part(walk, next);
    }
}
