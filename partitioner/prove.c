#include "partitioner/prove.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "partitioner/prices.h"
#include "partitioner/search.h"

enum { MAX_DEPTH = 200, CUT_CANDIDATES = 5, DEVICE_CANDIDATES = 3, TRIAL_ITERATIONS = 150, ITERATIONS = 20000 };

int64_t relaxation_work(const Relaxation *r, int iterations)
{
    int64_t regions = r->problem->region_count, rows = r->class_count + 1;
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
    Split splits[MAX_DEPTH];
    int depth;
} Prover;

/* How far a question is from being refuted, comparable between children: below 0 is refuted. */
static double deficit(const Prover *p, const Prices *prices)
{
    if (p->sums) return p->target - prices->bound;
    return prices->total > 0 ? 1 - prices->path / prices->total : 1;
}

static bool is_refuted(const Prover *p, const Prices *prices) { return prices->bound > p->target; }

/* Solves the question under the current splits. Prices come from and go to `price` [device]. */
static void solve(Prover *p, Relaxation *r, Prices *prices, double *price, int iterations, bool mix, double **mixture)
{
    relaxation_create(r, p->problem, p->cap, p->sums, p->splits, p->depth);
    size_t entries = (size_t)r->class_count * (size_t)(p->problem->layer_count + 1);
    *mixture = mix ? arena_new_array(&r->arena, double, entries) : NULL;
    *prices =
        (Prices){.price = arena_new_array(&r->arena, double, (size_t)r->class_count), .deadline = p->limits.deadline};
    for (int d = p->problem->device_count - 1; d >= 0; d--)
        if (r->class_of[d] >= 0) prices->price[r->class_of[d]] = price[d];
    prices_solve(prices, r, p->target, iterations, NULL, *mixture);
    if (p->limits.work) *p->limits.work -= relaxation_work(r, prices->iterations);
    for (int d = 0; d < p->problem->device_count; d++)
        price[d] = r->class_of[d] >= 0 ? prices->price[r->class_of[d]] : 0;
}

static int add_leaf(Prover *p, const Prices *prices, const double *price)
{
    ProofNode node = {.leaf = true, .path = prices->path, .total = prices->total};
    node.price = arena_copy(&p->proof->arena, price, (size_t)p->problem->device_count * sizeof *price);
    array_push(p->proof->nodes, p->proof->node_count, p->proof->node_capacity, node);
    p->proof->leaf_count++;
    return p->proof->node_count - 1;
}

/* ---- where to split ---- */

typedef struct Candidate {
    Split split;
    double balance; /* distance of the fraction from 1/2 */
} Candidate;

static int by_balance(const void *a, const void *b)
{
    const Candidate *x = a, *y = b;
    if (x->balance != y->balance) return x->balance < y->balance ? -1 : 1;
    return x->split.cut - y->split.cut;
}

/* Keeps the `most` candidates nearest to one half. */
static int keep_best(Candidate *all, int count, int most)
{
    qsort(all, (size_t)count, sizeof *all, by_balance);
    return count < most ? count : most;
}

/* Cuts that the mixture uses most nearly half. */
static int cut_candidates(const Relaxation *r, const double *mixture, Candidate *all)
{
    int n = r->problem->layer_count, count = 0;
    for (int cut = 1; cut < n; cut++) {
        double used = 0;
        for (int c = 0; c < r->class_count; c++) used += mixture[c * (n + 1) + cut];
        if (used > 1e-4 && used < 1 - 1e-4)
            all[count++] = (Candidate){{.kind = SPLIT_CUT, .cut = cut}, fabs(used - 0.5)};
    }
    return keep_best(all, count, CUT_CANDIDATES);
}

/* Devices that the mixture uses in two places, split between them so that both sides weigh the same. */
static int device_candidates(const Relaxation *r, const double *mixture, Candidate *all)
{
    int n = r->problem->layer_count, count = 0;
    for (int d = 0; d < r->problem->device_count; d++) {
        int c = r->class_of[d];
        if (c < 0) continue;
        const double *starts = mixture + (size_t)c * (size_t)(n + 1);
        double total = 0, before = 0, best = 0;
        int best_cut = 0;
        if (d > 0 && r->class_size[c] > 1 && r->class_of[d - 1] == c) continue; /* equals: one is enough to try */
        for (int cut = 0; cut < n; cut++) total += starts[cut];
        for (int cut = 0; cut + 1 < n; cut++) {
            before += starts[cut];
            double side = before < total - before ? before : total - before;
            if (side > best) best = side, best_cut = cut + 1;
        }
        if (best > 1e-4)
            all[count++] =
                (Candidate){{.kind = SPLIT_DEVICE, .device = d, .cut = best_cut}, fabs(best / r->class_size[c] - 0.5)};
    }
    return keep_best(all, count, DEVICE_CANDIDATES);
}

/* The gain of a split: both children, a few iterations each. */
static double try_split(Prover *p, const Split *split, double parent, const double *price, double *scratch)
{
    double score = 1;
    for (int yes = 0; yes < 2; yes++) {
        Relaxation r;
        Prices prices;
        double *unused;
        p->splits[p->depth] = *split;
        p->splits[p->depth++].yes = yes;
        memcpy(scratch, price, (size_t)p->problem->device_count * sizeof *price);
        solve(p, &r, &prices, scratch, TRIAL_ITERATIONS, false, &unused);
        double gain = parent - deficit(p, &prices);
        if (is_refuted(p, &prices) && gain < parent) gain = parent;
        if (gain > 2 * fabs(parent)) gain = 2 * fabs(parent);
        score *= 1e-6 * fabs(parent) + (gain > 0 ? gain : 0);
        relaxation_free(&r);
        p->depth--;
    }
    return score;
}

