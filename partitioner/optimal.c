#include "partitioner/optimal.h"

#include <stdlib.h>
#include <string.h>

#include "partitioner/certify.h"
#include "partitioner/neighbourhood.h"
#include "partitioner/prices.h"
#include "partitioner/prove.h"
#include "partitioner/search.h"

typedef struct Solver {
    const Problem *problem;
    Arena arena;
    double deadline;
    Allocation *best, trial;
    bool found;
    AllocationValue value; /* of *best */
    int64_t bound;
    bool timed_out;
    Neighbourhood neighbourhood;
    double *type_price; /* [type]: prices to start the next question from */
    Evidence *evidence; /* or NULL */
} Solver;

static bool out_of_time(Solver *s)
{
    if (monotonic_seconds() > s->deadline) s->timed_out = true;
    return s->timed_out;
}

/* Takes an allocation if it fits and is better. */
static bool offer(Solver *s, const Allocation *allocation)
{
    AllocationValue value = allocation_evaluate(s->problem, allocation);
    if (!value.fits || (s->found && !allocation_better(s->problem, &value, &s->value))) return false;
    allocation_copy(s->best, allocation);
    s->value = value;
    s->found = true;
    return true;
}

static void load_prices(const Solver *s, const Relaxation *r, double *price)
{
    for (int c = 0; c < r->class_count; c++) price[c] = s->type_price[r->class_type[c]];
}

static void store_prices(Solver *s, const Relaxation *r, const double *price)
{
    for (int d = 0; d < s->problem->device_count; d++) s->type_price[s->problem->type_of[d]] = price[r->class_of[d]];
}

/* The bound is above the cap, and these are the prices that say so. */
static void refuted(Solver *s, int64_t cap)
{
    if (s->problem->objective == PLAN_OBJECTIVE_PERIOD)
        evidence_replace(s->evidence, s->problem, 0, period_above(s->problem, cap) - 1, s->type_price);
}

/* One question may take a third of what is left. */
static double price_deadline(const Solver *s)
{
    double time = monotonic_seconds();
    return time + (s->deadline - time) / 3;
}

/* ---- can there be a plan of this period? ---- */

typedef enum Answer { NO, YES, UNKNOWN } Answer;

/* The same by branching, with a search in every node. */
static Answer branch(Solver *s, int64_t cap, ProofLimits limits)
{
    Proof proof;
    double *price = memory_allocate((size_t)s->problem->device_count * sizeof *price);
    for (int d = 0; d < s->problem->device_count; d++) price[d] = s->type_price[s->problem->type_of[d]];
    ProofAnswer answer = proof_make(&proof, s->problem, cap, false, 0, price, limits);
    proof_free(&proof);
    free(price);
    if (answer == PROOF_FOUND) offer(s, limits.found);
    return answer == PROOF_DONE ? NO : answer == PROOF_FOUND ? YES : UNKNOWN;
}

static Answer decide(Solver *s, int64_t cap, int width)
{
    Relaxation r;
    relaxation_create(&r, s->problem, cap, false, NULL, 0);
    Prices prices = {.price = arena_new_array(&r.arena, double, (size_t)r.class_count), .deadline = price_deadline(s)};
    load_prices(s, &r, prices.price);
    prices_solve(&prices, &r, 0, 20000);
    Answer answer = prices.bound > 0 ? NO : UNKNOWN;
    if (prices.bound < RELAXATION_INFINITY / 2) store_prices(s, &r, prices.price);
    if (answer == UNKNOWN && s->problem->region_count > 1)
        answer = branch(s, cap, (ProofLimits){.nodes = INT32_MAX, .deadline = s->deadline, .regions_only = true});
    if (answer == NO) refuted(s, cap);
    if (answer == UNKNOWN && width > 0) {
        relaxation_solve(&r, prices.price);
        /* A narrow search finds a plan where there are many; each wider one costs what all before it did, times eight.
         */
        for (int narrow = 16; answer == UNKNOWN; narrow *= 8) {
            if (narrow > width) narrow = width;
            SearchResult result =
                search_plans(&r, prices.price, (SearchLimits){.width = narrow, .deadline = s->deadline}, &s->trial);
            answer = result.found ? YES : result.complete ? NO : UNKNOWN;
            if (narrow == width || out_of_time(s)) break;
        }
    }
    relaxation_free(&r);
    if (answer == YES) offer(s, &s->trial);
    return answer;
}

