#include "partitioner/solve/keeper_recompute.h"

#include "partitioner/sizes.h"
#include "partitioner/solve/recompute.h"

typedef struct Ways {
    Incumbent best; /* of the problem with PLAN_RECOMPUTE_AUTO */
    int device;
    double seconds, deadline; /* for each way to recompute, and for all choices */
    Allocation *allocations;  /* the baselines, each from the first way that knows it */
    bool *known;
    bool timed_out;
} Ways;

/* keeper_solve for the problem with another way to recompute. */
static OptimalResult try_way(Ways *ways, PlanRecompute way, KeeperTrail *trail)
{
    const Problem *problem = ways->best.problem;
    Problem other;
    Allocation all[PLAN_ALLOCATOR_COUNT];
    if (!problem_derive(&other, problem, problem->costs, problem->microbatches, way, NULL))
        return (OptimalResult){.timed_out = true};
    for (int a = 0; a < PLAN_ALLOCATOR_COUNT; a++) all[a] = allocation_create(&other.arena, &other);
    KeeperResult result = keeper_solve(&other, ways->device, NULL, ways->seconds, all, trail);
    ways->timed_out |= result.optimal.timed_out;
    for (int a = 0; a < PLAN_OPTIMAL && way != PLAN_RECOMPUTE_ALWAYS; a++) /* baselines_run does the same */
        if (result.known[a] && !ways->known[a]) {
            allocation_copy(&ways->allocations[a], &all[a]);
            ways->known[a] = true;
        }
    if (result.optimal.found) incumbent_offer(&ways->best, &all[PLAN_OPTIMAL]);
    problem_free(&other);
    return result.optimal;
}

/* Tries every choice of which devices recompute, and at which of its two ends the keeper does. */
static void try_all_choices(Ways *ways, int64_t bound)
{
    const Problem *problem = ways->best.problem;
    FREED_WITH(arena_free) Arena arena = {0};
    Allocation all[PLAN_ALLOCATOR_COUNT];
    bool *places = arena_new_array(&arena, bool, (size_t)problem->device_count + 1);
    for (int a = 0; a < PLAN_ALLOCATOR_COUNT; a++) all[a] = allocation_create(&arena, problem);
    for (int set = 1; set < 1 << (problem->device_count + 1); set++) {
        double left = ways->deadline - watch_seconds(problem->watch);
        if ((ways->best.found && incumbent_objective(&ways->best) <= bound) || left <= 0) break;
        for (int d = 0; d <= problem->device_count; d++) places[d] = set >> d & 1;
        if (keeper_solve(problem, ways->device, places, left, all, NULL).optimal.found)
            incumbent_offer(&ways->best, &all[PLAN_OPTIMAL]);
    }
}

KeeperResult keeper_solve_recomputing(const Problem *problem, int device, double seconds, Allocation *allocations,
                                      KeeperTrail *trail)
{
    KeeperResult result = {0};
    Ways ways = {.best = {.problem = problem, .allocation = &allocations[PLAN_OPTIMAL], .settled = true},
                 .device = device,
                 .seconds = seconds / 3,
                 .deadline = watch_seconds(problem->watch) + seconds,
                 .allocations = allocations,
                 .known = result.known};
    if (!recompute_matters(problem)) return keeper_solve(problem, device, NULL, seconds, allocations, trail);
    try_way(&ways, PLAN_RECOMPUTE_NEVER, NULL);
    OptimalResult relaxed = try_way(&ways, PLAN_RECOMPUTE_AUTO, trail);
    int64_t value = incumbent_objective(&ways.best);
    if (ways.best.found && value > relaxed.bound) try_way(&ways, PLAN_RECOMPUTE_ALWAYS, NULL);
    if (size_is_tiny(problem) && !relaxed.infeasible) try_all_choices(&ways, relaxed.bound);
    value = incumbent_objective(&ways.best);
    bool proven = ways.best.found && relaxed.bound >= value;
    result.known[PLAN_OPTIMAL] = ways.best.found;
    result.optimal = (OptimalResult){.found = ways.best.found,
                                     .infeasible = relaxed.infeasible && !ways.best.found,
                                     .timed_out = !proven && ways.timed_out,
                                     .value = value,
                                     .bound = proven ? value : relaxed.bound};
    return result;
}

Replanned keeper_replan(const Problem *problem, int device, Allocation *allocation, int neighbourhoods, double deadline)
{
    if (!size_is_tiny(problem)) return keeper_improve(problem, device, allocation, neighbourhoods, deadline);
    FREED_WITH(arena_free) Arena arena = {0};
    Allocation all[PLAN_ALLOCATOR_COUNT];
    for (int a = 0; a < PLAN_ALLOCATOR_COUNT; a++) all[a] = allocation_create(&arena, problem);
    OptimalResult best = keeper_solve_recomputing(problem, device, 1e9, all, NULL).optimal;
    if (best.found) allocation_copy(allocation, &all[PLAN_OPTIMAL]);
    return (Replanned){.found = best.found,
                       .exact = best.infeasible || (best.found && best.bound >= best.value),
                       .value_ns = best.value};
}
