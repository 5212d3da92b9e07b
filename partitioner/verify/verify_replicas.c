#include "partitioner/verify/verify_replicas.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "partitioner/replicas.h"
#include "partitioner/schedule/replica_steps.h"

static bool refuse(Diagnostics *diagnostics, const char *object, const char *reason)
{
    return diagnostics_error(diagnostics, EXIT_BAD_INPUT, (Place){.object = object}, NULL, "%s", reason);
}

static bool check_groups(const Plan *plan, const Costs *costs, const int *group_of, Diagnostics *diagnostics)
{
    for (int d = 0; d < costs->device_count; d++)
        for (int r = group_of[d] + 1; r < plan->replica_count && group_of[d] >= 0; r++)
            if (!plan_leaves_out(plan_pipeline(plan, r), costs->devices[d].name))
                return refuse(diagnostics, "replicas", "a device was given to two of them");
    return true;
}

static bool same_question(const Plan *a, const Plan *b)
{
    bool same_costs = a->rows.microbatch_kinds || strcmp(a->costs_hash, b->costs_hash) == 0; /* replica_costs */
    return same_costs && strcmp(a->model_hash, b->model_hash) == 0 && strcmp(a->name, b->name) == 0 &&
           a->allocator == b->allocator && a->objective == b->objective && a->recompute == b->recompute &&
           a->codecs == b->codecs && a->schedule_forced == b->schedule_forced;
}

static bool check_heads(const Plan *plan, Diagnostics *diagnostics)
{
    int microbatches = 0;
    int64_t rows = 0;
    for (int r = 0; r < plan->replica_count; r++) {
        const PlanReplica *replica = &plan->replicas[r];
        if (!same_question(plan, replica->pipeline))
            return refuse(diagnostics, "replicas", "one answers another question than the plan");
        microbatches += replica->microbatches;
        rows += replica->rows;
    }
    for (int r = 0; r < plan->replica_count; r++) {
        const PlanReplica *replica = &plan->replicas[r];
        int64_t own = rows < 0 ? -1 : rows * replica->microbatches / microbatches;
        if (replica->rows != own) return refuse(diagnostics, "replicas", "rows are not shared as micro-batches are");
    }
    return microbatches == plan->microbatches ||
           refuse(diagnostics, "replicas", "do not have all micro-batches of a step");
}

bool verify_replicas(const Plan *plan, const Costs *costs, int *group_of, Diagnostics *diagnostics)
{
    replica_groups_of(plan, costs, group_of);
    if (!check_groups(plan, costs, group_of, diagnostics) || !check_heads(plan, diagnostics)) return false;
    for (int r = 0; r < plan->rank_count; r++)
        if (costs_find_device(costs, plan->ranks[r].device) < 0)
            return refuse(diagnostics, "ranks", "one is on a device that the costs do not have");
    Plan whole = *plan;
    whole.arena = (Arena){0};
    whole.norm = NULL;
    whole.norm_bytes = whole.norm_ns = 0;
    whole.ranks = arena_copy(&whole.arena, plan->ranks, (size_t)plan->rank_count * sizeof *plan->ranks);
    plan_join_times(&whole, costs);
    if (!replica_steps_overlap(&whole, costs, diagnostics)) {
        arena_free(&whole.arena);
        return false;
    }
    replica_steps_expect(&whole);
    bool same = whole.sum_ns == plan->sum_ns && whole.norm_ns == plan->norm_ns && whole.norm_bytes == plan->norm_bytes;
    for (int r = 0; r < plan->rank_count; r++)
        same = same && whole.ranks[r].sum_ns == plan->ranks[r].sum_ns &&
               whole.ranks[r].sum_latency_ns == plan->ranks[r].sum_latency_ns;
    bool step = whole.period_ns == plan->period_ns && whole.step_ns == plan->step_ns &&
                whole.simulated_step_ns == plan->simulated_step_ns && fabs(whole.bubble - plan->bubble) < 1e-12;
    bool bound = whole.lower_bound_ns == plan->lower_bound_ns && whole.gap == plan->gap && !plan->proven_optimal;
    arena_free(&whole.arena);
    return (same || refuse(diagnostics, "sum_s", "the sums of gradients, or the norm, take another time")) &&
           (step || refuse(diagnostics, "step_s", "period, step and simulated step are not those of the replicas")) &&
           (bound || refuse(diagnostics, "lower_bound_s", "is not that of the slowest replica"));
}

bool verify_groupings(const Plan *plan, const Costs *costs, Diagnostics *diagnostics)
{
    int *group_of = memory_allocate((size_t)costs->device_count * sizeof *group_of);
    const char *wrong = NULL;
    for (int i = 0; i < plan->grouping_count && !wrong; i++) {
        const PlanGrouping *grouping = &plan->groupings[i];
        for (int d = 0; d < costs->device_count; d++) group_of[d] = -1;
        for (int d = 0; d < grouping->device_count; d++) {
            int device = costs_find_device(costs, grouping->device[d]);
            if (device < 0)
                wrong = "one has a device that the costs do not have";
            else
                group_of[device] = grouping->group[d];
        }
        int64_t bound = replica_groups_bound_ns(costs, group_of, grouping->count, plan->microbatches);
        if (!wrong && grouping->bound_ns != bound) wrong = "the bound of one is another";
        if (!wrong && grouping->step_ns < bound) wrong = "the step of one is below its bound";
    }
    free(group_of);
    return !wrong || refuse(diagnostics, "groupings", wrong);
}
