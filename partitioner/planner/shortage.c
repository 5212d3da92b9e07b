#include "partitioner/planner/shortage.h"

#include "partitioner/solve/keeper_feasible.h"

enum { MOST_DEVICES = 64 };

typedef struct Shortage {
    const Problem *problem;
    int keeper; /* device; -1: none */
    double deadline;
    bool open; /* some question was left open, and counted as no */
} Shortage;

/* A device that is changed, or comes several times. */
typedef struct Change {
    int device;
    int64_t memory_bytes;
    int copies;
} Change;

static Costs apply(const Shortage *s, Change change, Arena *arena)
{
    Costs costs = *s->problem->costs;
    int n = costs.device_count;
    costs.devices = arena_new_array(arena, DeviceCost, (size_t)n + (size_t)change.copies);
    for (int i = 0; i < n + change.copies; i++)
        costs.devices[i] = s->problem->costs->devices[i < n ? i : change.device];
    costs.devices[change.device].memory_bytes = change.memory_bytes;
    costs.device_count += change.copies;
    return costs;
}

/* What the allocation needs of a device at least. */
static int64_t bytes_on(const Problem *p, const Allocation *a, int device)
{
    int64_t bytes = 0;
    for (int k = 0; k < a->stage_count; k++) {
        if (a->device[k] != device) continue;
        int64_t stage =
            problem_least_bytes(p, allocation_start(a, k), a->end[k], problem_in_flight(p, a->stage_count - k));
        if (__builtin_add_overflow(bytes, stage, &bytes)) bytes = COSTS_NO_LIMIT;
    }
    return bytes;
}

/* Is there a plan then? *needed: how much of the changed device's memory it needs. */
static bool is_enough(Shortage *s, Change change, int64_t *needed)
{
    Arena arena = {0};
    Costs costs = apply(s, change, &arena);
    const Problem *p = s->problem;
    Problem other;
    Feasibility answer = FEASIBLE_OPEN;
    if (problem_derive(&other, p, &costs, p->microbatches, p->recompute, NULL)) {
        /* Where orders are searched for, planning goes down to one micro-batch in flight before it gives up. That may
         * not have been worth trying for fewer devices. */
        if (p->schedule == PLAN_AUTO) problem_limit_in_flight(&other, 1);
        Allocation any = allocation_create(&arena, &other);
        /* No question may use up the time of those that come after it: an answer to each is worth more than a proof. */
        double deadline = s->deadline > 0 ? watch_share(p->watch, s->deadline, 1.0 / 40) : 0;
        answer = s->keeper >= 0 ? keeper_feasibility(&other, s->keeper, deadline, &any)
                                : optimal_feasibility(&other, deadline, &any);
        if (answer == FEASIBLE_YES) *needed = bytes_on(&other, &any, change.device);
        problem_free(&other);
    }
    arena_free(&arena);
    s->open |= answer == FEASIBLE_OPEN;
    return answer == FEASIBLE_YES;
}

/* The least extra memory on one device, and which. A device is only examined closer if it beats the best so far. */
static int64_t least_memory(Shortage *s, int *device)
{
    const Problem *p = s->problem;
    int64_t best = COSTS_NO_LIMIT, needed;
    int first = s->keeper >= 0 ? p->type_of[s->keeper] : 0; /* the keeper is most often the one that is too small */
    *device = -1;
    for (int i = 0; i < p->type_count; i++) {
        int t = (first + i) % p->type_count;
        int candidate = p->first_device[t];
        int64_t low = p->type_limit[t], high = COSTS_NO_LIMIT; /* low is not enough, high is */
        if (low == COSTS_NO_LIMIT) continue;
        if (*device >= 0) high = low + best - 1;
        if (!is_enough(s, (Change){candidate, high, 0}, &needed)) continue;
        if (needed < high) high = needed;
        while (high - low > 1) {
            int64_t middle = low + (high - low) / 2;
            if (is_enough(s, (Change){candidate, middle, 0}, &needed))
                high = needed < middle ? needed : middle;
            else
                low = middle;
        }
        best = high - p->type_limit[t];
        *device = candidate;
    }
    return best;
}

static int least_copies(Shortage *s, int *device)
{
    const Problem *p = s->problem;
    int best = MOST_DEVICES + 1;
    int64_t needed;
    *device = -1;
    for (int t = 0; t < p->type_count && best > 1; t++) {
        Change change = {p->first_device[t], p->type_limit[t], best - 1};
        if (!is_enough(s, change, &needed)) continue;
        int low = 0, high = best - 1;
        while (high - low > 1) {
            change.copies = low + (high - low) / 2;
            *(is_enough(s, change, &needed) ? &high : &low) = change.copies;
        }
        best = high;
        *device = change.device;
    }
    return best;
}

/* Mebibytes are rounded up, so that what the hint says is enough. */
static const char *remedies(Shortage *s, Arena *arena)
{
    int more_memory, more_devices;
    int64_t extra = least_memory(s, &more_memory);
    int copies = least_copies(s, &more_devices);
    const DeviceCost *devices = s->problem->costs->devices;
    const char *hint = "";
    if (more_memory >= 0)
        hint = arena_format(arena, "+%lld MiB on '%s' would be enough (%lld bytes)",
                            (long long)((extra >> 20) + (extra % 1048576 > 0)), devices[more_memory].name,
                            (long long)extra);
    if (more_devices >= 0)
        hint = arena_format(arena, "%s%s%d more device%s like '%s' would be enough", hint, *hint ? "; or " : "", copies,
                            copies > 1 ? "s" : "", devices[more_devices].name);
    if (*hint) return s->open ? arena_format(arena, "%s; perhaps less would, too", hint) : hint;
    return s->open ? "what would be enough was not found in the time given"
                   : "neither more memory on one device nor more devices like one would be enough";
}

bool shortage_report(const Problem *problem, int keeper, double deadline, Diagnostics *diagnostics)
{
    Shortage shortage = {.problem = problem, .keeper = keeper, .deadline = deadline};
    FREED_WITH(arena_free) Arena arena = {0};
    const char *kept = "";
    if (keeper >= 0)
        kept = arena_format(&arena, " with inputs and labels on '%s'", problem->costs->devices[keeper].name);
    diagnostics_error(diagnostics, EXIT_NO_PLAN, PLACE_NONE, remedies(&shortage, &arena),
                      "no allocation of the %d layers fits the memory of the %d devices%s%s", problem->layer_count,
                      problem->device_count, kept,
                      problem->in_flight_limit > 0 ? ", not even with one micro-batch in flight at a time" : "");
    return false;
}
