#include "partitioner/solve/prove.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "partitioner/sizes.h"
#include "partitioner/solve/arcs.h"
#include "partitioner/solve/prices.h"
#include "partitioner/solve/search.h"
#include "partitioner/solve/shortest.h"

#ifdef _OPENMP
#define PARALLEL_FOR _Pragma("omp parallel for schedule(dynamic, 1) if (worth)")
#define ADD_ATOMICALLY _Pragma("omp atomic")
#else
#define PARALLEL_FOR
#define ADD_ATOMICALLY
#endif

enum { MAX_DEPTH = 200, CUT_CANDIDATES = 5, DEVICE_CANDIDATES = 3, TRIAL_ITERATIONS = 150, WARM_ITERATIONS = 120 };

int64_t relaxation_work(const Relaxation *r, int iterations)
{
    int64_t regions = r->problem->region_count, rows = r->class_count + 1;
    int64_t arcs = 0;
    for (int end = 1; r->arcs && end <= r->problem->layer_count; end++) arcs += r->arc_count[end];
    if (r->arcs) return iterations * (arcs * (regions > 1 ? 2 : 1) + rows * rows);
    int64_t stages = (int64_t)r->class_count * (r->maximal ? 1 : 8) + (regions > 1 ? regions * regions : 0);
    return iterations * (r->problem->layer_count * (r->levels + 1) * stages + rows * rows);
}

typedef struct Prover {
    const Problem *problem;
    Allocation *found;
    Proof *proof;
    int64_t cap;
    bool sums;
    double target;
    ProofLimits limits;
    double *root_price; /* [device]: receives the prices of the root */
    Split splits[MAX_DEPTH];
    int depth;
} Prover;

/* How far a question is from being refuted (below 0: refuted), comparable between children. */
static double deficit(const Prover *prover, const Relaxation *r, const Prices *prices)
{
    if (prover->sums) return prover->target - prices->bound;
    if (r->base) return (r->allowance - prices->bound) / r->allowance;
    return prices->total > 0 ? 1 - prices->path / prices->total : 1;
}

/* The bound that refutes a question. */
static double target_of(const Prover *prover, const Relaxation *r) { return r->base ? r->allowance : prover->target; }

static bool is_refuted(const Prover *prover, const Relaxation *r, const Prices *prices)
{
    return prices->bound > target_of(prover, r);
}

/* A question under the splits so far. */
typedef struct Question {
    Relaxation r;
    Prices prices;
    PricesBasis *basis;
    Path path;
    double *price; /* [device] */
} Question;

/* Solves a question whose relaxation is ready, from `price` [device]. */
static void solve(Prover *prover, Question *q, const double *price, const PricesBasis *warm, int iterations)
{
    Relaxation *r = &q->r;
    size_t stages = (size_t)prover->problem->layer_count, classes = (size_t)r->class_count;
    size_t entries = classes * (stages + 1);
    q->prices = (Prices){.price = arena_new_array(&r->arena, double, classes),
                         .deadline = prover->limits.deadline,
                         .warm = warm,
                         .keep = iterations == PRICES_ITERATIONS ? &q->basis : NULL};
    if (prover->found && !prover->sums) {
        q->path = (Path){0, arena_new_array(&r->arena, int, stages), arena_new_array(&r->arena, int, stages), 0};
        q->prices.feasible = &q->path;
    }
    if (iterations == PRICES_ITERATIONS) q->prices.mixture = arena_new_array(&r->arena, double, entries);
    for (int d = prover->problem->device_count - 1; d >= 0; d--) {
        int c = r->class_of[d];
        double base = r->base && c >= 0 ? r->base[c] : 0;
        if (c >= 0) q->prices.price[c] = price[d] > base ? price[d] - base : 0;
    }
    prices_solve(&q->prices, r, target_of(prover, r), iterations);
    if (prover->limits.work) *prover->limits.work -= relaxation_work(r, q->prices.iterations);
    q->price = arena_new_array(&r->arena, double, (size_t)prover->problem->device_count);
    for (int d = 0; d < prover->problem->device_count; d++) {
        int c = r->class_of[d];
        q->price[d] = c >= 0 ? q->prices.price[c] + (r->base ? r->base[c] : 0) : 0;
    }
}

/* Solves the question under the current splits. Starts from the parent's prices (`price` [device]) and, if the parent
 * was reduced to arcs, from its arcs and basis. */