enum { NARROW = 128, WIDTH = 3000 };

/* A first plan, whatever its period. NO: there is none. */
static Answer find_any(Solver *s) { return s->found ? YES : decide(s, period_largest(s->problem), WIDTH); }

/* Small enough to be searched whole. */
static bool is_small(const Problem *p) { return (int64_t)p->layer_count * p->device_count <= 3000; }

/* So large that searching it whole takes longer than it is worth. */
static bool is_large(const Problem *p) { return (int64_t)p->layer_count * p->device_count > 50000; }

/* Improves the best plan until `failures` tries in a row did not, the bound is met, or time is up. */
static void improve(Solver *s, int failures, double until)
{
    if (is_small(s->problem)) return;
    for (int failed = 0; failed < failures && s->found && !out_of_time(s) && monotonic_seconds() < until; failed++) {
        int64_t value = s->problem->objective == PLAN_OBJECTIVE_STEP ? s->value.step : s->value.period;
        if (value <= s->bound) return;
        if (neighbourhood_try(&s->neighbourhood, s->best, s->bound, &s->trial) && offer(s, &s->trial)) failed = -1;
    }
}

/* Bisection by prices and searches: the shortest period at which a search of this width still finds a plan, to within
 * `precision`; then by prices alone: the longest that they refute. */
static void bisect(Solver *s, int width, double precision)
{
    int64_t unknown = 0; /* the largest period about which nothing is known */
    while (s->bound < s->value.period && !out_of_time(s)) {
        int64_t low = unknown > s->bound ? unknown : s->bound - 1, high = s->value.period;
        if (low + 1 >= high || (unknown > 0 && (double)(high - low) < precision * (double)high)) break;
        int64_t cap = low + (high - low) / 2;
        Answer answer = decide(s, cap, width);
        if (answer == NO) s->bound = period_above(s->problem, cap);
        if (answer == UNKNOWN) unknown = cap;
    }
    int64_t close = is_large(s->problem) ? s->value.period / 50000 : 0; /* there, prices are not exact anyway */
    for (int64_t high = unknown; s->bound < high - close && !out_of_time(s);) {
        int64_t cap = s->bound + (high - 1 - s->bound) / 2;
        if (decide(s, cap, 0) == NO)
            s->bound = period_above(s->problem, cap);
        else
            high = cap;
    }
}

/* Where prices alone leave a gap: branching decides about the period in its middle. Where that takes too many nodes, it
 * asks about shorter ones, then again with more nodes. */
static void close_gap(Solver *s)
{
    int64_t unknown = INT64_MAX; /* the least period that took too many nodes */
    for (int nodes = 100; s->bound < s->value.period && !out_of_time(s);) {
        int64_t high = unknown < s->value.period ? unknown : s->value.period;
        if (high <= s->bound) {
            if (nodes > 1 << 20) return;
            nodes *= 4;
            unknown = INT64_MAX;
            improve(s, nodes, price_deadline(s));
            continue;
        }
        int64_t cap = s->bound + (high - 1 - s->bound) / 2;
        ProofLimits limits = {.nodes = nodes, .deadline = price_deadline(s), .found = &s->trial, .width = 64};
        Answer answer = branch(s, cap, limits);
        if (answer == NO) s->bound = period_above(s->problem, cap);
        if (answer == UNKNOWN) unknown = cap;
    }
}

/* Too large for branching: neighbourhoods and ever wider searches in turns. */
static void widen(Solver *s)
{
    for (int width = 4 * NARROW; s->bound < s->value.period && !out_of_time(s); width *= 2) {
        double share = (s->deadline - monotonic_seconds()) / 8;
        improve(s, 400, monotonic_seconds() + share);
        bisect(s, width, 5e-4);
    }
}

