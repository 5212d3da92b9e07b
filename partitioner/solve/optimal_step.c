/* The best step: intervals of periods, each with the least sum that prices prove under its high end. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "partitioner/periods.h"
#include "partitioner/sizes.h"
#include "partitioner/solve/prices.h"
#include "partitioner/solve/search.h"
#include "partitioner/solve/shortest.h"
#include "partitioner/solve/solver.h"

enum { FIRST_WIDTH = 32, MOST_WIDTH = 24000 };

/* The precision of prices relative to the loss of the bound by the interval's width, and the worst that is accepted. */
static const double PRECISION = 0.1, LOOSE = 0.3;

typedef struct Interval {
    int64_t low, high;   /* periods in (low, high] */
    double sum;          /* lower bound of every plan in it, by the prices */
    const double *price; /* [type] */
    double precision;    /* how much better the prices for this high end may get; infinite: not computed */
    bool stuck;          /* too narrow to be worth splitting: only branching would help */
} Interval;

typedef struct Intervals {
    Interval *items;
    int count, capacity;
} Intervals;

typedef struct StepSolver {
    Solver *solver;
    Intervals open;
    double rounds;      /* how often the period counts in a step */
    double promise;     /* the least step possible by the prices of the intervals so far */
    PricesBasis *basis; /* of the last price problem: the next one has the same classes */
} StepSolver;

static double best_step(const StepSolver *x)
{
    return x->solver->best.found ? (double)x->solver->best.value.step : RELAXATION_INFINITY;
}

static double bound_of(const StepSolver *x, const Interval *interval)
{
    return interval->sum + problem_rounds(x->solver->problem, (double)(interval->low + 1));
}

/* How much lower an interval's bound is because of its width. */
static double spread_of(const StepSolver *x, const Interval *interval)
{
    return x->rounds * (double)(interval->high - interval->low);
}

static void add_interval(StepSolver *x, Interval interval)
{
    if (interval.low < interval.high) array_push(x->open.items, x->open.count, x->open.capacity, interval);
}

static void close_interval(StepSolver *x, const Interval *interval)
{
    evidence_add(x->solver->evidence, x->solver->problem, interval->low, interval->high, interval->price);
}

static SearchResult search_interval(StepSolver *x, const Relaxation *r, const Interval *interval, int width)
{
    Solver *s = x->solver;
    SearchLimits limits = {
        .width = width, .period_low = interval->low + 1, .best = best_step(x), .deadline = s->deadline};
    double *price = memory_allocate((size_t)r->class_count * sizeof *price);
    for (int c = 0; c < r->class_count; c++) price[c] = interval->price[r->class_type[c]];
    SearchResult result = search_plans(r, price, limits, &s->trial);
    free(price);
    if (result.found) incumbent_offer(&s->best, &s->trial);
    return result;
}

/* The largest period at which a plan with at least the interval's sum can beat the best. */
static int64_t highest_useful(const StepSolver *x, const Interval *interval)
{
    double rest = best_step(x) - 1 - interval->sum;
    if (x->rounds == 0 || !x->solver->best.found || rest >= x->rounds * (double)interval->high) return interval->high;
    return rest < 0 ? 0 : (int64_t)(rest / x->rounds);
}

/* Cuts off the periods that are too long for their sum, unless these are few. */
static bool cut_top(StepSolver *x, Interval *interval)
{
    int64_t high = highest_useful(x, interval);
    if (interval->high - high <= (interval->high - interval->low) / 8) return false;
    if (high < interval->low) high = interval->low;
    close_interval(x, &(Interval){high, interval->high, interval->sum, interval->price, RELAXATION_INFINITY, false});
    interval->high = high;
    interval->precision = RELAXATION_INFINITY;
    add_interval(x, *interval);
    return true;
}

/* Splits in the middle, but large problems close to the high end. Much better prices for a much shorter period take
 * long to find, and a sum that is too large by itself refutes all shorter periods. */
static void split(StepSolver *x, const Interval *interval)
{
    int64_t middle = interval->low + (interval->high - interval->low) / 2, near = interval->high - interval->high / 6;
    if (size_is_large(x->solver->problem) && middle < near) middle = near;
    Interval lower = *interval, upper = *interval;
    lower.high = upper.low = middle;
    lower.precision = RELAXATION_INFINITY;
    add_interval(x, lower);
    add_interval(x, upper);
}

