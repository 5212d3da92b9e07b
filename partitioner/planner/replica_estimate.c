#include "partitioner/planner/replica_estimate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/integers.h"
#include "partitioner/replicas.h"
#include "partitioner/solve/allocate.h"
#include "partitioner/solve/optimal.h"
#include "partitioner/solve/recompute.h"

static const double EXACT_SECONDS = 1e9; /* counted: such problems take milliseconds */

/* ---- kinds of devices ---- */

typedef struct Kind {
    int first, type, site, region; /* first: the lowest device */
    int64_t work;
} Kind;

static int by_place_and_speed(const void *a, const void *b)
{
    const Kind *x = a, *y = b;
    if (x->site != y->site) return x->site - y->site;
    if (x->region != y->region) return x->region - y->region;
    return x->work != y->work ? (x->work < y->work ? -1 : 1) : x->first - y->first;
}

/* Pins are about devices, so that no two of them are alike then. */
static void find_kinds(ReplicaEstimator *e, const Problem *p)
{
    size_t devices = (size_t)e->costs.device_count;
    Kind *kinds = arena_new_array(&e->arena, Kind, devices);
    e->kind_of = arena_new_array(&e->arena, int, devices);
    e->kind_size = arena_new_array(&e->arena, int, devices);
    e->kind_region = arena_new_array(&e->arena, int, devices);
    e->kind_link_s = arena_new_array(&e->arena, double, devices);
    e->kind_speed = arena_new_array(&e->arena, double, devices);
    for (int d = 0; d < e->costs.device_count; d++) {
        const DeviceCost *device = &e->costs.devices[d];
        int type = p->type_of[d];
        if (e->request->pin_count == 0 && p->first_device[type] < d) continue;
        kinds[e->kind_count++] = (Kind){d, type, e->costs.sites.count ? device->site : 0, device->region,
                                        problem_work(p, type, 0, p->layer_count)};
    }
    qsort(kinds, (size_t)e->kind_count, sizeof *kinds, by_place_and_speed);
    for (int k = 0; k < e->kind_count; k++) {
        e->kind_region[k] = p->type_region[kinds[k].type];
        for (int other = 0, n = e->costs.region_count; other < n; other++) {
            double there = e->costs.bandwidth_Bps[kinds[k].region * n + other], seconds = 1 / there;
            if (other == 0 || seconds < e->kind_link_s[k]) e->kind_link_s[k] = seconds;
        }
        e->kind_speed[k] = 1 / (double)larger(kinds[k].work, 1);
        for (int d = 0; d < e->costs.device_count; d++) {
            if (e->request->pin_count ? d != kinds[k].first : p->type_of[d] != kinds[k].type) continue;
            e->kind_of[d] = k;
            e->kind_size[k]++;
        }
    }
}

void replica_estimator_open(ReplicaEstimator *e, const Costs *costs, const PlanRequest *request, Watch *watch)
{
    Problem problem;
    FREED_WITH(diagnostics_free) Diagnostics ignored = {0};
    *e = (ReplicaEstimator){.costs = *costs, .request = request, .watch = watch};
    e->costs.codecs = request->codecs;
    e->costs.devices = arena_new_array(&e->arena, DeviceCost, (size_t)costs->device_count);
    e->costs.device_count = 0;
    for (int d = 0; d < costs->device_count; d++)
        if (!plan_request_without(request, costs->devices[d].name))
            e->costs.devices[e->costs.device_count++] = costs->devices[d];
    e->microbatches = request->microbatches > 0 ? request->microbatches : costs->microbatches;
    e->gradients = arena_new_array(&e->arena, struct ReplicaGradients, PLAN_MOST_REPLICAS + 1);
    if (problem_create(&problem, &e->costs, request->objective, request->schedule, 1, &ignored)) {
        find_kinds(e, &problem);
        problem_free(&problem);
    }
}

void replica_estimator_close(ReplicaEstimator *e)
{
    free(e->known);
    arena_free(&e->arena);
}