static int64_t solve_period(Solver *s)
{
    s->bound = period_above(s->problem, 0); /* no smaller period is possible */
    refuted(s, 0);
    Answer any = find_any(s);
    if (any != YES) return any == NO ? INT64_MAX : s->bound;
    bisect(s, is_small(s->problem) ? WIDTH : NARROW, 1e-3);
    if (is_large(s->problem))
        widen(s);
    else
        improve(s, 100, price_deadline(s));
    close_gap(s);
    return s->bound < s->value.period ? s->bound : s->value.period;
}

/* ---- step ---- */

typedef struct Interval {
    int64_t low, high;   /* periods in (low, high] */
    double bound;        /* of the step of plans in it */
    bool stuck;          /* too narrow to be worth splitting: only branching would help */
    const double *price; /* [type]: which gave the bound */
} Interval;

typedef struct Intervals {
    Interval *items;
    int count, capacity;
} Intervals;

static void add_interval(Intervals *open, int64_t low, int64_t high, double bound, const double *price)
{
    Interval interval = {low, high, bound, false, price};
    if (low < high) array_push(open->items, open->count, open->capacity, interval);
}

static double best_step(const Solver *s) { return s->found ? (double)s->value.step : RELAXATION_INFINITY; }

static SearchResult search_interval(Solver *s, const Relaxation *r, const double *price, int64_t low, int width)
{
    SearchLimits limits = {.width = width, .period_low = low + 1, .best = best_step(s), .deadline = s->deadline};
    SearchResult result = search_plans(r, price, limits, &s->trial);
    if (result.found) offer(s, &s->trial);
    return result;
}

/* The largest period a plan better than the best can have if its sum is at least `sum`. */
static int64_t highest_useful(const Solver *s, double sum, int64_t high)
{
    double rounds = s->problem->microbatches - 1, rest = best_step(s) - 1 - sum;
    if (rounds == 0 || !s->found || rest >= rounds * (double)high) return high;
    return rest < 0 ? 0 : (int64_t)(rest / rounds);
}

/* Plans with a period in (low, high] that could beat the best: searched if they are few, else split. `r` is solved for
 * `prices`, whose bound holds for the sum of every plan below the cap. */
static void examine_open(Solver *s, Intervals *open, Interval interval, Relaxation *r, const Prices *prices)
{
    const double *price = interval.price;
    enum { FIRST_WIDTH = 32 };
    double rounds = s->problem->microbatches - 1, least = prices->bound + rounds * (double)(interval.low + 1);
    int64_t high = highest_useful(s, prices->bound, interval.high), width = interval.high - interval.low;
    if (interval.high - high > width / 8) {
        if (high < interval.low) high = interval.low;
        evidence_add(s->evidence, s->problem, high, interval.high, price);
        add_interval(open, interval.low, high, least, price);
        return;
    }
    relaxation_solve(r, prices->price);
    double before = best_step(s);
    if (search_interval(s, r, prices->price, interval.low, FIRST_WIDTH).complete) {
        evidence_add(s->evidence, s->problem, interval.low, interval.high, price);
        return;
    }
    if (best_step(s) < before) {
        add_interval(open, interval.low, interval.high, least, price);
        return;
    }
    /* Splitting helps while the interval's width is what keeps its bound low. */
    double spread = rounds * (double)width, gap = best_step(s) - least;
    bool small = is_small(s->problem);
    if (width > 1 && spread > 1e-6 * least && (spread > 0.3 * gap || (!small && spread > 1e-4 * least))) {
        int64_t middle = interval.low + width / 2;
        add_interval(open, interval.low, middle, least, price);
        add_interval(open, middle, interval.high, prices->bound + rounds * (double)(middle + 1), price);
        return;
    }
    /* Far from the bound even a wide search leaves most of the gap. */
    bool close = small || gap < 2e-3 * least;
    for (int more = FIRST_WIDTH * 8; more <= 8 * WIDTH && close; more *= 8) {
        if (out_of_time(s)) break;
        if (!search_interval(s, r, prices->price, interval.low, more).complete) continue;
        evidence_add(s->evidence, s->problem, interval.low, interval.high, price);
        return;
    }
    Interval stuck = {interval.low, interval.high, least, true, price};
    array_push(open->items, open->count, open->capacity, stuck);
}

