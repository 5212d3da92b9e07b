#include "partitioner/solve/recompute.h"

#include <string.h>

typedef struct Choice {
    const Problem *problem; /* PLAN_RECOMPUTE_AUTO */
    Arena arena;
    Incumbent best;
    Allocation trial;
    bool timed_out;
    double deadline;
} Choice;

bool recompute_matters(const Problem *problem)
{
    return problem_is_relaxed(problem) && problem->has_limits && problem->stash_bytes[problem->layer_count] > 0;
}

/* The optimum of the problem without recomputation (`devices` NULL), or where just these devices recompute. */
static bool offer_optimum(Choice *c, const bool *devices, double share)
{
    Problem fixed;
    if (watch_passed(c->problem->watch, c->deadline)) {
        c->timed_out = true;
        return false;
    }
    double seconds = share * (c->deadline - watch_seconds(c->problem->watch));
    if (!problem_derive(&fixed, c->problem, c->problem->costs, c->problem->microbatches,
                        devices ? PLAN_RECOMPUTE_AUTO : PLAN_RECOMPUTE_NEVER, devices))
        return false;
    OptimalResult result = optimal_solve(&fixed, NULL, seconds, &c->trial, NULL);
    problem_free(&fixed);
    c->timed_out |= result.timed_out;
    return result.found && incumbent_offer(&c->best, &c->trial);
}

/* Marks the devices whose stages recompute; returns how many there are. */
static int mark_recomputing(const Problem *p, const Allocation *a, bool *devices)
{
    int count = 0;
    memset(devices, 0, (size_t)p->device_count * sizeof *devices);
    for (int k = 0; k < a->stage_count; k++) {
        int start = allocation_start(a, k), device = a->device[k];
        devices[device] = problem_stage_recomputes(p, p->type_of[device], start, a->end[k], a->stage_count - k);
        count += devices[device];
    }
    return count;
}

OptimalResult recompute_solve(const Problem *problem, const Allocation *start, double seconds, Allocation *allocation,
                              Evidence *evidence)
{
    enum { ROUNDS = 3 };
    Choice c = {.problem = problem,
                .best = {.problem = problem, .allocation = allocation, .settled = true},
                .deadline = watch_seconds(problem->watch) + seconds};
    c.trial = allocation_create(&c.arena, problem);
    if (start) incumbent_offer(&c.best, start);
    OptimalResult result = optimal_solve(problem, start, seconds / 2, &c.trial, evidence);
    c.timed_out = result.timed_out;
    if (result.found) incumbent_offer(&c.best, &c.trial);
    bool *devices = arena_new_array(&c.arena, bool, (size_t)problem->device_count);
    if (c.best.found && incumbent_objective(&c.best) > result.bound) {
        offer_optimum(&c, NULL, 0.3);
        for (int d = 0; d < problem->device_count; d++) devices[d] = true;
        offer_optimum(&c, devices, 0.3);
        for (int round = 0; round < ROUNDS && mark_recomputing(problem, c.best.allocation, devices); round++)
            if (!offer_optimum(&c, devices, 0.4)) break;
    }
    result.found = c.best.found;
    result.infeasible &= !c.best.found;
    result.timed_out = c.timed_out;
    result.value = incumbent_objective(&c.best);
    arena_free(&c.arena);
    return result;
}
