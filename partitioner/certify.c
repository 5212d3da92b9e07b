#include "partitioner/certify.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "partitioner/prices.h"
#include "partitioner/prove.h"

enum { MAX_NODES = 20000, MAX_INTERVALS = 50000, TREE_NODES = 200 };

/* ---- candidate periods ---- */

/* Calls for every stage time next to `period`: the longest stages not above it and the shortest above it, by end. */
static void stage_times(const Problem *p, int64_t period, int64_t *below, int64_t *above)
{
    int64_t within = *below, beyond = *above;
    for (int t = 0; t < p->type_count; t++) {
        const int64_t *work = p->work + (size_t)t * (size_t)(p->layer_count + 1), *start = work;
        for (const int64_t *end = work + 1; end <= work + p->layer_count; end++) {
            while (start < end && *end - *start > period) start++;
            if (*end - *start > within) within = *end - *start;
            if (start > work && *end - start[-1] < beyond) beyond = *end - start[-1];
        }
    }
    *below = within;
    *above = beyond;
}

static void link_times(const Problem *p, int64_t period, int64_t *below, int64_t *above)
{
    for (int cut = 1; cut < p->layer_count && !p->free_links; cut++)
        for (int a = 0; a < p->region_count; a++)
            for (int b = 0; b < p->region_count; b++) {
                int64_t busy = problem_link_period(p, cut, a, b);
                if (busy > period && busy < *above) *above = busy;
                if (busy <= period && busy > *below) *below = busy;
            }
}

int64_t period_above(const Problem *problem, int64_t period)
{
    int64_t below = 0, above = INT64_MAX;
    stage_times(problem, period, &below, &above);
    link_times(problem, period, &below, &above);
    return above;
}

int64_t period_not_above(const Problem *problem, int64_t period)
{
    int64_t below = 0, above = INT64_MAX;
    stage_times(problem, period, &below, &above);
    link_times(problem, period, &below, &above);
    return below;
}

int64_t period_largest(const Problem *problem) { return period_not_above(problem, INT64_MAX); }

/* ---- certificates ---- */

typedef struct Certifier {
    const Problem *problem;
    const CertifyRequest *request;
    Arena *arena;
    Certificate *certificate;
    int node_capacity, interval_capacity;
    double *price; /* [device] */
    int64_t work;
    double deadline;
    bool timed_out;
    int64_t update_low, update_high; /* the plans in question update in more than that, and in at most that */
} Certifier;

static void reset(Certifier *c)
{
    c->certificate->node_count = c->certificate->interval_count = 0;
    memset(c->price, 0, (size_t)c->problem->device_count * sizeof *c->price);
}

static void add_interval(Certifier *c, int64_t low, int64_t high, int root)
{
    Certificate *certificate = c->certificate;
    CertificateInterval interval = {low, high, root, c->update_low, c->update_high};
    array_push(certificate->intervals, certificate->interval_count, c->interval_capacity, interval);
}

/* Refutes (low, high] by branching. */
static bool prove_interval(Certifier *c, int64_t low, int64_t high, bool sums, double target, int nodes)
{
    Proof proof;
    ProofLimits limits = {
        .nodes = nodes, .work = &c->work, .deadline = c->deadline, .update_cap = sums ? c->update_high : 0};
    ProofAnswer answer = proof_make(&proof, c->problem, high, sums, target, c->price, limits);
    if (answer == PROOF_DONE) {
        int root = proof_append(&proof, c->certificate, &c->node_capacity, c->problem, c->request->device_of, c->arena);
        add_interval(c, low, high, root);
    } else if (monotonic_seconds() > c->deadline) {
        c->timed_out = true;
    }
    proof_free(&proof);
    return answer == PROOF_DONE;
}

static bool certify_period(Certifier *c, int64_t bound, int nodes)
{
    reset(c);
    c->certificate->bound_ns = bound;
    return prove_interval(c, 0, bound - 1, false, 0, nodes);
}

/* The best bound on the sum of plans under the cap that prices alone give; they stay in c->price for what follows. */
static double sum_under(Certifier *c, int64_t cap, double target)
{
    const Problem *p = c->problem;
    Relaxation r;
    relaxation_create_capped(&r, p, cap, c->update_high, true, NULL, 0);
    Prices prices = {.price = arena_new_array(&r.arena, double, (size_t)r.class_count)};
    for (int d = p->device_count - 1; d >= 0; d--) prices.price[r.class_of[d]] = c->price[d];
    prices_solve(&prices, &r, target, 20000);
    c->work -= relaxation_work(&r, prices.iterations);
    for (int d = 0; d < p->device_count; d++) c->price[d] = prices.price[r.class_of[d]];
    relaxation_free(&r);
    return prices.bound;
}

static bool is_spent(Certifier *c)
{
    bool late = monotonic_seconds() > c->deadline;
    c->timed_out |= late;
    return late || c->work < 0 || c->certificate->interval_count > MAX_INTERVALS ||
           c->certificate->node_count > MAX_NODES;
}

/* Plans whose update is in question, from the largest period down: each interval as long as its prices can refute it.
 * Where they cannot refute even the next possible period, a tree does - or, if *bound may give way, as much less is
 * claimed as it takes. */
