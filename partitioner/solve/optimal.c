#include "partitioner/solve/optimal.h"

#include <math.h>
#include <stdlib.h>

#include "partitioner/periods.h"
#include "partitioner/sizes.h"
#include "partitioner/solve/prices.h"
#include "partitioner/solve/prove.h"
#include "partitioner/solve/search.h"
#include "partitioner/solve/shortest.h"
#include "partitioner/solve/solver.h"

/* Records the prices that prove the bound above the cap. */
static void refuted(Solver *s, int64_t cap)
{
    if (s->problem->objective == PLAN_OBJECTIVE_PERIOD)
        evidence_replace(s->evidence, s->problem, 0, period_above(s->problem, cap) - 1, s->type_price);
}

/* ---- Is there a plan of this period? ---- */

typedef enum Answer { NO, YES, UNKNOWN } Answer;

/* Decides by branching, with a search in every node. */
static Answer branch(Solver *s, int64_t cap, ProofLimits limits)
{
    Proof proof;
    double *price = memory_allocate((size_t)s->problem->device_count * sizeof *price);
    for (int d = 0; d < s->problem->device_count; d++) price[d] = s->type_price[s->problem->type_of[d]];
    ProofAnswer answer = proof_make(&proof, s->problem, cap, false, 0, price, limits);
    proof_free(&proof);
    free(price);
    if (answer == PROOF_FOUND) incumbent_offer(&s->best, limits.found);
    return answer == PROOF_DONE ? NO : answer == PROOF_FOUND ? YES : UNKNOWN;
}

static Answer decide(Solver *s, int64_t cap, int width)
{
    Relaxation r;
    relaxation_create(&r, s->problem, cap, false);
    Prices prices = {.price = arena_new_array(&r.arena, double, (size_t)r.class_count),
                     .deadline = solver_price_deadline(s)};
    solver_load_prices(s, &r, prices.price);
    prices_solve(&prices, &r, 0, PRICES_ITERATIONS);
    Answer answer = prices.bound > 0 ? NO : UNKNOWN;
    if (prices.bound < RELAXATION_INFINITY / 2) solver_store_prices(s, &r, prices.price);
    if (answer == UNKNOWN && s->problem->region_count > 1)
        answer = branch(s, cap, (ProofLimits){.nodes = INT32_MAX, .deadline = s->deadline, .regions_only = true});
    if (answer == NO) refuted(s, cap);
    if (answer == UNKNOWN && width > 0) {
        shortest_solve(&r, prices.price);
        /* Starts narrow, which suffices if there are many plans; each wider search costs eight times as much. */
        for (int narrow = 16; answer == UNKNOWN; narrow *= 8) {
            if (narrow > width) narrow = width;
            SearchResult result =
                search_plans(&r, prices.price, (SearchLimits){.width = narrow, .deadline = s->deadline}, &s->trial);
            answer = result.found ? YES : result.complete ? NO : UNKNOWN;
            if (narrow == width || solver_out_of_time(s)) break;
        }
    }
    relaxation_free(&r);
    if (answer == YES) incumbent_offer(&s->best, &s->trial);
    return answer;
}

enum { NARROW = 128, WIDTH = 3000 };

/* Finds a first plan of any period. NO: there is none. */
static Answer find_any(Solver *s) { return s->best.found ? YES : decide(s, period_largest(s->problem), WIDTH); }

/* Bisects by prices and searches for the shortest period at which a search of this width finds a plan, to within
 * `precision`. Then bisects by prices alone for the longest period that they refute. */
static void bisect(Solver *s, int width, double precision)
{
    int64_t unknown = 0; /* the largest period about which nothing is known */
    while (s->bound < s->best.value.period && !solver_out_of_time(s)) {
        int64_t low = unknown > s->bound ? unknown : s->bound - 1, high = s->best.value.period;
        if (low + 1 >= high || (unknown > 0 && (double)(high - low) < precision * (double)high)) break;
        int64_t cap = low + (high - low) / 2;
        Answer answer = decide(s, cap, width);
        if (answer == NO) s->bound = period_above(s->problem, cap);
        if (answer == UNKNOWN) unknown = cap;
    }
    int64_t close =
        size_is_large(s->problem) ? s->best.value.period / 50000 : 0; /* prices of large problems are not exact */
    for (int64_t high = unknown; s->bound < high - close && !solver_out_of_time(s);) {
        int64_t cap = s->bound + (high - 1 - s->bound) / 2;
        if (decide(s, cap, 0) == NO)
            s->bound = period_above(s->problem, cap);
        else
            high = cap;
    }
}

