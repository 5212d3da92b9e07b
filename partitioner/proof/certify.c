#include "partitioner/proof/certify.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "partitioner/periods.h"
#include "partitioner/sizes.h"
#include "partitioner/solve/prices.h"
#include "partitioner/solve/prove.h"
#include "partitioner/solve/shortest.h"

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
    FREED_WITH(proof_free) Proof proof;
    ProofLimits limits = {
        .nodes = nodes, .work = &c->work, .deadline = c->deadline, .update_cap = sums ? c->update_high : 0};
    ProofAnswer answer = proof_make(&proof, c->problem, high, sums, target, c->price, limits);
    if (answer == PROOF_DONE) {
        int root = proof_append(&proof, c->certificate, &c->node_capacity, c->problem, c->request->device_of, c->arena);
        add_interval(c, low, high, root);
    } else if (watch_passed(c->problem->watch, c->deadline)) {
        c->timed_out = true;
    }
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
    FREED_WITH(relaxation_free) Relaxation r;
    relaxation_create_capped(&r, p, cap, c->update_high, true, NULL, 0);
    Prices prices = {.price = arena_new_array(&r.arena, double, (size_t)r.class_count), .deadline = c->deadline};
    for (int d = p->device_count - 1; d >= 0; d--) prices.price[r.class_of[d]] = c->price[d];
    prices_solve(&prices, &r, target, PRICES_ITERATIONS);
    c->work -= relaxation_work(&r, prices.iterations);
    for (int d = 0; d < p->device_count; d++) c->price[d] = prices.price[r.class_of[d]];
    return prices.bound;
}

static bool is_spent(Certifier *c)
{
    bool late = watch_passed(c->problem->watch, c->deadline);
    c->timed_out |= late;
    return late || c->work < 0 || c->certificate->interval_count > SIZE_CERTIFICATE_INTERVALS ||
           c->certificate->node_count > SIZE_CERTIFICATE_NODES;
}

/* What can be claimed of a bound that prices gave: nothing, where they are worth nothing. */
static int64_t claimed(double bound) { return bound > 0 ? (int64_t)bound : 0; }

/* Plans whose update is in question, from the largest period down: each interval as long as its prices can refute it.
 * Where they cannot refute even the next possible period, a tree does - or, if *bound may give way, as much less is
 * claimed as it takes. */
