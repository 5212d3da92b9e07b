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
    for (int t = 0; t < p->type_count; t++)
        for (int end = 1, start = 0; end <= p->layer_count; end++) {
            while (start < end && problem_work(p, t, start, end) > period) start++;
            int64_t within = problem_work(p, t, start, end);
            if (within > *below) *below = within;
            if (start == 0) continue;
            int64_t beyond = problem_work(p, t, start - 1, end);
            if (beyond < *above) *above = beyond;
        }
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
} Certifier;

static void reset(Certifier *c)
{
    c->certificate->node_count = c->certificate->interval_count = 0;
    memset(c->price, 0, (size_t)c->problem->device_count * sizeof *c->price);
}

static void add_interval(Certifier *c, int64_t low, int64_t high, int root)
{
    Certificate *certificate = c->certificate;
    CertificateInterval interval = {low, high, root};
    array_push(certificate->intervals, certificate->interval_count, c->interval_capacity, interval);
}

/* Refutes (low, high] by branching. */
static bool prove_interval(Certifier *c, int64_t low, int64_t high, bool sums, double target, int nodes)
{
    Proof proof;
    ProofLimits limits = {.nodes = nodes, .work = &c->work, .deadline = c->deadline};
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
    relaxation_create(&r, p, cap, true, NULL, 0);
    Prices prices = {.price = arena_new_array(&r.arena, double, (size_t)r.class_count)};
    for (int d = p->device_count - 1; d >= 0; d--) prices.price[r.class_of[d]] = c->price[d];
    prices_solve(&prices, &r, target, 20000);
    c->work -= relaxation_work(&r, prices.iterations);
    for (int d = 0; d < p->device_count; d++) c->price[d] = prices.price[r.class_of[d]];
    relaxation_free(&r);
    return prices.bound;
}

/* From the largest period down: each interval as long as its prices can refute it. Where they cannot refute even the
 * next possible period, a tree does - or, if the bound may give way, as much less is claimed as it takes. */
static bool certify_step(Certifier *c, int64_t bound, int nodes, bool give_way)
{
    const Problem *p = c->problem;
    double rounds = p->microbatches - 1;
    int64_t high = period_largest(p), width = 0;
    reset(c);
    if (rounds == 0 && give_way) bound = (int64_t)fmin((double)bound, sum_under(c, high, (double)bound));
    c->certificate->bound_ns = bound;
    if (rounds == 0) return prove_interval(c, 0, high, true, (double)bound - 0.5, nodes);
    while (high > 0) {
        bool late = monotonic_seconds() > c->deadline;
        c->timed_out |= late;
        if (late || c->work < 0 || c->certificate->interval_count > MAX_INTERVALS ||
            c->certificate->node_count > MAX_NODES)
            return false;
        double sum = sum_under(c, high, (double)bound);
        int64_t least = period_not_above(p, high) - 1; /* no period lies between */
        if (least < 0) least = 0;
        if (give_way && sum + rounds * (double)(least + 1) < (double)bound) /* a little more, for longer steps */
            bound = (int64_t)((sum + rounds * (double)(least + 1)) * (1 - 2e-5));
        double needed = ceil(((double)bound - sum) / rounds) - 1;
        int64_t low = needed <= 0 ? 0 : needed < (double)least ? (int64_t)needed : least;
        bool done = false;
        if (nodes > 1 && width > high - low) {
            int64_t longer = high > width ? high - width : 0;
            done =
                prove_interval(c, longer, high, true, (double)bound - rounds * (double)(longer + 1) - 0.5, TREE_NODES);
            if (done) low = longer;
        }
        width = done ? width * 2 : (high - low) * 2;
        if (!done && !prove_interval(c, low, high, true, (double)bound - rounds * (double)(low + 1) - 0.5, nodes))
            return false;
        high = low;
    }
    c->certificate->bound_ns = bound;
    return true;
}

/* The bound as it is; or, where trees do not get there, what prices alone can prove. */
static bool certify_bound(Certifier *c, int64_t bound)
{
    static const double weaker[] = {1e-5, 1e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3};
    bool period = c->problem->objective == PLAN_OBJECTIVE_PERIOD;
    if (bound <= 1) return false;
    if (period ? certify_period(c, bound, MAX_NODES) : certify_step(c, bound, TREE_NODES, false)) return true;
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
    Certifier c = {
        .problem = problem, .request = request, .arena = arena, .work = request->work, .deadline = request->deadline};
    c.certificate = arena_new(arena, Certificate);
    c.certificate->price_count = request->price_count;
    c.price = memory_allocate((size_t)problem->device_count * sizeof *c.price);
    bool ok = certify_bound(&c, request->bound);
    *timed_out |= c.timed_out;
    free(c.price);
    return settle(&c, ok);
}