static bool certify_periods(Certifier *c, int64_t *bound, int nodes, bool give_way)
{
    const Problem *p = c->problem;
    double rounds = p->microbatches - 1, update = (double)(c->update_low + 1);
    int64_t high = period_largest(p), width = 0;
    if (rounds == 0) {
        if (give_way) *bound = (int64_t)fmin((double)*bound, update + sum_under(c, high, (double)*bound));
        return prove_interval(c, 0, high, true, (double)*bound - update - 0.5, nodes);
    }
    while (high > 0) {
        if (is_spent(c)) return false;
        double sum = update + sum_under(c, high, (double)*bound - update);
        int64_t least = period_not_above(p, high) - 1; /* no period lies between */
        if (least < 0) least = 0;
        if (give_way && sum + rounds * (double)(least + 1) < (double)*bound) /* a little more, for longer steps */
            *bound = (int64_t)((sum + rounds * (double)(least + 1)) * (1 - 2e-5));
        double needed = ceil(((double)*bound - sum) / rounds) - 1, rest = (double)*bound - update - 0.5;
        int64_t low = needed <= 0 ? 0 : needed < (double)least ? (int64_t)needed : least;
        bool done = false;
        if (nodes > 1 && width > high - low) {
            int64_t longer = high > width ? high - width : 0;
            done = prove_interval(c, longer, high, true, rest - rounds * (double)(longer + 1), TREE_NODES);
            if (done) low = longer;
        }
        width = done ? width * 2 : (high - low) * 2;
        if (!done && !prove_interval(c, low, high, true, rest - rounds * (double)(low + 1), nodes)) return false;
        high = low;
    }
    return true;
}

/* Where the update is too much of the step to be left out: ranges of updates, from the longest down, each halved until
 * its plans are refuted. */
static bool certify_updates(Certifier *c, int64_t bound, int64_t low, int64_t high, int nodes)
{
    int intervals = c->certificate->interval_count, trees = c->certificate->node_count;
    c->update_low = low;
    c->update_high = high;
    if (certify_periods(c, &bound, nodes, false)) return true;
    if (high - low <= 1 || high <= 1 || is_spent(c)) return false;
    c->certificate->interval_count = intervals;
    c->certificate->node_count = trees;
    int64_t middle = low < 0 ? (high + 1) / 2 : low + (high - low) / 2;
    return certify_updates(c, bound, middle, high, nodes) && certify_updates(c, bound, low, middle, nodes);
}

static int64_t longest_update(const Problem *p)
{
    int64_t most = 1;
    for (int t = 0; t < p->type_count; t++) {
        int64_t update = problem_update(p, t, 0, p->layer_count);
        if (update > most) most = update;
    }
    return most;
}

static bool certify_step(Certifier *c, int64_t bound, int nodes, bool give_way)
{
    reset(c);
    c->update_low = -1;
    c->update_high = longest_update(c->problem);
    bool ok = give_way ? certify_periods(c, &bound, nodes, true)
                       : certify_updates(c, bound, c->update_low, c->update_high, nodes);
    c->certificate->bound_ns = bound;
    return ok;
}

/* The bound as it is; or, where trees do not get there, what prices alone can prove. */
static bool certify_bound(Certifier *c, int64_t bound)
{
    static const double weaker[] = {1e-5, 1e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3};
    bool period = c->problem->objective == PLAN_OBJECTIVE_PERIOD || c->request->infeasible;
    if (bound <= 1) return false;
    double now = monotonic_seconds();
    if (c->deadline > now)
        c->deadline = now + (c->deadline - now) / 2; /* the rest is for what prices alone can prove */
    if (period ? certify_period(c, bound, MAX_NODES) : certify_step(c, bound, TREE_NODES, false)) return true;
    if (c->request->infeasible) return false;
    c->work = INT64_MAX;
    c->deadline = 1e300;
    if (!period) return certify_step(c, bound, 1, true);
    for (size_t k = 0; k < sizeof weaker / sizeof *weaker; k++)
        if (certify_period(c, (int64_t)((double)bound * (1 - weaker[k])), 1)) return true;
    return false;
}

/* The intervals and nodes grew by malloc: into the arena they go. */
static Certificate *settle(Certifier *c, bool ok)
{
    Certificate *certificate = c->certificate;
    CertificateInterval *intervals = certificate->intervals;
    CertificateNode *nodes = certificate->nodes;
    certificate->intervals = arena_copy(c->arena, intervals, (size_t)certificate->interval_count * sizeof *intervals);
    certificate->nodes = arena_copy(c->arena, nodes, (size_t)certificate->node_count * sizeof *nodes);
    free(intervals);
    free(nodes);
    return ok ? certificate : NULL;
}

Certificate *certify(const Problem *problem, const CertifyRequest *request, Arena *arena, bool *timed_out)
{
    Certifier c = {.problem = problem,
                   .request = request,
                   .arena = arena,
                   .work = request->work,
                   .deadline = request->deadline,
                   .update_low = -1,
                   .update_high = longest_update(problem)};
    c.certificate = arena_new(arena, Certificate);
    c.certificate->price_count = request->price_count;
    c.price = memory_allocate((size_t)problem->device_count * sizeof *c.price);
    bool ok = certify_bound(&c, request->bound);
    *timed_out |= c.timed_out;
    free(c.price);
    return settle(&c, ok);
}
