#include "partitioner/solve/prices.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "partitioner/sizes.h"
#include "partitioner/solve/master.h"
#include "partitioner/solve/shortest.h"

/* A call of prices_solve. */
typedef struct Pricing {
    Prices *prices;
    Relaxation *relaxation;
    double target;
    int max_iterations;
    double scale;  /* of real prices, in integers of the relaxation */
    double *real;  /* [class]: the prices to try next, not yet rounded */
    double *trial; /* scratch [class] */
    int *used;     /* scratch [class], all 0 */
    Path path;     /* of the last trial, once shortest_path was asked for it */
} Pricing;

/* Rounds the real prices to integers of the relaxation, solves it, and keeps them if the bound is the best. */
static void evaluate(Pricing *x)
{
    Relaxation *r = x->relaxation;
    Prices *prices = x->prices;
    double total = 0;
    for (int c = 0; c < r->class_count; c++) {
        double price = rint((x->real[c] > 0 ? x->real[c] : 0) * x->scale);
        x->trial[c] = price;
        total += price * r->class_size[c];
    }
    double path = shortest_solve(r, x->trial);
    if (r->late) return;
    /* In the feasibility form bounds of different scale compare by their ratio. */
    double bound = path - total;
    bool better = r->costed ? bound > prices->bound : total > 0 && path * prices->total > prices->path * total;
    if (better || prices->iterations == 0) {
        memcpy(prices->price, x->trial, (size_t)r->class_count * sizeof *x->trial);
        prices->bound = bound;
        prices->total = total;
        prices->path = path;
    }
    prices->iterations++;
}

/* The first price of a class is its mean reached work relative to the whole. */
static void start_prices(const Relaxation *r, double scale, double *real)
{
    const Problem *p = r->problem;
    double total = 0;
    for (int c = 0; c < r->class_count; c++) {
        const int *low = relaxation_low(r, r->levels, c);
        double reached = 0;
        for (int end = 1; end <= p->layer_count; end++) reached += end - low[end];
        real[c] = reached / p->layer_count;
        total += real[c] * r->class_size[c];
    }
    for (int c = 0; c < r->class_count; c++) real[c] = total > 0 ? real[c] / total * scale : scale / p->device_count;
}

/* The master's prices, smoothed towards the best so far. */
static void mix_prices(Pricing *x, const Master *master, double share_of_best)
{
    /* A basis with excess 0 may leave prices that do not sum to 1; in the feasibility form only their ratio counts. */
    master_prices(master, x->real);
    for (int c = 0; c < x->relaxation->class_count; c++)
        x->real[c] = share_of_best * (x->prices->price[c] / x->scale) + (1 - share_of_best) * x->real[c];
}

/* Goes on from the best prices so far. */
static void take_best(Pricing *x, double scale)
{
    for (int c = 0; c < x->relaxation->class_count; c++) x->real[c] = x->prices->price[c] / scale;
}

/* The path is a plan if it uses no class more often than it has devices. */
static bool is_plan(Pricing *x)
{
    const int *size = x->relaxation->class_size;
    const Path *path = &x->path;
    bool fits = true;
    for (int k = 0; k < path->stage_count; k++) fits &= ++x->used[path->class_used[k]] <= size[path->class_used[k]];
    for (int k = 0; k < path->stage_count; k++) x->used[path->class_used[k]] = 0;
    return fits;
}

/* The path of the last evaluation enters if it helps at the exact duals. */
static bool enter_last_path(Pricing *x, Master *master)
{
    shortest_path(x->relaxation, &x->path);
    if (x->prices->feasible && is_plan(x)) {
        Path *kept = x->prices->feasible;
        kept->stage_count = x->path.stage_count;
        memcpy(kept->class_used, x->path.class_used, (size_t)kept->stage_count * sizeof *kept->class_used);
        memcpy(kept->end, x->path.end, (size_t)kept->stage_count * sizeof *kept->end);
        x->prices->found = true;
        return false;
    }
    return master_enter(master, &x->path);
}

static bool enough(const Pricing *x) { return x->prices->bound > x->target || x->prices->found || x->relaxation->late; }

/* Prices in rounds until the master is solved, the bound suffices, or the iterations are used up. */
static void generate(Pricing *x, Master *master)
{
    Prices *prices = x->prices;
    while (prices->iterations < x->max_iterations) {
        if (prices->iterations % 16 < 2 && watch_passed(x->relaxation->problem->watch, prices->deadline)) return;
        master_settle(master);
        if (prices->tolerance > 0 && master_cost(master) - prices->bound < prices->tolerance) return;
        mix_prices(x, master, 0.7);
        evaluate(x);
        if (enough(x)) return;
        if (enter_last_path(x, master)) continue;
        if (enough(x)) return;
        mix_prices(x, master, 0);
        evaluate(x);
        if (enough(x)) return;
        if (!enter_last_path(x, master)) {
            prices->solved = true;
            return;
        }
    }
}