static bool certify_periods(Certifier *c, int64_t *bound, int nodes, bool give_way)
{
    const Problem *p = c->problem;
    double rounds = p->rounds, update = (double)(c->update_low + 1);
    int64_t high = period_largest(p), width = 0;
    if (rounds == 0) {
        if (give_way) *bound = claimed(fmin((double)*bound, update + sum_under(c, high, (double)*bound)));
        return prove_interval(c, 0, high, true, (double)*bound - update - 0.5, nodes);
    }
    while (high > 0) {
        if (is_spent(c)) return false;
        double sum = update + sum_under(c, high, (double)*bound - update);
        int64_t least = period_not_above(p, high) - 1; /* no period lies between */
        if (least < 0) least = 0;
        double reached = sum + problem_rounds(p, (double)(least + 1));
        if (give_way && reached < (double)*bound)
            *bound = claimed(reached * (1 - 2e-5)); /* a little more, for longer steps */
        double needed = ceil(((double)*bound - sum) / rounds) - 1, rest = (double)*bound - update - 0.5;
        int64_t low = needed <= 0 ? 0 : needed < (double)least ? (int64_t)needed : least;
        bool done = false;
        if (nodes > 1 && width > high - low) {
            int64_t longer = high > width ? high - width : 0;
            done =
                prove_interval(c, longer, high, true, rest - problem_rounds(p, (double)(longer + 1)), SIZE_TREE_NODES);
            if (done) low = longer;
        }
        width = done ? width * 2 : (high - low) * 2;
        if (!done && !prove_interval(c, low, high, true, rest - problem_rounds(p, (double)(low + 1)), nodes))
            return false;
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

/* ---- what the solver knows ---- */

/* Adds a leaf with the item's prices and returns the least sum, or by how much the shortest path exceeds the prices. No
 * leaf, and less than nothing, where the time is up. */
static double add_leaf(Certifier *c, const EvidenceItem *item, bool sums)
{
    const Problem *p = c->problem;
    FREED_WITH(relaxation_free) Relaxation r;
    relaxation_create_capped(&r, p, item->high, sums ? c->update_high : INT64_MAX, sums, NULL, 0);
    double *price = arena_new_array(&r.arena, double, (size_t)r.class_count), total = 0;
    CertificateNode node = {.leaf = true};
    node.price = arena_new_array(c->arena, int64_t, (size_t)c->certificate->price_count);
    for (int d = 0; d < p->device_count; d++) {
        node.price[c->request->device_of[d]] = (int64_t)item->price[p->type_of[d]];
        price[r.class_of[d]] = item->price[p->type_of[d]];
        total += item->price[p->type_of[d]];
    }
    double path = shortest_solve(&r, price);
    c->timed_out |= r.late;
    if (r.late) return -RELAXATION_INFINITY;
    node.path = path < RELAXATION_INFINITY / 2 ? (int64_t)path : -1; /* no chain at all */
    node.total = (int64_t)total;
    array_push(c->certificate->nodes, c->certificate->node_count, c->node_capacity, node);
    add_interval(c, item->low, item->high, c->certificate->node_count - 1);
    return path < RELAXATION_INFINITY / 2 ? path - total : RELAXATION_INFINITY;
}

/* Exactly what the prices of the solver prove, which is the bound itself unless searching or branching raised it. */
static bool certify_evidence(Certifier *c, int64_t bound, bool period)
{
    Evidence *evidence = c->request->evidence;
    double least = (double)bound;
    reset(c);
    if (!evidence || evidence->count == 0) return false;
    if (period) {
        const EvidenceItem *item = &evidence->items[0];
        EvidenceItem capped = {0, item->high < bound ? item->high : bound - 1, item->price};
        c->certificate->bound_ns = capped.high + 1;
        if (add_leaf(c, &capped, false) > 0) return true;
        /* Over links too slow for the cap the cluster falls into parts, each of which needs prices of its own. */
        reset(c);
        for (int d = 0; d < c->problem->device_count; d++) c->price[d] = item->price[c->problem->type_of[d]];
        return prove_interval(c, 0, capped.high, false, 0, 1);
    }
    evidence_sort(evidence);
    for (int i = 0; i < evidence->count && least >= 1; i++) {
        double step = add_leaf(c, &evidence->items[i], true);
        step += problem_rounds(c->problem, (double)(evidence->items[i].low + 1));
        if (step < least) least = step;
    }
    if (least < 1) return false;
    c->certificate->bound_ns = (int64_t)least;
    return true;
}

/* ---- the best of both ---- */

/* Whatever `better` says, `c` goes on with an empty certificate; the better one of it and `best` stays in `best`. */
static void keep(Certifier *c, Certificate *best, bool better)
{
    Certificate *now = c->certificate;
    if (better && now->bound_ns > best->bound_ns) {
        Certificate swap = *best;
        *best = *now;
        *now = swap;
    }
    free(now->intervals);
    free(now->nodes);
    *now = (Certificate){.price_count = c->request->price_count};
    c->node_capacity = c->interval_capacity = 0;
}

/* What the solver's prices prove; if the bound is more, trees for all of it; if that takes too long, what new prices
 * can. */
static bool certify_bound(Certifier *c, int64_t bound)
{
    bool period = c->problem->objective == PLAN_OBJECTIVE_PERIOD || c->request->infeasible;
    Certificate best = {0};
    if (bound <= 1) return false;
    if (!c->request->infeasible) keep(c, &best, certify_evidence(c, bound, period));
    if (best.bound_ns < bound) {
        double end = c->deadline;
        if (!period) c->deadline = watch_share(c->problem->watch, end, 0.5);
        keep(c, &best,
             period ? certify_period(c, bound, SIZE_CERTIFICATE_NODES)
                    : certify_step(c, bound, SIZE_TREE_NODES, false));
        c->deadline = end;
    }
    if (best.bound_ns < bound && !period) {
        c->work = c->request->work;
        keep(c, &best, certify_step(c, bound, 1, true));
    }
    *c->certificate = best;
    c->certificate->price_count = c->request->price_count;
    return best.bound_ns > 0;
}

/* The intervals and nodes grew by malloc: into the arena they go. */
static Certificate *settle(Certifier *c, bool ok)
{
    Certificate *certificate = c->certificate;
    FREED CertificateInterval *intervals = certificate->intervals;
    FREED CertificateNode *nodes = certificate->nodes;
    certificate->intervals = arena_copy(c->arena, intervals, (size_t)certificate->interval_count * sizeof *intervals);
    certificate->nodes = arena_copy(c->arena, nodes, (size_t)certificate->node_count * sizeof *nodes);
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
