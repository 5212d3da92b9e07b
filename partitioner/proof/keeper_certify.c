#include "partitioner/proof/keeper_certify.h"

#include <stdlib.h>
#include <string.h>

#include "partitioner/periods.h"

/* No plan takes longer, nor does its update. */
static const int64_t LONGEST = INT64_MAX / 8;

typedef struct KeeperCertifier {
    KeeperFrame frame;
    KeeperTrail *trail;
    const CertifyRequest *request;
    Arena *arena;
    Certificate *certificate;
    int branch_capacity, interval_capacity, node_capacity;
    bool timed_out;
} KeeperCertifier;

/* ---- which nodes ---- */

static int by_place(const void *a, const void *b)
{
    const KeeperNode *x = &(*(const KeeperStep *const *)a)->node, *y = &(*(const KeeperStep *const *)b)->node;
    return x->low != y->low ? x->low - y->low : x->least_in_flight - y->least_in_flight;
}

/* Nodes whose own bound is enough, and those where the search ended; in the order of branches. */
static KeeperStep **closing_steps(KeeperCertifier *c, int *count)
{
    const KeeperTrail *trail = c->trail;
    KeeperStep **closing = arena_new_array(c->arena, KeeperStep *, (size_t)trail->count);
    bool *closed = arena_new_array(c->arena, bool, (size_t)trail->count); /* itself, or what it is a part of */
    int64_t enough = c->request->infeasible ? INT64_MAX : c->request->bound;
    *count = 0;
    for (int i = 0; i < trail->count; i++) {
        KeeperStep *step = &trail->steps[i];
        closed[i] = step->parent >= 0 && closed[step->parent];
        if (closed[i] || (step->split && step->node.bound < enough)) continue;
        closed[i] = true;
        closing[(*count)++] = step;
    }
    if (*count > 0) qsort(closing, (size_t)*count, sizeof(KeeperStep *), by_place);
    return closing;
}

/* What a node that was not examined goes by is what its parent's prices proved. */
static Evidence *evidence_of(const KeeperCertifier *c, KeeperStep *step)
{
    while (step->evidence.count == 0 && step->parent >= 0) step = &c->trail->steps[step->parent];
    return &step->evidence;
}

/* ---- branches ---- */

static void add_branch(KeeperCertifier *c, const KeeperNode *node, int intervals)
{
    Certificate *all = c->certificate;
    CertificateBranch branch = {node->low, node->high, node->least_in_flight, node->most_in_flight, intervals};
    array_push(all->branches, all->branch_count, c->branch_capacity, branch);
}

/* No first stage ends where the device's own layers would be cut off from it. */
static void add_gap(KeeperCertifier *c, int low, int high)
{
    const Problem *p = c->frame.problem;
    Certificate *all = c->certificate;
    if (low > high) return;
    KeeperNode node = {.low = low,
                       .high = high,
                       .least_in_flight = problem_in_flight(p, 2),
                       .most_in_flight = problem_in_flight(p, p->device_count + 1)};
    CertificateNode leaf = {.leaf = true, .path = -1};
    leaf.price = arena_new_array(c->arena, int64_t, (size_t)all->price_count);
    CertificateInterval interval = {0, LONGEST, all->node_count, -1, LONGEST};
    add_branch(c, &node, 1);
    array_push(all->intervals, all->interval_count, c->interval_capacity, interval);
    array_push(all->nodes, all->node_count, c->node_capacity, leaf);
}

/* The first end starts before any cut: what its splits ask has one answer. */
static int skip_first_end(const Certificate *part, int node)
{
    while (!part->nodes[node].leaf && part->nodes[node].kind == CERTIFICATE_DEVICE &&
           strcmp(part->nodes[node].device, KEEPER_FIRST_END) == 0)
        node = part->nodes[node].yes;
    return node;
}

