#include "partitioner/replica_sums.h"

#include <math.h>

#include "base/integers.h"

bool replica_sums_has(const Plan *plan, int rank, int layer)
{
    for (int k = 0; k < plan->ranks[rank].stage_count; k++) {
        const PlanStage *stage = &plan->stages[plan->ranks[rank].stages[k]];
        if (stage->first_layer <= layer && layer <= stage->last_layer) return true;
    }
    return false;
}

const int *replica_sums_regions(const Plan *plan, const Costs *costs, Arena *arena)
{
    int *regions = arena_new_array(arena, int, (size_t)plan->rank_count);
    for (int r = 0; r < plan->rank_count; r++)
        regions[r] = costs->devices[costs_find_device(costs, plan->ranks[r].device)].region;
    return regions;
}

/* One message each to all other holders, one after another, once for the terms and once for the sums. */
int64_t replica_sums_layer_ns(const Plan *plan, const Costs *costs, const int *regions, int rank, int layer,
                              int64_t *latency_ns)
{
    double bytes = (double)costs->layers[layer].gradient_bytes * codecs_sum_share(plan->codecs), sent = 0;
    int n = costs->region_count;
    if (n == 0 || bytes == 0) return 0;
    for (int other = 0; other < plan->rank_count; other++) {
        if (plan->ranks[other].replica == plan->ranks[rank].replica || !replica_sums_has(plan, other, layer)) continue;
        int there = regions[rank] * n + regions[other], back = regions[other] * n + regions[rank];
        sent += bytes / plan->replica_count / fmin(costs->bandwidth_Bps[there], costs->bandwidth_Bps[back]);
        *latency_ns = larger(*latency_ns, (int64_t)ceil(fmax(costs->latency_s[there], costs->latency_s[back]) * 2e9));
    }
    return (int64_t)ceil(2e9 * sent);
}

void replica_sums_set(Plan *plan, const Costs *costs)
{
    Arena arena = {0};
    const int *regions = replica_sums_regions(plan, costs, &arena);
    plan->sum_ns = 0;
    for (int r = 0; r < plan->rank_count; r++) {
        PlanRank *rank = &plan->ranks[r];
        rank->sum_ns = rank->sum_latency_ns = 0;
        for (int l = 0; l < plan->layer_count && plan->replica_count > 1; l++)
            if (replica_sums_has(plan, r, l))
                rank->sum_ns += replica_sums_layer_ns(plan, costs, regions, r, l, &rank->sum_latency_ns);
        plan->sum_ns = larger(plan->sum_ns, rank->sum_ns + rank->sum_latency_ns);
    }
    arena_free(&arena);
}
