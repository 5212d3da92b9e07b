#include "partitioner/verify/verify_replicas.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/parts.h"
#include "partitioner/planner/replica_groups.h"
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
    for (int r = 0; r < plan->replica_count; r++) {
        const PlanReplica *replica = &plan->replicas[r];
        if (!same_question(plan, replica->pipeline))
            return refuse(diagnostics, "replicas", "one answers another question than the plan");
        microbatches += replica->microbatches;
    }
    return microbatches == plan->microbatches ||
           refuse(diagnostics, "replicas", "do not have all micro-batches of a step");
}

static bool same_numbers(const uint32_t *a, const uint32_t *b, uint32_t count)
{
    return a && b ? memcmp(a, b, count * sizeof *a) == 0 : a == b;
}

static bool same_norm(const SkyNormRound *a, const SkyNormRound *b)
{
    if (!a || !b) return a == b;
    return a->rank_count == b->rank_count && a->zone_count == b->zone_count && a->pair_count == b->pair_count &&
           same_numbers(a->zones, b->zones, a->rank_count) && same_numbers(a->sites, b->sites, a->rank_count) &&
           memcmp(a->message_ns, b->message_ns, a->pair_count * sizeof *a->message_ns) == 0;
}

/* Where the plan says how many rows a step has, the costs know it; they are shared as micro-batches are. */
bool verify_rows(const Plan *plan, const Costs *costs, Diagnostics *diagnostics)
{
    int64_t step = costs_step_rows(costs, plan->microbatches);
    for (int r = 0; r < plan->replica_count; r++) {
        const PlanReplica *replica = &plan->replicas[r];
        int64_t own = plan->replicas[0].rows < 0 ? -1 : step * replica->microbatches / plan->microbatches;
        if (replica->rows != own)
            return diagnostics_error(
                diagnostics, EXIT_BAD_INPUT, (Place){.object = "replicas"},
                step ? NULL : "write the costs again with --emit=costs, which says how many rows a micro-batch has",
                "replica %d has %lld rows: by the costs a step has %lld", r, (long long)replica->rows, (long long)step);
    }
    return true;
}

/* What the whole plan says of the question itself. */
static bool check_question(const Plan *plan, const Costs *costs, Diagnostics *diagnostics)
{
    char hash[33];
    if (strcmp(plan->costs_hash, hash_format(costs_hash(costs), hash)) != 0)
        return refuse(diagnostics, "costs_hash", "the plan was made for other costs");
    if (!row_samples_equal(&plan->rows, &costs->rows))
        return refuse(diagnostics, "rows", "are not the samples of the costs");
    if (!batch_choice_equal(&plan->batch, &costs->batch))
        return refuse(diagnostics, "batch", "is not the choice of the costs");
    return true;
}

bool verify_replicas(const Plan *plan, const Costs *costs, int *group_of, Diagnostics *diagnostics)
{
    replica_groups_of(plan, costs, group_of);
    if (!check_question(plan, costs, diagnostics) || !check_groups(plan, costs, group_of, diagnostics) ||
        !check_heads(plan, diagnostics))
        return false;
    for (int a = 0; a < PLAN_ALLOCATOR_COUNT; a++)
        if (plan->compared[a].known) return refuse(diagnostics, "compared", "is about each replica, not about all");
    for (int r = 0; r < plan->rank_count; r++)
        if (costs_find_device(costs, plan->ranks[r].device) < 0)
            return refuse(diagnostics, "ranks", "one is on a device that the costs do not have");
    Plan whole = *plan;
    whole.arena = (Arena){0};
    whole.norm = NULL;
    whole.norm_bytes = whole.norm_ns = 0;
    whole.ranks = arena_copy(&whole.arena, plan->ranks, (size_t)plan->rank_count * sizeof *plan->ranks);
    plan_join_times(&whole, costs);
    if (!replica_steps_overlap(&whole, costs, false, diagnostics)) {
        arena_free(&whole.arena);
        return false;
    }
    replica_steps_expect(&whole);
    bool same = whole.sum_ns == plan->sum_ns && whole.norm_ns == plan->norm_ns &&
                whole.norm_bytes == plan->norm_bytes && same_norm(whole.norm, plan->norm);
    for (int r = 0; r < plan->rank_count; r++)
        same = same && whole.ranks[r].sum_ns == plan->ranks[r].sum_ns &&
               whole.ranks[r].sum_latency_ns == plan->ranks[r].sum_latency_ns;
    bool step = whole.period_ns == plan->period_ns && whole.step_ns == plan->step_ns &&
                whole.worst_step_ns == plan->worst_step_ns && whole.padded_step_ns == plan->padded_step_ns &&
                whole.simulated_step_ns == plan->simulated_step_ns && fabs(whole.bubble - plan->bubble) < 1e-12;
    bool bound = whole.lower_bound_ns == plan->lower_bound_ns && whole.gap == plan->gap && !plan->proven_optimal;
    arena_free(&whole.arena);
    return (same || refuse(diagnostics, "sum_s", "the sums of gradients, or the norm, take another time")) &&
           (step || refuse(diagnostics, "step_s", "period, step and simulated step are not those of the replicas")) &&
           (bound || refuse(diagnostics, "lower_bound_s", "is not that of the slowest replica"));
}