static ProofAnswer refute(Prover *p, double *price, int *node);

static ProofAnswer branch(Prover *p, const Split *split, const double *price, int *node)
{
    int index = p->proof->node_count;
    ProofNode empty = {.split = *split};
    array_push(p->proof->nodes, p->proof->node_count, p->proof->node_capacity, empty);
    *node = index;
    double *child_price = memory_allocate((size_t)p->problem->device_count * sizeof *child_price);
    ProofAnswer answer = PROOF_DONE;
    for (int k = 0; k < 2 && answer == PROOF_DONE; k++) {
        int child;
        p->splits[p->depth] = *split;
        p->splits[p->depth++].yes = k == 0;
        memcpy(child_price, price, (size_t)p->problem->device_count * sizeof *price);
        answer = refute(p, child_price, &child);
        p->depth--;
        if (answer == PROOF_DONE) p->proof->nodes[index].child[k] = child;
    }
    free(child_price);
    return answer;
}

static ProofAnswer choose_and_branch(Prover *p, const Candidate *candidates, int count, double parent,
                                     const double *price, int *node)
{
    int best = 0;
    double *scratch = memory_allocate((size_t)p->problem->device_count * sizeof *scratch), most = -1;
    for (int k = 0; k < count && count > 1; k++) {
        double score = try_split(p, &candidates[k].split, parent, price, scratch);
        if (score > most) most = score, best = k;
    }
    free(scratch);
    return branch(p, &candidates[best].split, price, node);
}

/* A part of the cluster to ask about, if the open links leave several that the splits so far do not tell apart: -1 if
 * not. */
static int region_to_split(const Prover *p)
{
    const Problem *problem = p->problem;
    int regions = problem->region_count, found = -1, parts = 0;
    if (regions == 1) return -1;
    int *component = memory_allocate((size_t)regions * sizeof *component);
    relaxation_components(problem, p->cap, component);
    for (int q = 0; q < regions; q++) {
        bool inside = component[q] == q, used = false;
        for (int k = 0; k < p->depth && inside; k++)
            if (p->splits[k].kind == SPLIT_REGION) inside = (component[p->splits[k].region] == q) == p->splits[k].yes;
        for (int t = 0; t < problem->type_count && inside && !used; t++) used = component[problem->type_region[t]] == q;
        if (!used) continue;
        parts++;
        if (found < 0) found = q;
    }
    free(component);
    return parts > 1 ? found : -1;
}

/* Looks for a plan within the current splits, if that was asked for. */
static ProofAnswer search_node(Prover *p, Relaxation *r, const Prices *prices)
{
    if (!p->found) return PROOF_POSSIBLE;
    relaxation_solve(r, prices->price);
    SearchLimits limits = {.width = p->limits.width,
                           .best = p->limits.best,
                           .period_low = p->limits.period_low,
                           .deadline = p->limits.deadline};
    SearchResult result = search_plans(r, prices->price, limits, p->found);
    return result.found ? PROOF_FOUND : result.complete ? PROOF_DONE : PROOF_POSSIBLE;
}

static ProofAnswer refute(Prover *p, double *price, int *node)
{
    int region = region_to_split(p);
    if (region >= 0) return branch(p, &(Split){.kind = SPLIT_REGION, .region = region}, price, node);
    Relaxation r;
    Prices prices;
    double *mixture;
    solve(p, &r, &prices, price, ITERATIONS, true, &mixture);
    double parent = deficit(p, &prices);
    bool refuted = is_refuted(p, &prices);
    if (refuted) *node = add_leaf(p, &prices, price);
    Candidate *all = memory_allocate((size_t)(p->problem->layer_count + p->problem->device_count + 1) * sizeof *all);
    int count = 0;
    ProofAnswer answer = refuted ? PROOF_DONE : search_node(p, &r, &prices);
    if (answer == PROOF_DONE && !refuted) *node = -1; /* searched whole: no certificate, but no plan either */
    if (answer == PROOF_POSSIBLE && !p->limits.regions_only) {
        count = cut_candidates(&r, mixture, all);
        count += device_candidates(&r, mixture, all + count);
    }
    relaxation_free(&r);
    if (count > 0) {
        bool limit = p->proof->node_count >= p->limits.nodes || monotonic_seconds() > p->limits.deadline ||
                     p->depth + 1 >= MAX_DEPTH || (p->limits.work && *p->limits.work < 0);
        answer = limit ? PROOF_GAVE_UP : choose_and_branch(p, all, count, parent, price, node);
    }
    free(all);
    return answer;
}

ProofAnswer proof_make(Proof *proof, const Problem *problem, int64_t cap, bool sums, double target, double *price,
                       ProofLimits limits)
{
    memset(proof, 0, sizeof *proof);
    Prover *p = memory_allocate(sizeof *p);
    *p = (Prover){.found = limits.found,
                  .problem = problem,
                  .proof = proof,
                  .cap = cap,
                  .sums = sums,
                  .target = target,
                  .limits = limits};
    ProofAnswer answer = refute(p, price, &proof->root);
    free(p);
    return answer;
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
