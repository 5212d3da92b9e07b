#include "partitioner/solve/recompute.h"

#include <string.h>

#include "partitioner/sizes.h"

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

/* Plans without recomputation (`devices` NULL) or with recomputation on these devices only. */
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

/* Tries every number of recomputing devices of each type, which finds the best plan. False: there are too many choices
 * for the problem's size, and none was tried. */
static bool try_all_choices(Choice *c, bool *devices, int64_t bound)
{
    const Problem *p = c->problem;
    int *count = arena_new_array(&c->arena, int, (size_t)p->type_count), t = 0;
    int64_t choices = 1;
    for (int type = 0; type < p->type_count && choices <= SIZE_RECOMPUTE_CHOICES; type++)
        choices *= p->type_size[type] + 1;
    if (choices * size_of(p) > SIZE_RECOMPUTE_CHOICES) return false;
    while (t < p->type_count && incumbent_objective(&c->best) > bound && !watch_passed(p->watch, c->deadline)) {
        int *left = arena_copy(&c->arena, count, (size_t)p->type_count * sizeof *left);
        for (int d = 0; d < p->device_count; d++) devices[d] = left[p->type_of[d]]-- > 0;
        offer_optimum(c, devices, 0.1);
        for (t = 0; t < p->type_count && ++count[t] > p->type_size[t]; t++) count[t] = 0;
    }
    return true;
}

/* Lets one more or one less device recompute than in the best plan, as long as that improves the plan. Tries one device
 * of each type and state. */
static void toggle_devices(Choice *c, bool *devices, int64_t bound)
{
    const Problem *p = c->problem;
    for (bool better = true; better;) {
        better = false;
        mark_recomputing(p, c->best.allocation, devices);
        for (int d = 0; d < p->device_count && !better; d++) {
            int first = 0;
            while (p->type_of[first] != p->type_of[d] || devices[first] != devices[d]) first++;
            if (first < d) continue;
            if (incumbent_objective(&c->best) <= bound || watch_passed(p->watch, c->deadline)) return;
            devices[d] = !devices[d];
            better = offer_optimum(c, devices, 0.1);
            devices[d] = !devices[d];
        }
    }
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
        bool timed_out = c.timed_out;
        if (size_is_small(problem) && !try_all_choices(&c, devices, result.bound))
            toggle_devices(&c, devices, result.bound);
        c.timed_out = timed_out;
    }
    result.found = c.best.found;
    result.infeasible &= !c.best.found;
    result.timed_out = c.timed_out;
    result.value = incumbent_objective(&c.best);
    arena_free(&c.arena);
    return result;
}
