#include "partitioner/replica_sums.h"

#include <math.h>
#include <stdlib.h>

/* Of the gradients of a stage's layers that rank `other` has too. */
static double common_bytes(const Plan *plan, const Costs *costs, int rank, int other)
{
    double bytes = 0;
    for (int a = 0; a < plan->ranks[rank].stage_count; a++)
        for (int b = 0; b < plan->ranks[other].stage_count; b++) {
            const PlanStage *here = &plan->stages[plan->ranks[rank].stages[a]],
                            *there = &plan->stages[plan->ranks[other].stages[b]];
            int first = here->first_layer > there->first_layer ? here->first_layer : there->first_layer;
            int last = here->last_layer < there->last_layer ? here->last_layer : there->last_layer;
            for (int l = first; l <= last; l++) bytes += (double)costs->layers[l].gradient_bytes;
        }
    return bytes;
}

/* What one message each to all other holders takes a rank, one after another, and until the last is there. */
static double round_s(const Plan *plan, const Costs *costs, int rank, const int *regions)
{
    double sent = 0, latency = 0;
    for (int other = 0; other < plan->rank_count; other++) {
        if (plan->ranks[other].replica == plan->ranks[rank].replica) continue;
        double bytes = common_bytes(plan, costs, rank, other);
        if (bytes == 0) continue;
        int there = regions[rank] * costs->region_count + regions[other];
        int back = regions[other] * costs->region_count + regions[rank];
        sent += bytes / plan->replica_count / fmin(costs->bandwidth_Bps[there], costs->bandwidth_Bps[back]);
        latency = fmax(latency, fmax(costs->latency_s[there], costs->latency_s[back]));
    }
    return sent + latency;
}

int64_t replica_sums_ns(const Plan *plan, const Costs *costs)
{
    double longest = 0;
    if (plan->replica_count < 2 || costs->region_count == 0) return 0;
    int *regions = memory_allocate((size_t)plan->rank_count * sizeof *regions);
    for (int r = 0; r < plan->rank_count; r++)
        regions[r] = costs->devices[costs_find_device(costs, plan->ranks[r].device)].region;
    for (int r = 0; r < plan->rank_count; r++) longest = fmax(longest, round_s(plan, costs, r, regions));
    free(regions);
    return (int64_t)ceil(2 * longest * 1e9);
}
