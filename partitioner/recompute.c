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

static int64_t value_of(const Choice *c)
{
    return c->problem->objective == PLAN_OBJECTIVE_STEP ? c->value.step : c->value.period;
}

/* loop_solve for the problem with another way to recompute; what it finds is offered, and its baselines taken where
 * there are none yet. */
static OptimalResult offer_loop(Choice *c, ProblemRecompute how, int device, double seconds, Allocation *allocations,
                                bool *known, LoopTrail *trail)
{
    Problem other;
    Allocation all[PLAN_ALLOCATOR_COUNT];
    LoopResult result = {.optimal = {.timed_out = true}};
    if (!problem_derive(&other, c->problem, c->problem->costs, c->problem->microbatches, how, NULL))
        return result.optimal;
    for (int a = 0; a < PLAN_ALLOCATOR_COUNT; a++) all[a] = allocation_create(&other.arena, &other);
    result = loop_solve(&other, device, seconds, all, trail);
    c->timed_out |= result.optimal.timed_out;
    for (int a = 0; a < PLAN_OPTIMAL; a++)
        if (result.known[a] && !known[a]) {
            allocation_copy(&allocations[a], &all[a]);
            known[a] = true;
        }
    if (result.optimal.found) offer(c, &all[PLAN_OPTIMAL]);
    problem_free(&other);
    return result.optimal;
}

LoopResult recompute_loop(const Problem *problem, int device, double seconds, Allocation *allocations, LoopTrail *trail)
{
    Choice c = {.problem = problem, .best = &allocations[PLAN_OPTIMAL]};
    LoopResult result = {0};
    if (!recompute_matters(problem)) return loop_solve(problem, device, seconds, allocations, trail);
    offer_loop(&c, RECOMPUTE_NEVER, device, seconds / 3, allocations, result.known, NULL);
    OptimalResult relaxed = offer_loop(&c, RECOMPUTE_AUTO, device, seconds / 3, allocations, result.known, trail);
    if (c.found && value_of(&c) > relaxed.bound)
        offer_loop(&c, RECOMPUTE_ALWAYS, device, seconds / 3, allocations, result.known, NULL);
    bool proven = c.found && relaxed.bound >= value_of(&c);
    result.known[PLAN_OPTIMAL] = c.found;
    result.optimal = (OptimalResult){.found = c.found,
                                     .infeasible = relaxed.infeasible && !c.found,
                                     .timed_out = !proven && c.timed_out,
                                     .value = value_of(&c),
                                     .bound = proven ? value_of(&c) : relaxed.bound};
    return result;
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