static void ask(Prover *prover, Question *q, const Question *parent, const double *price, int iterations)
{
    memset(q, 0, sizeof *q);
    bool restricted = parent && parent->r.arcs;
    if (restricted)
        arcs_restrict(&q->r, &parent->r, &prover->splits[prover->depth - 1]);
    else
        relaxation_create_capped(&q->r, prover->problem, prover->cap,
                                 prover->limits.update_cap > 0 ? prover->limits.update_cap : INT64_MAX, prover->sums,
                                 prover->splits, prover->depth);
    solve(prover, q, price, restricted ? parent->basis : NULL, iterations);
}

/* Leaves out the stages that no plan in question can have. */
static void reduce(Prover *prover, Question *q)
{
    Relaxation *r = &q->r;
    shortest_solve(r, q->prices.price);
    if (r->class_count > SIZE_TOO_MANY_CLASSES || r->late) return;
    if (!arcs_reduce(r, q->prices.price, q->prices.total + target_of(prover, r))) return;
    if (prover->sums || r->base) {
        shortest_solve(r, q->prices.price);
        return;
    }
    arcs_rebase(r, q->prices.price);
    prices_basis_free(q->basis);
    solve(prover, q, q->price, NULL, PRICES_ITERATIONS);
}

static void question_free(Question *q)
{
    prices_basis_free(q->basis);
    relaxation_free(&q->r);
}

static int add_leaf(Prover *prover, const Prices *prices, const double *price)
{
    ProofNode node = {.leaf = true, .path = prices->path, .total = prices->total};
    node.price = arena_copy(&prover->proof->arena, price, (size_t)prover->problem->device_count * sizeof *price);
    array_push(prover->proof->nodes, prover->proof->node_count, prover->proof->node_capacity, node);
    prover->proof->leaf_count++;
    return prover->proof->node_count - 1;
}

/* ---- Splits ---- */

typedef struct SplitCandidate {
    Split split;
    double balance; /* distance of the fraction from 1/2 */
    bool first;     /* the answer to follow first */
} SplitCandidate;

static int by_balance(const void *a, const void *b)
{
    const SplitCandidate *x = a, *y = b;
    if (x->balance != y->balance) return x->balance < y->balance ? -1 : 1;
    return x->split.cut - y->split.cut;
}

/* Keeps the `most` candidates nearest to one half. */
static int keep_best(SplitCandidate *all, int count, int most)
{
    qsort(all, (size_t)count, sizeof *all, by_balance);
    return count < most ? count : most;
}

/* The cuts whose use by the mixture is nearest to one half. */
static int cut_candidates(const Relaxation *r, const double *mixture, SplitCandidate *all)
{
    int n = r->problem->layer_count, count = 0;
    for (int cut = 1; cut < n; cut++) {
        double used = 0;
        for (int c = 0; c < r->class_count; c++) used += mixture[c * (n + 1) + cut];
        if (used > 1e-4 && used < 1 - 1e-4)
            all[count++] = (SplitCandidate){{.kind = SPLIT_CUT, .cut = cut}, fabs(used - 0.5), true};
    }
    return keep_best(all, count, CUT_CANDIDATES);
}

/* The devices that the mixture uses in two places, split between these so that both sides weigh the same. */
static int device_candidates(const Relaxation *r, const double *mixture, SplitCandidate *all)
{
    int n = r->problem->layer_count, count = 0;
    for (int d = 0; d < r->problem->device_count; d++) {
        int c = r->class_of[d];
        if (c < 0) continue;
        const double *starts = mixture + (size_t)c * (size_t)(n + 1);
        double total = 0, before = 0, best = 0;
        int best_cut = 0;
        if (d > 0 && r->class_size[c] > 1 && r->class_of[d - 1] == c) continue; /* its equals: one is enough */
        for (int cut = 0; cut < n; cut++) total += starts[cut];
        for (int cut = 0; cut + 1 < n; cut++) {
            before += starts[cut];
            double side = before < total - before ? before : total - before;
            if (side > best) best = side, best_cut = cut + 1;
        }
        if (best > 1e-4)
            all[count++] = (SplitCandidate){
                {.kind = SPLIT_DEVICE, .device = d, .cut = best_cut}, fabs(best / r->class_size[c] - 0.5), true};
    }
    return keep_best(all, count, DEVICE_CANDIDATES);
}

/* The gain of a split, from a few iterations on each child. Sets which child is more likely to have a plan. */
static double try_split(Prover *prover, SplitCandidate *candidate, const Question *q)
{
    double score = 1, parent = deficit(prover, &q->r, &q->prices), left[2];
    for (int yes = 0; yes < 2; yes++) {
        Question child;
        prover->splits[prover->depth] = candidate->split;
        prover->splits[prover->depth++].yes = yes;
        ask(prover, &child, q, q->price, q->r.arcs ? WARM_ITERATIONS : TRIAL_ITERATIONS);
        left[yes] = deficit(prover, &child.r, &child.prices);
        double gain = parent - left[yes];
        if (is_refuted(prover, &child.r, &child.prices) && gain < parent) gain = parent;
        if (gain > 2 * fabs(parent)) gain = 2 * fabs(parent);
        score *= 1e-6 * fabs(parent) + (gain > 0 ? gain : 0);
        question_free(&child);
        prover->depth--;
    }
    candidate->first = left[1] >= left[0];
    return score;
}

