#include "partitioner/recompute.h"

#include <string.h>

typedef struct Choice {
    const Problem *problem; /* RECOMPUTE_AUTO */
    Arena arena;
    Allocation *best, trial;
    AllocationValue value; /* settled */
    bool found, timed_out;
    double deadline;
} Choice;

bool recompute_matters(const Problem *problem)
{
    return problem->recompute == RECOMPUTE_AUTO && problem->has_limits &&
           problem->stash_bytes[problem->layer_count] > 0;
}

static bool offer(Choice *c, const Allocation *allocation)
{
    AllocationValue value = allocation_settle(c->problem, allocation);
    if (!value.fits || (c->found && !allocation_better(c->problem, &value, &c->value))) return false;
    allocation_copy(c->best, allocation);
    c->value = value;
    return c->found = true;
}

/* The optimum of the problem without recomputation (`devices` NULL), or where just these devices recompute. */
static bool offer_optimum(Choice *c, const bool *devices, double share)
{
    Problem fixed;
    double seconds = share * (c->deadline - monotonic_seconds());
    if (!problem_derive(&fixed, c->problem, c->problem->costs, c->problem->microbatches,
                        devices ? RECOMPUTE_SOME : RECOMPUTE_NEVER, devices))
        return false;
    OptimalResult result = optimal_solve(&fixed, NULL, seconds, &c->trial, NULL);
    problem_free(&fixed);
    c->timed_out |= result.timed_out;
    return result.found && offer(c, &c->trial);
}

/* Marks the devices whose stages recompute; returns how many there are. */
static int mark_recomputing(const Problem *p, const Allocation *a, bool *devices)
{
    int count = 0;
    memset(devices, 0, (size_t)p->device_count * sizeof *devices);
    for (int k = 0; k < a->stage_count; k++) {
        int start = k ? a->end[k - 1] : 0, device = a->device[k];
        devices[device] = problem_stage_recomputes(p, p->type_of[device], start, a->end[k], a->stage_count - k);
        count += devices[device];
    }
    return count;
}

/* What every plan is at least, whichever of its stages recompute: they fit if they fit either way, and take the time
 * without. */
static OptimalResult solve_either(const Problem *problem, int device, double seconds, Allocation *allocations,
                                  LoopTrail *trail)
{
    Problem either;
    OptimalResult result = {.timed_out = true};
    if (problem_derive(&either, problem, problem->costs, problem->microbatches, RECOMPUTE_AUTO, NULL)) {
        result = loop_solve(&either, device, seconds, allocations, trail).optimal;
        problem_free(&either);
    }
    return result;
}

/* Where every stage recomputes; taken if it is better than what there is. */
static bool offer_always(const Problem *problem, int device, double seconds, LoopResult *best, Allocation *allocations,
                         Allocation *trial)
{
    Problem always;
    if (!problem_derive(&always, problem, problem->costs, problem->microbatches, RECOMPUTE_ALWAYS, NULL)) return false;
    LoopResult result = loop_solve(&always, device, seconds, trial, NULL);
    problem_free(&always);
    best->optimal.infeasible &= result.optimal.infeasible;
    best->optimal.timed_out |= result.optimal.timed_out;
    if (!result.optimal.found || (best->optimal.found && best->optimal.value <= result.optimal.value)) return false;
    result.optimal.timed_out = best->optimal.timed_out;
    *best = result;
    for (int a = 0; a < PLAN_ALLOCATOR_COUNT; a++) allocation_copy(&allocations[a], &trial[a]);
    return true;
}

LoopResult recompute_loop(const Problem *problem, int device, double seconds, Allocation *allocations, bool *always,
                          LoopTrail *trail)
{
    Arena arena = {0};
    Allocation trial[PLAN_ALLOCATOR_COUNT];
    *always = false;
    if (!problem->has_limits || problem->stash_bytes[problem->layer_count] == 0)
        return loop_solve(problem, device, seconds, allocations, trail);
    for (int a = 0; a < PLAN_ALLOCATOR_COUNT; a++) trial[a] = allocation_create(&arena, problem);
    LoopResult result = loop_solve(problem, device, seconds / 3, allocations, NULL);
    OptimalResult relaxed = solve_either(problem, device, seconds / 3, trial, trail);
    if (!relaxed.infeasible && (!result.optimal.found || result.optimal.value > relaxed.bound))
        *always = offer_always(problem, device, seconds / 3, &result, allocations, trial);
    if (result.optimal.found) {
        bool proven = relaxed.bound >= result.optimal.value;
        result.optimal.bound = proven ? result.optimal.value : relaxed.bound;
        result.optimal.timed_out = !proven && (result.optimal.timed_out || relaxed.timed_out);
    }
    arena_free(&arena);
    return result;
}

static int64_t value_of(const Choice *c)
{
    return c->problem->objective == PLAN_OBJECTIVE_STEP ? c->value.step : c->value.period;
}

OptimalResult recompute_solve(const Problem *problem, const Allocation *start, double seconds, Allocation *allocation,
                              Evidence *evidence)
{
    enum { ROUNDS = 3 };
    Choice c = {.problem = problem, .best = allocation, .deadline = monotonic_seconds() + seconds};
    c.trial = allocation_create(&c.arena, problem);
    if (start) offer(&c, start);
    OptimalResult result = optimal_solve(problem, start, seconds / 2, &c.trial, evidence);
    c.timed_out = result.timed_out;
    if (result.found) offer(&c, &c.trial);
    bool *devices = arena_new_array(&c.arena, bool, (size_t)problem->device_count);
    if (c.found && value_of(&c) > result.bound) {
        offer_optimum(&c, NULL, 0.3);
        for (int d = 0; d < problem->device_count; d++) devices[d] = true;
        offer_optimum(&c, devices, 0.3);
        for (int round = 0; round < ROUNDS && mark_recomputing(problem, c.best, devices); round++)
            if (!offer_optimum(&c, devices, 0.4)) break;
    }
    result.found = c.found;
    result.infeasible &= !c.found;
    result.timed_out = c.timed_out;
    result.value = value_of(&c);
    arena_free(&c.arena);
    return result;
}