static void examine(Solver *s, Intervals *open, Interval interval)
{
    const Problem *p = s->problem;
    Relaxation r;
    relaxation_create(&r, p, interval.high, true, NULL, 0);
    Prices prices = {.price = arena_new_array(&r.arena, double, (size_t)r.class_count), .deadline = price_deadline(s)};
    load_prices(s, &r, prices.price);
    double target = best_step(s) - (double)(p->microbatches - 1) * (double)(interval.low + 1);
    prices_solve(&prices, &r, target - 0.5, 20000);
    if (prices.bound < RELAXATION_INFINITY / 2) store_prices(s, &r, prices.price);
    double *price = arena_new_array(&s->arena, double, (size_t)p->type_count);
    for (int c = 0; c < r.class_count; c++) price[r.class_type[c]] = prices.price[c];
    interval.price = price;
    if (prices.bound < target)
        examine_open(s, open, interval, &r, &prices);
    else
        evidence_add(s->evidence, p, interval.low, interval.high, price);
    relaxation_free(&r);
}

static int lowest(const Intervals *open)
{
    int best = 0;
    for (int i = 1; i < open->count; i++)
        if (open->items[i].bound < open->items[best].bound) best = i;
    return best;
}

static int64_t solve_step(Solver *s)
{
    Intervals open = {0};
    int64_t low = period_above(s->problem, 0) - 1;
    if (find_any(s) == NO) return INT64_MAX;
    const double *none = arena_new_array(&s->arena, double, (size_t)s->problem->type_count);
    evidence_replace(s->evidence, s->problem, 0, low, none); /* no plan at all */
    add_interval(&open, low, period_largest(s->problem), 0, none);
    double bound = RELAXATION_INFINITY;
    improve(s, 40, monotonic_seconds() + (s->deadline - monotonic_seconds()) / 8);
    while (open.count > 0) {
        int index = lowest(&open);
        Interval interval = open.items[index];
        bound = interval.bound;
        if (bound >= best_step(s) || interval.stuck || (out_of_time(s) && bound > 0))
            break; /* some bound there is always */
        open.items[index] = open.items[--open.count];
        examine(s, &open, interval);
    }
    if (open.count == 0 || bound >= best_step(s)) bound = s->found ? best_step(s) : bound;
    for (int i = 0; i < open.count; i++)
        evidence_add(s->evidence, s->problem, open.items[i].low, open.items[i].high, open.items[i].price);
    free(open.items);
    /* What is left of the time goes to better plans. */
    s->bound = bound >= best_step(s) ? (int64_t)best_step(s) : (int64_t)bound;
    if (s->found && s->bound < s->value.step) improve(s, 2000, s->deadline);
    return bound >= RELAXATION_INFINITY / 2 ? INT64_MAX : (int64_t)bound;
}

OptimalResult optimal_solve(const Problem *problem, const Allocation *start, double seconds, Allocation *allocation,
                            Evidence *evidence)
{
    Solver s = {
        .problem = problem, .deadline = monotonic_seconds() + seconds, .best = allocation, .evidence = evidence};
    s.trial = allocation_create(&s.arena, problem);
    s.type_price = arena_new_array(&s.arena, double, (size_t)problem->type_count);
    s.neighbourhood = (Neighbourhood){.problem = problem, .random = 0x2545f4914f6cdd1d, .deadline = s.deadline};
    if (start) offer(&s, start);
    bool step = problem->objective == PLAN_OBJECTIVE_STEP;
    OptimalResult result = {.bound = step ? solve_step(&s) : solve_period(&s)};
    result.found = s.found;
    result.timed_out = s.timed_out;
    result.infeasible = !s.found && result.bound == INT64_MAX;
    result.value = step ? s.value.step : s.value.period;
    arena_free(&s.arena);
    return result;
}

bool optimal_is_feasible(const Problem *problem)
{
    Arena arena = {0};
    Allocation allocation = allocation_create(&arena, problem);
    Solver s = {.problem = problem, .deadline = monotonic_seconds() + 60, .best = &allocation};
    s.trial = allocation_create(&s.arena, problem);
    s.type_price = arena_new_array(&s.arena, double, (size_t)problem->type_count);
    bool feasible = decide(&s, period_largest(problem), WIDTH) == YES;
    arena_free(&s.arena);
    arena_free(&arena);
    return feasible;
}