static ProofAnswer refute(Prover *prover, const Question *parent, const double *price, int *node);

/* `first`: the answer to follow first. */
static ProofAnswer branch(Prover *prover, const Split *split, bool first, const Question *parent, const double *price,
                          int *node)
{
    int index = prover->proof->node_count;
    ProofNode empty = {.split = *split};
    array_push(prover->proof->nodes, prover->proof->node_count, prover->proof->node_capacity, empty);
    *node = index;
    ProofAnswer answer = PROOF_DONE;
    for (int k = 0; k < 2 && answer == PROOF_DONE; k++) {
        int child;
        bool yes = k == 0 ? first : !first;
        prover->splits[prover->depth] = *split;
        prover->splits[prover->depth++].yes = yes;
        answer = refute(prover, parent, price, &child);
        prover->depth--;
        if (answer == PROOF_DONE) prover->proof->nodes[index].child[yes ? 0 : 1] = child;
    }
    return answer;
}

/* The trials are independent, so neither threads nor order change their scores. */
static void try_splits(Prover *prover, SplitCandidate *candidates, int count, const Question *q, double *score)
{
    int64_t spent = 0;
    bool worth = relaxation_work(&q->r, WARM_ITERATIONS) > SIZE_WORTH_THREADS;
    (void)worth;
    PARALLEL_FOR
    for (int k = 0; k < count; k++) {
        int64_t allowance = 0;
        Prover *own = memory_allocate(sizeof *own);
        *own = *prover;
        own->limits.work = &allowance;
        if (prover->problem->watch && prover->problem->watch->counted) own->limits.deadline = 0; /* others count too */
        score[k] = try_split(own, &candidates[k], q);
        free(own);
        ADD_ATOMICALLY
        spent -= allowance;
    }
    if (prover->limits.work) *prover->limits.work -= spent;
}

static ProofAnswer choose_and_branch(Prover *prover, SplitCandidate *candidates, int count, const Question *q,
                                     int *node)
{
    double score[CUT_CANDIDATES + DEVICE_CANDIDATES] = {0};
    int best = 0;
    if (count > 1) try_splits(prover, candidates, count, q, score);
    for (int k = 1; k < count; k++)
        if (score[k] > score[best]) best = k;
    return branch(prover, &candidates[best].split, candidates[best].first, q, q->price, node);
}

/* A part of the cluster to split off, if the open links leave several parts that no split separates yet; -1 if not. */
static int region_to_split(const Prover *prover)
{
    const Problem *problem = prover->problem;
    int regions = problem->region_count, found = -1, parts = 0;
    if (regions == 1) return -1;
    FREED int *component = memory_allocate((size_t)regions * sizeof *component);
    relaxation_components(problem, prover->cap, component);
    for (int q = 0; q < regions; q++) {
        bool inside = component[q] == q, used = false;
        for (int k = 0; k < prover->depth && inside; k++)
            if (prover->splits[k].kind == SPLIT_REGION)
                inside = (component[prover->splits[k].region] == q) == prover->splits[k].yes;
        for (int t = 0; t < problem->type_count && inside && !used; t++) used = component[problem->type_region[t]] == q;
        if (!used) continue;
        parts++;
        if (found < 0) found = q;
    }
    return parts > 1 ? found : -1;
}

/* Searches for a plan within the current splits, if the caller wants one. */
static ProofAnswer search_node(Prover *prover, const Question *q)
{
    int arcs = 0;
    for (int end = 1; q->r.arcs && end <= prover->problem->layer_count; end++) arcs += q->r.arc_count[end];
    int width =
        arcs > 0 && arcs * prover->limits.width < SIZE_SEARCH_ARCS ? SIZE_SEARCH_ARCS / arcs : prover->limits.width;
    SearchLimits limits = {.width = width,
                           .best = prover->limits.best,
                           .period_low = prover->limits.period_low,
                           .deadline = prover->limits.deadline};
    FREED double *price = memory_allocate((size_t)q->r.class_count * sizeof *price);
    for (int c = 0; c < q->r.class_count; c++) price[c] = q->prices.price[c] + (q->r.base ? q->r.base[c] : 0);
    SearchResult result = search_plans(&q->r, price, limits, prover->found);
    return result.found ? PROOF_FOUND : result.complete ? PROOF_DONE : PROOF_POSSIBLE;
}