/* With hundreds of classes the simplex needs thousands of pivots; multiplicative updates (mirror ascent over prices
 * that sum to 1) need hundreds of shortest paths. They follow the average of the paths so far, as in the volume
 * algorithm (Barahona and Anbil 2000), because single paths say little about a mixture. Feasibility form only. */
static void ascend(Pricing *x)
{
    enum { ROUNDS = 2000, PATIENCE = 24 };
    static const double FRESH = 0.04; /* weight of the latest path in the average that the prices follow */
    Relaxation *r = x->relaxation;
    Prices *prices = x->prices;
    double rate = 0.3, *use = memory_allocate((size_t)r->class_count * sizeof *use);
    double best = prices->total > 0 ? prices->path / prices->total : 0;
    for (int round = 0, idle = 0; round < ROUNDS && rate > 1e-4 && !enough(x); round++) {
        if (prices->iterations >= x->max_iterations) break;
        if (round % 16 == 0 && watch_passed(r->problem->watch, prices->deadline)) break;
        shortest_path(r, &x->path);
        double fresh = round > 0 ? FRESH : 1;
        for (int c = 0; c < r->class_count; c++) use[c] *= 1 - fresh;
        for (int k = 0; k < x->path.stage_count; k++) use[x->path.class_used[k]] += fresh;
        double total = 0;
        for (int c = 0; c < r->class_count; c++) {
            x->real[c] = (x->real[c] > 1e-9 ? x->real[c] : 1e-9) * exp(rate * (use[c] / r->class_size[c] - 1));
            total += x->real[c] * r->class_size[c];
        }
        for (int c = 0; c < r->class_count; c++) x->real[c] /= total;
        evaluate(x);
        double now = prices->path / prices->total;
        idle = now > best + 1e-7 ? 0 : idle + 1;
        if (now > best) best = now;
        if (idle < PATIENCE) continue;
        idle = 0;
        rate *= 0.7; /* smaller steps from the best */
        take_best(x, prices->total);
        evaluate(x);
    }
    free(use);
}

/* No chain at all: any prices prove it. */
static bool is_impossible(Pricing *x, double cheapest)
{
    Prices *prices = x->prices;
    if (cheapest < RELAXATION_INFINITY / 2) return false;
    memset(prices->price, 0, (size_t)x->relaxation->class_count * sizeof *prices->price);
    prices->bound = RELAXATION_INFINITY;
    prices->path = RELAXATION_INFINITY;
    prices->solved = true;
    return true;
}

static void set_first_prices(Pricing *x)
{
    Relaxation *r = x->relaxation;
    bool started = false;
    for (int c = 0; c < r->class_count; c++) started |= x->prices->price[c] > 0;
    if (started)
        take_best(x, x->scale);
    else
        start_prices(r, r->costed ? 4 : 1, x->real);
    evaluate(x);
    if (r->costed || r->class_count <= SIZE_MANY_CLASSES) return;
    ascend(x);
    take_best(x, x->scale);
    if (!enough(x)) evaluate(x);
}

/* Starts from the warm basis, else from the path of the last evaluation. */
static void solve_master(Pricing *x, Arena *arena)
{
    Prices *prices = x->prices;
    Master *master = master_create(x->relaxation, x->scale, arena);
    if (!prices->warm || !master_start_from(master, prices->warm)) {
        shortest_path(x->relaxation, &x->path);
        master_start(master, &x->path);
    }
    generate(x, master);
    if (prices->mixture) master_add_mixture(master, prices->mixture);
    if (prices->keep) *prices->keep = master_save_basis(master);
    master_free(master);
}

void prices_solve(Prices *prices, Relaxation *r, double target, int max_iterations)
{
    FREED_WITH(arena_free) Arena arena = {0};
    size_t classes = (size_t)r->class_count, stages = (size_t)r->problem->layer_count;
    Pricing x = {.prices = prices,
                 .relaxation = r,
                 .target = target,
                 .max_iterations = max_iterations,
                 .scale = prices->warm ? master_basis_scale(prices->warm) : PRICES_SCALE,
                 .real = arena_new_array(&arena, double, classes),
                 .trial = arena_new_array(&arena, double, classes),
                 .used = arena_new_array(&arena, int, classes),
                 .path = {0, arena_new_array(&arena, int, stages), arena_new_array(&arena, int, stages), 0}};
    prices->bound = -RELAXATION_INFINITY;
    prices->path = prices->total = 0;
    prices->iterations = 0;
    prices->solved = prices->found = false;
    if (prices->keep) *prices->keep = NULL;
    if (prices->mixture) memset(prices->mixture, 0, classes * (stages + 1) * sizeof *prices->mixture);
    double cheapest = shortest_solve(r, x.trial); /* all prices 0 */
    if (!r->late && !is_impossible(&x, cheapest)) {
        if (r->costed && !prices->warm) x.scale = cheapest > 1000 ? cheapest / 16 : 64;
        set_first_prices(&x);
        if (!enough(&x) && (r->costed || r->class_count <= SIZE_TOO_MANY_CLASSES)) solve_master(&x, &arena);
    }
}

void prices_basis_free(PricesBasis *basis) { master_basis_free(basis); }
