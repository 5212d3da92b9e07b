#include "partitioner/optimal.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "partitioner/prices.h"
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
    double *type_price; /* [type]: prices to start the next question from */
} Solver;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool out_of_time(Solver *s)
{
    if (now() > s->deadline) s->timed_out = true;
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

/* ---- candidates: the values a period can have ---- */

/* The least stage or link time above `period`; INT64_MAX if there is none. */
static int64_t next_candidate(const Problem *p, int64_t period)
{
    int64_t least = INT64_MAX;
    for (int t = 0; t < p->type_count; t++)
        for (int end = 1, start = 0; end <= p->layer_count; end++) {
            while (start < end && problem_work(p, t, start, end) > period) start++;
            if (start == 0) continue;
            int64_t work = problem_work(p, t, start - 1, end);
            if (work < least) least = work;
        }
    for (int cut = 1; cut < p->layer_count && !p->free_links; cut++)
        for (int a = 0; a < p->region_count; a++)
            for (int b = 0; b < p->region_count; b++) {
                int64_t busy = problem_link_period(p, cut, a, b);
                if (busy > period && busy < least) least = busy;
            }
    return least;
}

/* The largest time a stage can take: the cap that caps nothing. */
static int64_t largest_period(const Problem *p)
{
    int64_t most = 0;
    for (int t = 0; t < p->type_count; t++)
        if (problem_work(p, t, 0, p->layer_count) > most) most = problem_work(p, t, 0, p->layer_count);
    for (int cut = 1; cut < p->layer_count && !p->free_links; cut++)
        for (int a = 0; a < p->region_count; a++)
            for (int b = 0; b < p->region_count; b++)
                if (problem_link_period(p, cut, a, b) > most) most = problem_link_period(p, cut, a, b);
    return most;
}

/* ---- can there be a plan of this period? ---- */

typedef enum Answer { NO, YES, UNKNOWN } Answer;

static Answer decide(Solver *s, int64_t cap, int width)
{
    Relaxation r;
    relaxation_create(&r, s->problem, cap, false, NULL, 0);
    Prices prices = {.price = arena_new_array(&r.arena, double, (size_t)r.class_count)};
    load_prices(s, &r, prices.price);
    prices_solve(&prices, &r, 0, 20000, NULL, NULL);
    Answer answer = prices.bound > 0 ? NO : UNKNOWN;
    if (prices.bound < RELAXATION_INFINITY / 2) store_prices(s, &r, prices.price);
    if (answer == UNKNOWN && width > 0) {
        relaxation_solve(&r, prices.price);
        /* A narrow search finds a plan where there are many; each wider one costs what all before it did, times eight.
         */
        for (int narrow = 16; answer == UNKNOWN; narrow *= 8) {
            if (narrow > width) narrow = width;
            SearchResult result = search_plans(&r, prices.price, (SearchLimits){.width = narrow}, &s->trial);
            answer = result.found ? YES : result.complete ? NO : UNKNOWN;
            if (narrow == width || out_of_time(s)) break;
        }
    }
    relaxation_free(&r);
    if (answer == YES) offer(s, &s->trial);
    return answer;
}

enum { WIDTH = 3000 };

/* A first plan, whatever its period. NO: there is none. */
static Answer find_any(Solver *s) { return s->found ? YES : decide(s, largest_period(s->problem), WIDTH); }

/* The best plan's period may also be lowered while `low` (refuted) climbs: bisection until they meet or the search no
 * longer knows; then the bound alone. */
static int64_t solve_period(Solver *s)
{
    const Problem *p = s->problem;
    int64_t low = next_candidate(p, 0) - 1; /* no period <= low is possible */
    Answer any = find_any(s);
    if (any != YES) return any == NO ? INT64_MAX : low + 1;
    int64_t unknown = INT64_MAX; /* the least period about which nothing is known */
    while (low + 1 < s->value.period && !out_of_time(s)) {
        int64_t high = unknown < s->value.period ? unknown : s->value.period;
        if (low + 1 >= high) break;
        int64_t cap = low + (high - low) / 2;
        Answer answer = decide(s, cap, WIDTH);
        if (answer == NO) {
            low = next_candidate(p, cap) - 1;
        } else if (answer == UNKNOWN) {
            unknown = cap;
        }
    }
    return low + 1;
}

/* ---- step ---- */

typedef struct Interval {
    int64_t low, high; /* periods in (low, high] */
    double bound;      /* of the step of plans in it */
} Interval;

typedef struct Intervals {
    Interval *items;
    int count, capacity;
} Intervals;

static double interval_bound(const Problem *p, double sum, int64_t low)
{
    return sum + (double)(p->microbatches - 1) * (double)(low + 1);
}

/* Examines plans with a period in (low, high]: improves the best, drops the interval, or splits it. */
static void examine(Solver *s, Intervals *open, Interval interval)
{
    const Problem *p = s->problem;
    double rounds = p->microbatches - 1;
    Relaxation r;
    relaxation_create(&r, p, interval.high, true, NULL, 0);
    Prices prices = {.price = arena_new_array(&r.arena, double, (size_t)r.class_count)};
    load_prices(s, &r, prices.price);
    double best = s->found ? (double)s->value.step : RELAXATION_INFINITY;
    double target = best - rounds * (double)(interval.low + 1);
    prices_solve(&prices, &r, target - 0.5, 20000, NULL, NULL);
    double bound = interval_bound(p, prices.bound, interval.low);
    bool done = bound >= best;
    if (prices.bound < RELAXATION_INFINITY / 2) store_prices(s, &r, prices.price);
    if (!done) {
        relaxation_solve(&r, prices.price);
        SearchLimits limits = {.width = WIDTH, .labels = 300000, .period_low = interval.low + 1, .best = best};
        SearchResult result = search_plans(&r, prices.price, limits, &s->trial);
        if (result.found) offer(s, &s->trial);
        done = result.complete;
    }
    relaxation_free(&r);
    if (done) return;
    if (interval.high - interval.low <= 1) {
        interval.bound = bound; /* cannot be split: stays open as it is */
        array_push(open->items, open->count, open->capacity, interval);
        return;
    }
    int64_t middle = interval.low + (interval.high - interval.low) / 2;
    array_push(open->items, open->count, open->capacity, ((Interval){interval.low, middle, bound}));
    array_push(open->items, open->count, open->capacity,
               ((Interval){middle, interval.high, interval_bound(p, prices.bound, middle)}));
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
    const Problem *p = s->problem;
    Intervals open = {0};
    int64_t low = next_candidate(p, 0) - 1;
    if (find_any(s) == NO) return INT64_MAX;
    array_push(open.items, open.count, open.capacity, ((Interval){low, largest_period(p), 0}));
    double bound = 0;
    while (open.count > 0) {
        int index = lowest(&open);
        Interval interval = open.items[index];
        bound = interval.bound;
        double best = s->found ? (double)s->value.step : RELAXATION_INFINITY;
        if (bound >= best || interval.high - interval.low < 1) break;
        if (out_of_time(s)) break;
        open.items[index] = open.items[--open.count];
        examine(s, &open, interval);
    }
    int64_t result = (int64_t)bound;
    if (open.count == 0 || (s->found && bound >= (double)s->value.step)) result = s->found ? s->value.step : INT64_MAX;
    free(open.items);
    return result;
}

OptimalResult optimal_solve(const Problem *problem, const Allocation *start, double seconds, Allocation *allocation)
{
    Solver s = {.problem = problem, .deadline = now() + seconds, .best = allocation};
    s.trial = allocation_create(&s.arena, problem);
    s.type_price = arena_new_array(&s.arena, double, (size_t)problem->type_count);
    if (start) offer(&s, start);
    bool step = problem->objective == PLAN_OBJECTIVE_STEP;
    s.bound = step ? solve_step(&s) : solve_period(&s);
    OptimalResult result = {.found = s.found, .timed_out = s.timed_out, .bound = s.bound};
    result.infeasible = !s.found && s.bound == INT64_MAX;
    result.value = step ? s.value.step : s.value.period;
    arena_free(&s.arena);
    return result;
}

bool optimal_is_feasible(const Problem *problem)
{
    Arena arena = {0};
    Allocation allocation = allocation_create(&arena, problem);
    Solver s = {.problem = problem, .deadline = now() + 60, .best = &allocation};
    s.trial = allocation_create(&s.arena, problem);
    s.type_price = arena_new_array(&s.arena, double, (size_t)problem->type_count);
    bool feasible = decide(&s, largest_period(problem), WIDTH) == YES;
    arena_free(&s.arena);
    arena_free(&arena);
    return feasible;
}