/* ---- groupings ---- */

/* Its group; -1: none. */
static int group_in(const PlanGrouping *grouping, const char *device)
{
    int d = word_index(device, grouping->device, (size_t)grouping->device_count);
    return d < 0 ? -1 : grouping->group[d];
}

/* Pipelines of several leave out each other's devices, so that groupings say which were asked for. */
static bool may_use(const Plan *plan, const char *device)
{
    bool grouped = false;
    for (int r = 0; r < plan->replica_count; r++) grouped |= !plan_leaves_out(plan_pipeline(plan, r), device);
    for (int i = 0; i < plan->grouping_count && plan->replica_count > 1; i++)
        grouped |= group_in(&plan->groupings[i], device) >= 0;
    return grouped;
}

/* What the plan was asked for, as far as groupings depend on it. */
static PlanRequest request_of(const Plan *plan, const Costs *costs, Arena *arena)
{
    PlanRequest request = PLAN_REQUEST_DEFAULT;
    const char **without = arena_new_array(arena, const char *, (size_t)costs->device_count);
    int pins = 0;
    request.objective = plan->objective;
    request.schedule = plan->schedule_forced ? plan->schedule : PLAN_AUTO;
    request.recompute = plan->recompute;
    request.codecs = plan->codecs == CODECS_LOSSLESS ? 0 : plan->codecs;
    request.microbatches = plan->microbatches;
    for (int d = 0; d < costs->device_count; d++)
        if (!may_use(plan, costs->devices[d].name)) without[request.without_count++] = costs->devices[d].name;
    request.without = without;
    for (int r = 0; r < plan->replica_count; r++) pins += plan_pipeline(plan, r)->pin_count;
    PlanPin *pin = arena_new_array(arena, PlanPin, (size_t)pins);
    request.pins = pin;
    for (int r = 0; r < plan->replica_count; r++)
        for (int i = 0; i < plan_pipeline(plan, r)->pin_count; i++)
            pin[request.pin_count++] = plan_pipeline(plan, r)->pins[i];
    return request;
}

static bool same_groupings(const Plan *plan, const ReplicaGroups *found)
{
    bool same = plan->groupings_tried == found->tried && plan->groupings_all == found->all &&
                plan->grouping_count == found->best_count;
    for (int i = 0; same && i < found->best_count; i++) {
        const PlanGrouping *a = &plan->groupings[i], *b = &found->best[i];
        same = a->count == b->count && a->step_ns == b->step_ns && a->bound_ns == b->bound_ns &&
               a->device_count == b->device_count;
        for (int d = 0; same && d < b->device_count; d++) same = group_in(a, b->device[d]) == b->group[d];
    }
    return same;
}

/* The search runs again, as a plan does not say whether it was short of time, or how many replicas were asked for. */
bool verify_groupings(const Plan *plan, const Costs *costs, Diagnostics *diagnostics)
{
    FREED_WITH(arena_free) Arena arena = {0};
    Costs whole = *costs;
    PlanRequest request = request_of(plan, costs, &arena);
    bool same = plan->grouping_count == 0 && plan->groupings_tried == 0 && plan->replica_count <= 1;
    whole.rows = (RowSamples){0};
    for (int way = 0; way < 4 && plan->grouping_count > 0 && !same; way++) {
        int wanted = way & 1 ? plan->groupings[0].count : 0;
        if (wanted && plan->grouping_count > 1) continue;
        request.quick = way & 2;
        ReplicaGroups found = replica_groups_choose(&whole, &request, wanted, &arena);
        same = same_groupings(plan, &found);
    }
    return same || refuse(diagnostics, "groupings", "are not those that are found when devices are grouped again");
}