/* Of so many replicas, as if each had an equal part of the step. */
static const struct ReplicaGradients *gradients_of(ReplicaEstimator *e, int replicas)
{
    struct ReplicaGradients *g = &e->gradients[replicas];
    if (g->layers) return g;
    g->layers = replica_layers(&e->costs, replicas, e->microbatches, (e->microbatches + replicas - 1) / replicas,
                               e->request->codecs, &e->arena);
    g->bytes = arena_new_array(&e->arena, int64_t, (size_t)e->costs.layer_count + 1);
    for (int l = 0; l < e->costs.layer_count; l++) g->bytes[l + 1] = g->bytes[l] + g->layers[l].summed_bytes;
    return g;
}

/* ---- a group ---- */

/* The costs with as many devices of each kind: its first ones. */
static Costs group_costs(ReplicaEstimator *e, const int *count, int replicas, int *kinds, Arena *arena)
{
    Costs costs = e->costs;
    double share = replicas > 1 ? codecs_sum_share(e->request->codecs) * 2.0 * (replicas - 1) / replicas : 0;
    costs.layers = gradients_of(e, replicas)->layers;
    costs.devices = arena_new_array(arena, DeviceCost, (size_t)e->costs.device_count);
    costs.device_count = 0;
    for (int k = 0; k < e->kind_count; k++)
        for (int d = 0, taken = 0; d < e->costs.device_count && taken < count[k]; d++) {
            if (e->kind_of[d] != k) continue;
            kinds[costs.device_count] = k;
            costs.devices[costs.device_count] = e->costs.devices[d];
            costs.devices[costs.device_count++].sum_s = share * e->kind_link_s[k];
            taken++;
        }
    return costs;
}

static void take_over(ReplicaEstimator *e, GroupEstimate *g, const Problem *p, const Allocation *a, const int *kinds)
{
    AllocationValue value = allocation_settle(p, a);
    g->fits = a->stage_count > 0 && value.fits;
    if (!g->fits) return;
    int64_t sums = 0, most = 0;
    for (int s = 0; s < a->stage_count; s++) { /* those with the updates: they are added for the grouping */
        const DeviceCost *device = &p->costs->devices[a->device[s]];
        const int64_t *summed = gradients_of(e, g->replicas)->bytes;
        int64_t bytes = summed[a->end[s]] - summed[allocation_start(a, s)];
        int64_t update = problem_update(p, p->type_of[a->device[s]], allocation_start(a, s), a->end[s]);
        sums = larger(sums, update);
        most = larger(most, update - (int64_t)(device->sum_s * (double)bytes * 1e9));
    }
    g->period_ns = larger(value.period, 1);
    g->fill_ns = value.sum + value.update - sums + most - value.period;
    g->stage_count = a->stage_count;
    g->kind = arena_new_array(&e->arena, int, (size_t)a->stage_count);
    g->end = arena_copy(&e->arena, a->end, (size_t)a->stage_count * sizeof *g->end);
    g->slack_ns = arena_new_array(&e->arena, int64_t, (size_t)a->stage_count);
    int64_t slack = 0;
    for (int s = 0; s < a->stage_count; s++) {
        int type = p->type_of[a->device[s]], start = allocation_start(a, s);
        g->kind[s] = kinds[a->device[s]];
        g->slack_ns[s] = slack;
        slack += problem_work(p, type, start, a->end[s]) - problem_forward(p, type, start, a->end[s]);
    }
}

static void pin(const ReplicaEstimator *e, Problem *p)
{
    for (int i = 0; i < e->request->pin_count; i++) {
        int device = costs_find_device(p->costs, e->request->pins[i].device);
        if (device >= 0) problem_pin(p, e->request->pins[i].first_layer, e->request->pins[i].last_layer, device);
    }
}