/* The prices of the ends (the first end's comes last) are paid in any chain, so they prove nothing. */
static void drop_ends(CertificateNode *leaf, int first, int last)
{
    int64_t both = leaf->price[first] + leaf->price[last];
    if (leaf->path >= 0) leaf->path -= both;
    leaf->total -= both;
    leaf->price[first] = leaf->price[last] = 0;
}

static void append(KeeperCertifier *c, const KeeperNode *node, const Certificate *part)
{
    Certificate *all = c->certificate;
    int base = all->node_count, last = c->request->device_of[c->frame.device];
    add_branch(c, node, part->interval_count);
    for (int i = 0; i < part->interval_count; i++) {
        CertificateInterval interval = part->intervals[i];
        interval.root = base + skip_first_end(part, interval.root);
        array_push(all->intervals, all->interval_count, c->interval_capacity, interval);
    }
    for (int i = 0; i < part->node_count; i++) {
        CertificateNode copy = part->nodes[i];
        if (copy.leaf) {
            drop_ends(&copy, all->price_count, last);
        } else {
            copy.yes = base + skip_first_end(part, copy.yes);
            copy.no = base + skip_first_end(part, copy.no);
        }
        array_push(all->nodes, all->node_count, c->node_capacity, copy);
    }
}

static bool certify_step_of(KeeperCertifier *c, KeeperStep *step, int parts)
{
    FREED_WITH(arena_free) Arena arena = {0};
    Costs costs;
    FREED_WITH(problem_free) Problem problem = {0};
    if (!keeper_create_node(&c->frame, &step->node, &costs, &arena, &problem)) return false;
    CertifyRequest request = *c->request;
    int *device_of = arena_new_array(&arena, int, (size_t)problem.device_count);
    for (int d = 0; d < problem.device_count; d++)
        device_of[d] = c->request->device_of[keeper_device_here(&c->frame, d)];
    device_of[0] = request.price_count++; /* a place of its own */
    request.device_of = device_of;
    request.evidence = evidence_of(c, step);
    request.work /= parts;
    if (request.infeasible) request.bound = period_largest(&problem) + 1;
    Certificate *part = certify(&problem, &request, c->arena, &c->timed_out);
    if (part) {
        if (part->bound_ns < c->certificate->bound_ns) c->certificate->bound_ns = part->bound_ns;
        append(c, &step->node, part);
    }
    return part != NULL;
}

static bool certify_branches(KeeperCertifier *c)
{
    int count, cut = 1;
    KeeperStep **closing = closing_steps(c, &count);
    for (int i = 0; i < count; i++) {
        const KeeperNode *node = &closing[i]->node;
        add_gap(c, cut, node->low - 1);
        cut = node->high + 1;
        if (!certify_step_of(c, closing[i], count)) return false;
    }
    add_gap(c, cut, c->frame.problem->layer_count - 1);
    return true;
}

/* The arrays grew by malloc: into the arena they go. */
static void settle(KeeperCertifier *c)
{
    Certificate *all = c->certificate;
    FREED CertificateBranch *branches = all->branches;
    FREED CertificateInterval *intervals = all->intervals;
    FREED CertificateNode *nodes = all->nodes;
    all->branches = arena_copy(c->arena, branches, (size_t)all->branch_count * sizeof *branches);
    all->intervals = arena_copy(c->arena, intervals, (size_t)all->interval_count * sizeof *intervals);
    all->nodes = arena_copy(c->arena, nodes, (size_t)all->node_count * sizeof *nodes);
}

Certificate *keeper_certify(const Problem *problem, int device, KeeperTrail *trail, const CertifyRequest *request,
                            Arena *arena, bool *timed_out)
{
    KeeperCertifier c = {.trail = trail, .request = request, .arena = arena};
    c.certificate = arena_new(arena, Certificate);
    c.certificate->price_count = request->price_count;
    c.certificate->bound_ns = request->bound;
    keeper_open(&c.frame, problem, device, arena);
    bool ok = certify_branches(&c);
    settle(&c);
    *timed_out |= c.timed_out;
    return ok ? c.certificate : NULL;
}
