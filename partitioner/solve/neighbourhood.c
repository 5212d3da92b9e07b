#include "partitioner/solve/neighbourhood.h"

#include <string.h>

#include "base/random.h"
#include "partitioner/solve/prices.h"
#include "partitioner/solve/search.h"
#include "partitioner/solve/shortest.h"

enum { LEAST_FREE = 12, MORE_FREE = 24, WIDTH = 100, ITERATIONS = 400, MOST_SPARES = 40 };

static int draw(Neighbourhood *n, int limit) { return (int)random_draw_below(&n->random, (uint64_t)limit); }

typedef struct Gaps {
    const Problem *problem;
    const Allocation *allocation;
    bool *frozen;   /* [stage] */
    bool *left_out; /* [device]: unused and not considered */
    int free;
} Gaps;

static int64_t stage_work(const Gaps *g, int k)
{
    const Allocation *a = g->allocation;
    return problem_work(g->problem, g->problem->type_of[a->device[k]], allocation_start(a, k), a->end[k]);
}

static int64_t link_before(const Gaps *g, int k)
{
    const Problem *p = g->problem;
    const Allocation *a = g->allocation;
    if (k == 0) return 0;
    return problem_link_period(p, a->end[k - 1], p->type_region[p->type_of[a->device[k - 1]]],
                               p->type_region[p->type_of[a->device[k]]]);
}

static void release(Gaps *g, int k)
{
    if (k < 0 || k >= g->allocation->stage_count || !g->frozen[k]) return;
    g->frozen[k] = false;
    g->free++;
}

/* Frees the stages above the cap, then wider and wider stretches around them and around a few random places, until
 * `target` stages are free. */
static void choose_gaps(Neighbourhood *n, Gaps *g, int64_t cap, int target)
{
    int count = g->allocation->stage_count, centres[8], centre_count = 0;
    memset(g->frozen, 1, (size_t)count * sizeof *g->frozen);
    for (int k = 0; k < count; k++) {
        bool slow_link = link_before(g, k) > cap;
        if (!slow_link && stage_work(g, k) <= cap) continue;
        release(g, k);
        if (slow_link) release(g, k - 1);
        if (centre_count < 5) centres[centre_count++] = k;
    }
    for (int more = 1 + draw(n, 3); more > 0; more--) {
        centres[centre_count] = draw(n, count);
        release(g, centres[centre_count++]);
    }
    for (int reach = 1; g->free < target && reach <= count; reach++)
        for (int c = 0; c < centre_count && g->free < target; c++) {
            release(g, centres[c] - reach);
            if (g->free < target) release(g, centres[c] + reach);
        }
}

/* Considers a few random devices of those not in use. */
static void choose_spares(Neighbourhood *n, Gaps *g)
{
    int unused = n->problem->device_count - g->allocation->stage_count, wanted = MOST_SPARES;
    for (int d = 0; d < n->problem->device_count; d++) g->left_out[d] = true;
    for (int k = 0; k < g->allocation->stage_count; k++) g->left_out[g->allocation->device[k]] = false;
    for (int d = 0; d < n->problem->device_count; d++) { /* selection sampling (Knuth): equal chances */
        if (!g->left_out[d]) continue;
        if (draw(n, unused--) < wanted) g->left_out[d] = false, wanted--;
    }
}

/* The period to aim at: usually a little better, sometimes much better. */
static int64_t choose_period(Neighbourhood *n, int64_t period, int64_t low)
{
    static const double share[] = {0, 0, 0.02, 0.1, 0.3};
    int64_t gap = period - 1 - low;
    return period - 1 - (gap > 0 ? (int64_t)((double)gap * share[draw(n, 5)]) : 0);
}

static int64_t frozen_period(const Gaps *g)
{
    int64_t most = 0;
    for (int k = 0; k < g->allocation->stage_count; k++)
        if (g->frozen[k] && stage_work(g, k) > most) most = stage_work(g, k);
    return most;
}

/* Plans the gaps again; true with a better allocation in *better. */
static bool solve_gaps(const Gaps *g, int64_t cap, const AllocationValue *value, double deadline, Allocation *better)
{
    const Problem *p = g->problem;
    bool sums = p->objective == PLAN_OBJECTIVE_STEP, found = false;
    Freeze freeze = {g->allocation, g->frozen, g->left_out};
    Relaxation r;
    relaxation_create_around(&r, p, cap, sums, &freeze);
    if (r.class_count > 0) {
        Prices prices = {.price = arena_new_array(&r.arena, double, (size_t)r.class_count), .deadline = deadline};
        SearchLimits limits = {.width = WIDTH,
                               .rough = true,
                               .best = (double)value->step,
                               .period_low = frozen_period(g),
                               .deadline = deadline};
        double target = sums ? (double)value->step - problem_rounds(p, (double)limits.period_low) - 0.5 : 0;
        prices_solve(&prices, &r, target, ITERATIONS);
        if (prices.bound <= target) {
            shortest_solve(&r, prices.price);
            found = search_plans(&r, prices.price, limits, better).found;
        }
    }
    relaxation_free(&r);
    return found;
}

bool neighbourhood_try(Neighbourhood *n, const Allocation *allocation, int64_t bound, Allocation *better)
{
    const Problem *p = n->problem;
    AllocationValue value = allocation_evaluate(p, allocation);
    FREED_WITH(arena_free) Arena arena = {0};
    Gaps gaps = {p, allocation, arena_new_array(&arena, bool, (size_t)allocation->stage_count),
                 arena_new_array(&arena, bool, (size_t)p->device_count), 0};
    bool step = p->objective == PLAN_OBJECTIVE_STEP, whole;
    int64_t cap;
    if (!step)
        cap = choose_period(n, value.period, bound - 1);
    else /* shorter, the same, or a little longer for a smaller sum */
        cap = value.period + (value.period >> 8) * (draw(n, 5) - 2) / 2;
    int growth = n->failures / 16 < allocation->stage_count ? n->failures / 16 : allocation->stage_count;
    int target = LEAST_FREE + draw(n, MORE_FREE + growth);
    choose_gaps(n, &gaps, cap, target < allocation->stage_count ? target : allocation->stage_count);
    choose_spares(n, &gaps);
    whole = gaps.free == allocation->stage_count && p->device_count - allocation->stage_count <= MOST_SPARES;
    bool found = solve_gaps(&gaps, cap, &value, n->deadline, better);
    if (found) {
        AllocationValue now = allocation_evaluate(p, better);
        found = now.fits && (step ? now.step < value.step : now.period < value.period);
    }
    n->tried++;
    n->better += found;
    n->failures = found ? 0 : n->failures + 1;
    n->repeated = found || !whole ? 0 : n->repeated + 1;
    return found;
}