/* To the optimum, from an allocation that need not fit. */
static void solve(const Problem *p, Allocation *allocation)
{
    FREED_WITH(arena_free) Arena arena = {0};
    Allocation best = allocation_create(&arena, p);
    const Allocation *start = allocation_evaluate(p, allocation).fits ? allocation : NULL;
    OptimalResult result =
        (recompute_matters(p) ? recompute_solve : optimal_solve)(p, start, EXACT_SECONDS, &best, NULL);
    if (result.found) allocation_copy(allocation, &best);
}

static void find(ReplicaEstimator *e, GroupEstimate *g)
{
    Problem problem;
    FREED_WITH(arena_free) Arena arena = {0};
    FREED_WITH(diagnostics_free) Diagnostics ignored = {0};
    const PlanRequest *request = e->request;
    int *kinds = arena_new_array(&arena, int, (size_t)e->costs.device_count);
    Costs costs = group_costs(e, g->count, g->replicas, kinds, &arena);
    if (costs.device_count > 0 && problem_create_recomputing(&problem, &costs, request->objective, request->schedule,
                                                             g->microbatches, request->recompute, NULL, &ignored)) {
        problem.watch = e->watch;
        pin(e, &problem);
        Allocation allocation = allocation_create(&arena, &problem);
        allocate_heuristic(&problem, &allocation);
        if (e->exact) solve(&problem, &allocation);
        take_over(e, g, &problem, &allocation, kinds);
        problem_free(&problem);
    }
}

const GroupEstimate *replica_estimate(ReplicaEstimator *e, const int *count, int microbatches, int replicas)
{
    enum { MANY = 4 }; /* what is sent changes little with more */
    size_t bytes = (size_t)e->kind_count * sizeof *count;
    if (replicas > MANY) replicas = MANY;
    for (int i = 0; i < e->known_count; i++)
        if (e->known[i]->microbatches == microbatches && e->known[i]->replicas == replicas &&
            memcmp(e->known[i]->count, count, bytes) == 0)
            return e->known[i];
    GroupEstimate *g = arena_new(&e->arena, GroupEstimate);
    *g = (GroupEstimate){
        .count = arena_copy(&e->arena, count, bytes), .microbatches = microbatches, .replicas = replicas};
    find(e, g);
    array_push(e->known, e->known_count, e->known_capacity, g);
    return g;
}

/* ---- sums of gradients ---- */

/* What a stage and all stages of another group have in common takes on their links: seconds, and the latency. */
static double send_s(ReplicaEstimator *e, int region, int start, int end, const GroupEstimate *other, int groups,
                     double *latency)
{
    const Costs *costs = &e->costs;
    const int64_t *summed = gradients_of(e, groups)->bytes;
    double seconds = 0;
    for (int s = 0, from = 0; s < other->stage_count; from = other->end[s++]) {
        int first = from > start ? from : start, last = other->end[s] < end ? other->end[s] : end;
        int64_t bytes = first < last ? summed[last] - summed[first] : 0;
        if (bytes == 0) continue;
        int there = region * costs->region_count + e->kind_region[other->kind[s]],
            back = e->kind_region[other->kind[s]] * costs->region_count + region;
        seconds += (double)bytes / groups / fmin(costs->bandwidth_Bps[there], costs->bandwidth_Bps[back]);
        *latency = fmax(*latency, fmax(costs->latency_s[there], costs->latency_s[back]));
    }
    return codecs_sum_share(e->request->codecs) * seconds;
}

int64_t replica_estimate_sums(ReplicaEstimator *e, const GroupEstimate *const *groups, int group_count)
{
    double further = 0;
    if (e->costs.region_count == 0) return 0;
    for (int g = 0; g < group_count; g++)
        for (int s = 0, start = 0; s < groups[g]->stage_count; start = groups[g]->end[s++]) {
            double sent = 0, latency = 0;
            for (int other = 0; other < group_count; other++)
                if (other != g)
                    sent += send_s(e, e->kind_region[groups[g]->kind[s]], start, groups[g]->end[s], groups[other],
                                   group_count, &latency);
            further = fmax(further, 2 * (sent + latency) - 1e-9 * (double)groups[g]->slack_ns[s]);
        }
    return (int64_t)ceil(further * 1e9);
}