/* The shortest path under the interval's prices, which `r` then holds, is a plan if it uses no device twice. */
static void try_path(StepSolver *x, const Interval *interval, Relaxation *r)
{
    Solver *s = x->solver;
    size_t stages = (size_t)s->problem->layer_count, classes = (size_t)r->class_count;
    double *price = arena_new_array(&r->arena, double, classes);
    for (int c = 0; c < r->class_count; c++) price[c] = interval->price[r->class_type[c]];
    if (shortest_solve(r, price) >= RELAXATION_INFINITY / 2) return;
    Path path = {0, arena_new_array(&r->arena, int, stages), arena_new_array(&r->arena, int, stages), 0};
    shortest_path(r, &path);
    if (shortest_allocation(r, &path, &s->trial)) incumbent_offer(&s->best, &s->trial);
}

/* Searches the plans in the interval that could beat the best if they are few, else splits it. `r` is the relaxation
 * for its high end. */
static void examine_open(StepSolver *x, Interval *interval, Relaxation *r)
{
    Solver *s = x->solver;
    int64_t width = interval->high - interval->low;
    bool small = size_is_small(s->problem), large = size_is_large(s->problem);
    double before = best_step(x), least = bound_of(x, interval);
    if (large && x->rounds > 0) {
        double promise = interval->sum + interval->precision + problem_rounds(s->problem, (double)interval->high);
        if (promise < x->promise * (1 - 5e-4) && promise < before) {
            x->promise = promise;
            solver_try_devices(s, interval->high, interval->price);
        }
    } else {
        if (search_interval(x, r, interval, FIRST_WIDTH).complete) {
            close_interval(x, interval);
            return;
        }
    }
    if (best_step(x) < before) {
        add_interval(x, *interval);
        return;
    }
    /* Splitting helps as long as the interval's width keeps its bound low. */
    double spread = spread_of(x, interval), gap = best_step(x) - least;
    if (width > 1 && spread > 1e-6 * least && (spread > 0.3 * gap || (!small && spread > 1e-4 * least))) {
        split(x, interval);
        return;
    }
    /* Far from the bound even a wide search leaves most of the gap. */
    bool close = small || (!large && gap < 2e-3 * least);
    for (int wider = FIRST_WIDTH * 8; wider <= MOST_WIDTH && close; wider *= 8) {
        if (solver_out_of_time(s)) break;
        if (!search_interval(x, r, interval, wider).complete) continue;
        close_interval(x, interval);
        return;
    }
    interval->stuck = true;
    add_interval(x, *interval);
}

/* Improves the prices for the interval's high end, as far as its width needs. */
static void price_interval(StepSolver *x, Interval *interval, Relaxation *r)
{
    Solver *s = x->solver;
    PricesBasis *kept;
    Prices prices = {.price = arena_new_array(&r->arena, double, (size_t)r->class_count),
                     .deadline = solver_price_deadline(s),
                     .tolerance = PRECISION * spread_of(x, interval),
                     .warm = x->basis,
                     .keep = &kept};
    for (int c = 0; c < r->class_count; c++) prices.price[c] = interval->price[r->class_type[c]];
    prices_solve(&prices, r, best_step(x) - problem_rounds(s->problem, (double)(interval->low + 1)) - 0.5,
                 PRICES_ITERATIONS);
    if (kept) {
        prices_basis_free(x->basis);
        x->basis = kept;
    }
    if (prices.bound < RELAXATION_INFINITY / 2) solver_store_prices(s, r, prices.price);
    interval->precision = prices.solved ? 0 : prices.tolerance;
    if (prices.bound <= interval->sum) return;
    double *price = arena_new_array(&s->arena, double, (size_t)s->problem->type_count);
    for (int c = 0; c < r->class_count; c++) price[r->class_type[c]] = prices.price[c];
    interval->price = price;
    interval->sum = prices.bound;
}

static void examine(StepSolver *x, Interval interval)
{
    Relaxation r;
    relaxation_create(&r, x->solver->problem, interval.high, true);
    if (interval.precision > LOOSE * spread_of(x, &interval)) price_interval(x, &interval, &r);
    if (bound_of(x, &interval) < best_step(x)) try_path(x, &interval, &r);
    if (bound_of(x, &interval) >= best_step(x))
        close_interval(x, &interval);
    else if (!cut_top(x, &interval))
        examine_open(x, &interval, &r);
    relaxation_free(&r);
}