/* Closes the gap that prices leave: branching decides about the period in the middle. If that takes too many nodes, it
 * decides about shorter periods, then tries again with more nodes. */
static void close_gap(Solver *s)
{
    int64_t unknown = INT64_MAX; /* the least period that took too many nodes */
    for (int nodes = 100; s->bound < s->best.value.period && !solver_out_of_time(s);) {
        int64_t high = unknown < s->best.value.period ? unknown : s->best.value.period;
        if (high <= s->bound) {
            if (nodes > 1 << 20) return;
            nodes *= 4;
            unknown = INT64_MAX;
            solver_improve(s, nodes, solver_price_deadline(s));
            continue;
        }
        int64_t cap = s->bound + (high - 1 - s->bound) / 2;
        ProofLimits limits = {.nodes = nodes, .deadline = solver_price_deadline(s), .found = &s->trial, .width = 64};
        Answer answer = branch(s, cap, limits);
        if (answer == NO) s->bound = period_above(s->problem, cap);
        if (answer == UNKNOWN) unknown = cap;
    }
}

/* For problems too large for branching: alternates neighbourhoods with wider and wider searches. */
static void widen(Solver *s)
{
    for (int width = 4 * NARROW; s->bound < s->best.value.period && !solver_out_of_time(s); width *= 2) {
        solver_improve(s, 400, watch_share(s->problem->watch, s->deadline, 1.0 / 8));
        bisect(s, width, 5e-4);
    }
}

static int64_t solve_period(Solver *s)
{
    s->bound = period_above(s->problem, 0); /* no smaller period is possible */
    refuted(s, 0);
    Answer any = find_any(s);
    if (any != YES) return any == NO ? INT64_MAX : s->bound;
    bisect(s, size_is_small(s->problem) ? WIDTH : NARROW, 1e-3);
    if (size_is_large(s->problem))
        widen(s);
    else
        solver_improve(s, 100, solver_price_deadline(s));
    close_gap(s);
    return s->bound < s->best.value.period ? s->bound : s->best.value.period;
}

OptimalResult optimal_solve(const Problem *problem, const Allocation *start, double seconds, Allocation *allocation,
                            Evidence *evidence)
{
    Solver s = {.problem = problem,
                .deadline = watch_seconds(problem->watch) + seconds,
                .best = {.problem = problem, .allocation = allocation},
                .evidence = evidence};
    s.trial = allocation_create(&s.arena, problem);
    s.type_price = arena_new_array(&s.arena, double, (size_t)problem->type_count);
    s.neighbourhood = (Neighbourhood){.problem = problem, .random = 0x2545f4914f6cdd1d, .deadline = s.deadline};
    if (start) incumbent_offer(&s.best, start);
    bool step = problem->objective == PLAN_OBJECTIVE_STEP;
    OptimalResult result = {.bound = !step ? solve_period(&s) : find_any(&s) == NO ? INT64_MAX : solver_step(&s)};
    result.found = s.best.found;
    result.timed_out = s.timed_out;
    result.infeasible = !s.best.found && result.bound == INT64_MAX;
    result.value = incumbent_objective(&s.best);
    arena_free(&s.arena);
    return result;
}

Feasibility optimal_feasibility(const Problem *problem, double deadline, Allocation *allocation)
{
    Solver s = {.problem = problem,
                .deadline = deadline > 0 ? deadline : INFINITY,
                .best = {.problem = problem, .allocation = allocation}};
    s.trial = allocation_create(&s.arena, problem);
    s.type_price = arena_new_array(&s.arena, double, (size_t)problem->type_count);
    Answer answer = decide(&s, period_largest(problem), WIDTH);
    arena_free(&s.arena);
    return answer == YES ? FEASIBLE_YES : answer == NO ? FEASIBLE_NO : FEASIBLE_OPEN;
}
