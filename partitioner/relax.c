#include "partitioner/relax.h"

#include "partitioner/optimal.h"

enum { MOST_DEVICES = 64 };

/* Is there a plan when this device has `extra` bytes more, or `copies` more like it come? Another problem, solved from
 * scratch: such questions take milliseconds. */
static bool is_enough(const Problem *problem, int device, int64_t extra, int copies)
{
    Arena arena = {0};
    Costs costs = *problem->costs;
    int n = costs.device_count;
    costs.devices = arena_new_array(&arena, DeviceCost, (size_t)n + (size_t)copies);
    for (int i = 0; i < n + copies; i++) costs.devices[i] = problem->costs->devices[i < n ? i : device];
    DeviceCost *changed = &costs.devices[device];
    if (__builtin_add_overflow(changed->memory_bytes, extra, &changed->memory_bytes))
        changed->memory_bytes = COSTS_NO_LIMIT;
    costs.device_count += copies;
    Problem relaxed;
    bool enough = false;
    if (problem_derive(&relaxed, problem, &costs, problem->microbatches, problem->recompute, NULL)) {
        enough = optimal_is_feasible(&relaxed);
        problem_free(&relaxed);
    }
    arena_free(&arena);
    return enough;
}

/* The least extra memory on one device, and which. A device is only examined closer if it beats the best so far. */
static int64_t least_memory(const Problem *problem, int *device)
{
    int64_t best = problem_stage_bytes(problem, 0, problem->layer_count, problem->microbatches) + 1;
    *device = -1;
    for (int t = 0; t < problem->type_count; t++) {
        int candidate = problem->first_device[t];
        if (!is_enough(problem, candidate, best - 1, 0)) continue;
        int64_t low = 0, high = best - 1; /* low is not enough, high is */
        while (high - low > 1) {
            int64_t middle = low + (high - low) / 2;
            *(is_enough(problem, candidate, middle, 0) ? &high : &low) = middle;
        }
        best = high;
        *device = candidate;
    }
    return best;
}

static int least_copies(const Problem *problem, int *device)
{
    int best = MOST_DEVICES + 1;
    *device = -1;
    for (int t = 0; t < problem->type_count; t++) {
        int candidate = problem->first_device[t];
        if (best <= 1 || !is_enough(problem, candidate, 0, best - 1)) continue;
        int low = 0, high = best - 1;
        while (high - low > 1) {
            int middle = low + (high - low) / 2;
            *(is_enough(problem, candidate, 0, middle) ? &high : &low) = middle;
        }
        best = high;
        *device = candidate;
    }
    return best;
}

const char *relax_limit_text(const Problem *problem)
{
    return problem->in_flight_limit > 0 ? ", not even with one micro-batch in flight at a time" : "";
}

bool relax_report(const Problem *problem, Diagnostics *diagnostics)
{
    int more_memory, more_devices;
    int64_t extra = least_memory(problem, &more_memory);
    int copies = least_copies(problem, &more_devices);
    Arena arena = {0};
    const DeviceCost *devices = problem->costs->devices;
    const char *hint = NULL;
    /* Rounded up: what the hint says is enough. */
    if (more_memory >= 0)
        hint = arena_format(&arena, "+%lld MiB on '%s' would be enough (%lld bytes)",
                            (long long)((extra + 1048575) >> 20), devices[more_memory].name, (long long)extra);
    if (more_devices >= 0)
        hint = arena_format(&arena, "%s%s%d more device%s like '%s' would be enough", hint ? hint : "",
                            hint ? "; or " : "", copies, copies > 1 ? "s" : "", devices[more_devices].name);
    diagnostics_error(diagnostics, EXIT_NO_PLAN, PLACE_NONE, hint,
                      "no allocation of the %d layers fits the memory of the %d devices%s", problem->layer_count,
                      problem->device_count, relax_limit_text(problem));
    arena_free(&arena);
    return false;
}