static int lowest(const StepSolver *x)
{
    int best = 0;
    for (int i = 1; i < x->open.count; i++)
        if (bound_of(x, &x->open.items[i]) < bound_of(x, &x->open.items[best])) best = i;
    return best;
}

/* Returns the least bound of the open intervals. */
static double examine_all(StepSolver *x)
{
    enum { IN_A_ROW = 8, TRIES = 1 };
    Solver *s = x->solver;
    double bound = RELAXATION_INFINITY;
    for (int examined = 1; x->open.count > 0; examined++) {
        int index = lowest(x);
        Interval interval = x->open.items[index];
        bound = bound_of(x, &interval);
        if (bound >= best_step(x) || interval.stuck ||
            (solver_out_of_time(s) && (interval.sum > 0 || watch_passed(s->problem->watch, 0))))
            return bound; /* after the first bound, unless even that takes too long */
        x->open.items[index] = x->open.items[--x->open.count];
        examine(x, interval);
        if (size_is_large(s->problem) && examined % IN_A_ROW == 0 && x->promise > 0.98 * best_step(x))
            solver_improve(s, TRIES, s->deadline);
    }
    return s->best.found ? best_step(x) : bound;
}

/* ---- Periods too short for any plan ---- */

/* Prices that refute a period, scaled up, also prove that the sum is too large. */
static bool refute_period(StepSolver *x, int64_t low, int64_t cap)
{
    enum { FEW = 100 };
    static const double MARGIN = 0.02, LARGEST = 1e14; /* of the sum of prices; sums of integers stay exact */
    Solver *s = x->solver;
    Relaxation r;
    relaxation_create(&r, s->problem, cap, false);
    Prices prices = {.price = arena_new_array(&r.arena, double, (size_t)r.class_count), .deadline = s->deadline};
    prices_solve(&prices, &r, MARGIN * PRICES_SCALE, FEW);
    bool refuted = prices.bound > 0;
    if (refuted) {
        double factor = prices.total > 0 ? ceil(best_step(x) / prices.bound) : 1;
        double *price = arena_new_array(&s->arena, double, (size_t)s->problem->type_count);
        for (int d = 0; d < s->problem->device_count; d++)
            price[s->problem->type_of[d]] = factor * prices.price[r.class_of[d]];
        refuted = factor * prices.total <= LARGEST;
        if (refuted) close_interval(x, &(Interval){.low = low, .high = cap, .price = price});
    }
    relaxation_free(&r);
    return refuted;
}

/* With many devices, the sums under the shortest caps take longest to bound. */
static int64_t refute_shortest(StepSolver *x, int64_t low)
{
    enum { QUESTIONS = 7 };
    int64_t high = x->solver->best.value.period;
    for (int k = 0; k < QUESTIONS && !solver_out_of_time(x->solver); k++) {
        int64_t cap = low + (high - low) / 2;
        if (cap > low && refute_period(x, low, cap))
            low = cap;
        else
            high = cap;
    }
    return low;
}

int64_t solver_step(Solver *s)
{
    const Problem *p = s->problem;
    StepSolver x = {.solver = s, .rounds = p->rounds, .promise = RELAXATION_INFINITY};
    int64_t low = period_above(p, 0) - 1;
    const double *none = arena_new_array(&s->arena, double, (size_t)p->type_count);
    evidence_replace(s->evidence, p, 0, low, none); /* no plan at all */
    if (size_is_large(p) && x.rounds > 0 && s->best.found) low = refute_shortest(&x, low);
    add_interval(&x, (Interval){low, period_largest(p), 0, none, RELAXATION_INFINITY, false});
    if (!size_is_large(p)) solver_improve(s, 40, watch_share(p->watch, s->deadline, 1.0 / 8));
    double bound = examine_all(&x);
    if (bound > best_step(&x)) bound = best_step(&x);
    for (int i = 0; i < x.open.count; i++) close_interval(&x, &x.open.items[i]);
    free(x.open.items);
    prices_basis_free(x.basis);
    /* Spends the rest of the time on better plans. */
    s->bound = bound < RELAXATION_INFINITY / 2 ? (int64_t)bound : INT64_MAX;
    if (s->best.found && s->bound < s->best.value.step) solver_improve(s, 2000, s->deadline);
    return s->bound;
}