static ProofAnswer split_further(Prover *prover, const Question *q, int *node)
{
    const Problem *problem = prover->problem;
    if (prover->limits.regions_only) return PROOF_POSSIBLE;
    FREED SplitCandidate *all =
        memory_allocate((size_t)(problem->layer_count + problem->device_count + 1) * sizeof *all);
    int count = cut_candidates(&q->r, q->prices.mixture, all);
    count += device_candidates(&q->r, q->prices.mixture, all + count);
    bool limit = prover->proof->node_count >= prover->limits.nodes ||
                 watch_passed(prover->problem->watch, prover->limits.deadline) || prover->depth + 1 >= MAX_DEPTH ||
                 (prover->limits.work && *prover->limits.work < 0);
    return count == 0 ? PROOF_POSSIBLE : limit ? PROOF_GAVE_UP : choose_and_branch(prover, all, count, q, node);
}

/* Asks again over all stages what was refuted over arcs, because the checker of the tree does not know arcs. Rarely
 * that refutes nothing; then no stages are left out from here on. */
static void ask_in_full(Prover *prover, Question *q)
{
    Question full;
    ask(prover, &full, NULL, q->price, PRICES_ITERATIONS);
    question_free(q);
    *q = full;
}

static ProofAnswer refute(Prover *prover, const Question *parent, const double *price, int *node)
{
    int region = region_to_split(prover);
    if (region >= 0) return branch(prover, &(Split){.kind = SPLIT_REGION, .region = region}, true, NULL, price, node);
    Question q;
    ask(prover, &q, parent, price, PRICES_ITERATIONS);
    if (!parent && prover->depth == 0)
        memcpy(prover->root_price, q.price, (size_t)prover->problem->device_count * sizeof *q.price);
    ProofAnswer answer = PROOF_POSSIBLE;
    if (!is_refuted(prover, &q.r, &q.prices) && !q.prices.found) reduce(prover, &q);
    if (!prover->found && q.r.arcs && is_refuted(prover, &q.r, &q.prices)) ask_in_full(prover, &q);
    if (q.prices.found) {
        shortest_allocation(&q.r, &q.path, prover->found);
        answer = PROOF_FOUND;
    } else if (is_refuted(prover, &q.r, &q.prices)) {
        *node = add_leaf(prover, &q.prices, q.price);
        answer = PROOF_DONE;
    } else {
        if (prover->found) answer = search_node(prover, &q);
        if (answer == PROOF_DONE) *node = -1; /* complete search: no plan, but no certificate */
        if (answer == PROOF_POSSIBLE) answer = split_further(prover, &q, node);
    }
    question_free(&q);
    return answer;
}

ProofAnswer proof_make(Proof *proof, const Problem *problem, int64_t cap, bool sums, double target, double *price,
                       ProofLimits limits)
{
    memset(proof, 0, sizeof *proof);
    FREED Prover *prover = memory_allocate(sizeof *prover);
    *prover = (Prover){.found = limits.found,
                       .problem = problem,
                       .proof = proof,
                       .cap = cap,
                       .sums = sums,
                       .target = target,
                       .limits = limits,
                       .root_price = price};
    return refute(prover, NULL, price, &proof->root);
}

void proof_free(Proof *proof)
{
    arena_free(&proof->arena);
    free(proof->nodes);
    memset(proof, 0, sizeof *proof);
}

int proof_append(const Proof *proof, Certificate *certificate, int *node_capacity, const Problem *problem,
                 const int *device_of, Arena *arena)
{
    int base = certificate->node_count;
    for (int i = 0; i < proof->node_count; i++) {
        const ProofNode *from = &proof->nodes[i];
        CertificateNode node = {.leaf = from->leaf};
        if (from->leaf) {
            node.path = from->path < RELAXATION_INFINITY / 2 ? (int64_t)from->path : -1; /* no chain at all */
            node.total = (int64_t)from->total;
            node.price = arena_new_array(arena, int64_t, (size_t)certificate->price_count);
            for (int d = 0; d < problem->device_count; d++) node.price[device_of[d]] = (int64_t)from->price[d];
        } else {
            node.cut = from->split.cut;
            node.kind = from->split.kind;
            node.region = from->split.region;
            if (from->split.kind == SPLIT_DEVICE)
                node.device = arena_string(arena, problem->costs->devices[from->split.device].name);
            node.yes = base + from->child[0];
            node.no = base + from->child[1];
        }
        array_push(certificate->nodes, certificate->node_count, *node_capacity, node);
    }
    return base + proof->root;
}
