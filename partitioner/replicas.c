#include "partitioner/replicas.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/integers.h"
#include "partitioner/plan_norm.h"
#include "partitioner/replica_sums.h"

const Plan *plan_pipeline(const Plan *plan, int replica)
{
    return plan->replica_count > 1 ? plan->replicas[replica].pipeline : plan;
}

void plan_set_alone(Plan *plan, int64_t rows)
{
    plan->replica_count = 1;
    plan->replicas = arena_new(&plan->arena, PlanReplica);
    plan->replicas[0] = (PlanReplica){.rank_count = plan->rank_count,
                                      .stage_count = plan->stage_count,
                                      .rows = rows,
                                      .microbatches = plan->microbatches};
}

/* ---- where there may be several ---- */

const char *replicas_refused(const Costs *costs, unsigned codecs)
{
    const SiteCosts *sites = &costs->sites;
    if (costs->keep_inputs || costs->keep_labels ||
        (sites->count && (sites->keep_inputs >= 0 || sites->keep_labels >= 0)))
        return "keep: leaves raw data on one device, which serves one pipeline";
    if (sites->count > 1) return "replicas across sites are not built yet";
    if (codecs & ~CODECS_LOSSLESS && codecs_of_sums(codecs) == CODEC_NONE)
        return "codecs cannot be chosen for each link, because all replicas compute the same (--codec q8 is one)";
    return NULL;
}

const char *replicas_excluded(const Costs *costs, unsigned codecs, PlanAllocator allocate, PlanObjective objective,
                              bool pinned)
{
    const char *refused = replicas_refused(costs, codecs);
    if (codecs & ~CODECS_LOSSLESS) return "lossy codecs would code its gradients, too";
    if (refused) return refused;
    if (allocate != PLAN_OPTIMAL) return "--allocate asks for one allocation";
    if (objective == PLAN_OBJECTIVE_PERIOD) return "the period does not count sums of gradients";
    return pinned ? "--pin puts layers on one device, not on one of each pipeline" : NULL;
}

/* ---- dealing ---- */

void plan_deal(const int *microbatches, int count, int replica, uint32_t *dealt)
{
    int64_t total = 0;
    FREED int64_t *given = memory_allocate((size_t)count * sizeof *given);
    for (int r = 0; r < count; r++) total += microbatches[r];
    for (int64_t m = 0; m < total; m++) {
        /* To the one that lacks most of its share of the first m + 1; of several the first. */
        int64_t most = INT64_MIN;
        int next = 0;
        for (int r = 0; r < count; r++) {
            int64_t lack = (m + 1) * microbatches[r] - given[r] * total;
            if (lack <= most || given[r] == microbatches[r]) continue;
            most = lack;
            next = r;
        }
        if (next == replica) dealt[given[next]] = (uint32_t)m;
        given[next]++;
    }
}

bool plan_deal_again(const Plan *plan, int *microbatches)
{
    int first = 0, last = 0;
    for (int r = 1; r < plan->replica_count; r++) {
        int64_t ends = plan->replicas[r].pipeline->simulated_step_ns;
        if (ends < plan->replicas[first].pipeline->simulated_step_ns) first = r;
        if (ends > plan->replicas[last].pipeline->simulated_step_ns) last = r;
    }
    const Plan *soon = plan->replicas[first].pipeline, *late = plan->replicas[last].pipeline;
    int64_t both = larger(1, soon->period_ns + late->period_ns);
    int64_t moved = (late->simulated_step_ns - soon->simulated_step_ns + both / 2) / both; /* to nearest */
    if (moved >= microbatches[last]) moved = microbatches[last] - 1;
    microbatches[first] += (int)moved;
    microbatches[last] -= (int)moved;
    return moved > 0;
}

/* ---- what pipelines are planned by ---- */

/* Seconds a byte over the best link to a device of another group; 0: there is none, or links are free. */
static double best_link_s(const Costs *costs, const int *group_of, int group, int device)
{
    double best = INFINITY;
    int n = costs->region_count, own = costs->devices[device].region;
    for (int d = 0; d < costs->device_count && n > 0; d++) {
        int other = costs->devices[d].region;
        if (group_of[d] < 0 || group_of[d] == group) continue;
        best = fmin(best, 1 / fmin(costs->bandwidth_Bps[own * n + other], costs->bandwidth_Bps[other * n + own]));
    }
    return isfinite(best) ? best : 0;
}

LayerCost *replica_layers(const Costs *costs, int replicas, int microbatches, int most, unsigned codecs, Arena *arena)
{
    LayerCost *layers = arena_copy(arena, costs->layers, (size_t)costs->layer_count * sizeof *layers);
    for (int l = 0; l < costs->layer_count; l++)
        layers[l].summed_bytes = replica_sums_bytes(&layers[l], replicas, microbatches, most, codecs);
    return layers;
}

/* Every other replica is sent a count-th of what a rank holds, and sends as much, once for the terms and once for the
 * sums. */
Costs replica_costs(const Costs *asked, const int *group_of, const int *microbatches, int count, int group,
                    unsigned codecs, Arena *arena)
{
    Costs costs = *asked;
    int all = 0, most = 0;
    for (int g = 0; g < count; g++) {
        all += microbatches[g];
        if (microbatches[g] > most) most = microbatches[g];
    }
    costs.rows = (RowSamples){0};
    costs.layers = replica_layers(asked, count, all, most, codecs, arena);
    costs.devices = arena_copy(arena, asked->devices, (size_t)asked->device_count * sizeof *costs.devices);
    for (int d = 0; d < costs.device_count; d++)
        if (group_of[d] == group)
            costs.devices[d].sum_s =
                codecs_sum_share(codecs) * 2 * (count - 1) / count * best_link_s(asked, group_of, group, d);
    return costs;
}

/* ---- joining ---- */

static void join_head(Plan *plan, const Plan *first)
{
    plan->name = first->name;
    plan->model_hash = first->model_hash;
    plan->allocator = first->allocator;
    plan->objective = first->objective;
    plan->schedule = first->schedule;
    plan->schedule_forced = first->schedule_forced;
    plan->recompute = first->recompute;
    plan->codecs = first->codecs;
    plan->layer_count = first->layer_count;
    plan->processors = first->processors;
}

static PlanInstruction *move_instructions(Plan *plan, const PlanRank *rank, int stages)
{
    PlanInstruction *moved =
        arena_copy(&plan->arena, rank->instructions, (size_t)rank->instruction_count * sizeof *moved);
    for (int i = 0; i < rank->instruction_count; i++) moved[i].stage += stages;
    return moved;
}

/* Appends everything of one pipeline, after the stages and ranks of those before it. */
static void append(Plan *plan, const Plan *part, int replica)
{
    int stages = plan->stage_count, ranks = plan->rank_count;
    for (int k = 0; k < part->stage_count; k++) {
        PlanStage *stage = &plan->stages[plan->stage_count++];
        *stage = part->stages[k];
        stage->rank += ranks;
    }
    for (int r = 0; r < part->rank_count; r++) {
        PlanRank *rank = &plan->ranks[plan->rank_count++];
        *rank = part->ranks[r];
        rank->replica = replica;
        rank->stages = arena_copy(&plan->arena, rank->stages, (size_t)rank->stage_count * sizeof *rank->stages);
        for (int k = 0; k < rank->stage_count; k++) rank->stages[k] += stages;
        rank->instructions = move_instructions(plan, rank, stages);
    }
    for (int l = 0; l < part->link_count; l++) {
        PlanLink *link = &plan->links[plan->link_count++];
        *link = part->links[l];
        link->from += stages;
        link->to += stages;
    }
    for (int c = 0; c < part->crossing_count; c++) {
        PlanCrossing *crossing = &plan->crossings[plan->crossing_count++];
        *crossing = part->crossings[c];
        crossing->to_stage += stages;
        if (crossing->from_stage >= 0) crossing->from_stage += stages;
    }
    plan->microbatches += part->microbatches;
    plan->timed_out |= part->timed_out;
}

static void make_room(Plan *plan, const Plan *parts, int count)
{
    size_t stages = 0, ranks = 0, crossings = 0;
    for (int r = 0; r < count; r++) {
        stages += (size_t)parts[r].stage_count;
        ranks += (size_t)parts[r].rank_count;
        crossings += (size_t)parts[r].crossing_count;
    }
    plan->stages = arena_new_array(&plan->arena, PlanStage, stages);
    plan->links = arena_new_array(&plan->arena, PlanLink, stages);
    plan->ranks = arena_new_array(&plan->arena, PlanRank, ranks);
    plan->crossings = arena_new_array(&plan->arena, PlanCrossing, crossings);
}

/* What the sums take beyond what the replica counted for its own part of them. */
static int64_t further_ns(const Plan *plan, const Plan *part)
{
    int64_t counted = 0;
    for (int r = 0; r < part->rank_count; r++) {
        int64_t sum = 0;
        for (int k = 0; k < part->ranks[r].stage_count; k++) sum += part->stages[part->ranks[r].stages[k]].sum_ns;
        counted = larger(counted, sum);
    }
    return plan->sum_ns > counted ? plan->sum_ns - counted : 0;
}

/* A replica's time on its own counts a round on the norm among its ranks only. The bound is that of the replica which
 * cannot be done sooner. */
void plan_join_times(Plan *plan, const Costs *costs)
{
    double busy = 0;
    plan_norm_set(plan, costs);
    replica_sums_set(plan, costs);
    plan->period_ns = plan->step_ns = plan->simulated_step_ns = plan->lower_bound_ns = 0;
    for (int r = 0; r < plan->replica_count; r++) {
        const Plan *part = plan->replicas[r].pipeline;
        int64_t period = (part->period_ns * part->microbatches + plan->microbatches - 1) / plan->microbatches;
        plan->period_ns = larger(plan->period_ns, period);
        int64_t further = further_ns(plan, part);
        plan->step_ns = larger(plan->step_ns, part->step_ns + further);
        plan->simulated_step_ns =
            larger(plan->simulated_step_ns, part->simulated_step_ns - part->norm_ns + plan->norm_ns + further);
        busy += (1 - part->bubble) * (double)part->simulated_step_ns * part->rank_count;
        if (plan->objective == PLAN_OBJECTIVE_STEP)
            plan->lower_bound_ns = larger(plan->lower_bound_ns, part->lower_bound_ns);
    }
    plan->bubble = 1 - busy / ((double)plan->simulated_step_ns * plan->rank_count);
    int64_t value = plan_value_ns(plan);
    plan->gap = value > 0 ? (double)(value - plan->lower_bound_ns) / (double)value : 0;
}

void plan_join(Plan *plan, Plan *pipelines, int count, int64_t rows, const Costs *costs)
{
    memset(plan, 0, sizeof *plan);
    Plan *parts = arena_copy(&plan->arena, pipelines, (size_t)count * sizeof *parts);
    plan->replica_count = count;
    plan->replicas = arena_new_array(&plan->arena, PlanReplica, (size_t)count);
    char hash[33];
    join_head(plan, &parts[0]);
    plan->costs_hash = "";
    if (parts[0].costs_hash[0]) /* else it is only compared */
        plan->costs_hash = arena_string(&plan->arena, hash_format(costs_hash(costs), hash));
    make_room(plan, parts, count);
    for (int r = 0; r < count; r++) {
        plan->replicas[r] = (PlanReplica){.first_rank = plan->rank_count,
                                          .rank_count = parts[r].rank_count,
                                          .first_stage = plan->stage_count,
                                          .stage_count = parts[r].stage_count,
                                          .microbatches = parts[r].microbatches,
                                          .pipeline = &parts[r]};
        append(plan, &parts[r], r);
    }
    for (int r = 0; r < count; r++)
        parts[r].replicas[0].rows = plan->replicas[r].rows =
            rows < 0 ? -1 : rows * parts[r].microbatches / plan->microbatches;
    plan->rows = row_samples_copy(&costs->rows, &plan->arena);
    plan->batch = batch_choice_copy(&costs->batch, &plan->arena);
    plan_join_times(plan, costs);
}

/* ---- groups, and a bound for any plan of theirs ---- */

void replica_groups_of(const Plan *plan, const Costs *costs, int *group_of)
{
    for (int d = 0; d < costs->device_count; d++) {
        group_of[d] = -1;
        for (int r = 0; r < plan->replica_count && group_of[d] < 0; r++)
            if (!plan_leaves_out(plan_pipeline(plan, r), costs->devices[d].name)) group_of[d] = r;
    }
}

static double work_s(const Costs *costs, int device, int layer)
{
    return costs_forward_s(costs, device, layer) + costs_backward_s(costs, device, layer);
}

/* Seconds that a micro-batch takes the devices of a group at least, if all of them work all the time: each counts as
 * many times as fast as the fastest on each layer as it is on the layer that suits it best. */
static double group_period_s(const Costs *costs, const int *group_of, int group)
{
    double work = 0, speed = 0;
    FREED double *least = memory_allocate((size_t)costs->layer_count * sizeof *least);
    for (int l = 0; l < costs->layer_count; l++) {
        least[l] = INFINITY;
        for (int d = 0; d < costs->device_count; d++)
            if (group_of[d] == group) least[l] = fmin(least[l], work_s(costs, d, l));
        work += least[l];
    }
    for (int d = 0; d < costs->device_count; d++) {
        double best = 0;
        for (int l = 0; l < costs->layer_count && group_of[d] == group; l++)
            best = fmax(best, work_s(costs, d, l) > 0 ? least[l] / work_s(costs, d, l) : 1);
        speed += best;
    }
    return speed > 0 ? work / speed : INFINITY;
}

int64_t replica_groups_bound_ns(const Costs *costs, const int *group_of, int count, int microbatches)
{
    double rate = 0;
    for (int g = 0; g < count; g++) rate += 1 / group_period_s(costs, group_of, g);
    double bound = 1e9 * microbatches / rate;
    return bound >= 0 && bound < 1e18 ? (int64_t)bound : 0;
}

/* ---- taking apart ---- */

static void slice_ranks(const Plan *plan, const PlanReplica *replica, Plan *part)
{
    for (int r = 0; r < part->rank_count; r++) {
        PlanRank *rank = &part->ranks[r];
        *rank = plan->ranks[replica->first_rank + r];
        rank->replica = 0;
        rank->sum_ns = rank->sum_latency_ns = 0;
        rank->stages = arena_copy(&part->arena, rank->stages, (size_t)rank->stage_count * sizeof *rank->stages);
        for (int k = 0; k < rank->stage_count; k++) rank->stages[k] -= replica->first_stage;
        rank->instructions = move_instructions(part, rank, -replica->first_stage);
    }
}

static bool is_inside(const PlanReplica *replica, int stage)
{
    return stage >= replica->first_stage && stage < replica->first_stage + replica->stage_count;
}

/* None is from another replica. */
static bool slice_crossings(const Plan *plan, const PlanReplica *replica, Plan *part)
{
    part->crossings = arena_new_array(&part->arena, PlanCrossing, (size_t)plan->crossing_count);
    for (int c = 0; c < plan->crossing_count; c++) {
        PlanCrossing crossing = plan->crossings[c];
        if (!is_inside(replica, crossing.to_stage)) continue;
        crossing.to_stage -= replica->first_stage;
        if (!crossing.raw && !is_inside(replica, crossing.from_stage)) return false;
        if (!crossing.raw) crossing.from_stage -= replica->first_stage;
        part->crossings[part->crossing_count++] = crossing;
    }
    return true;
}

bool plan_slice(const Plan *plan, const PlanReplica *replica, Plan *part)
{
    part->stage_count = replica->stage_count;
    part->rank_count = replica->rank_count;
    part->stages =
        arena_copy(&part->arena, plan->stages + replica->first_stage, (size_t)part->stage_count * sizeof *part->stages);
    part->ranks = arena_new_array(&part->arena, PlanRank, (size_t)part->rank_count);
    part->links = arena_new_array(&part->arena, PlanLink, (size_t)part->stage_count);
    for (int k = 0; k < part->stage_count; k++) part->stages[k].rank -= replica->first_rank;
    slice_ranks(plan, replica, part);
    for (int l = 0; l < plan->link_count; l++) {
        if (!is_inside(replica, plan->links[l].from)) continue;
        PlanLink *link = &part->links[part->link_count++];
        *link = plan->links[l];
        link->from -= replica->first_stage;
        link->to -= replica->first_stage;
    }
    if (!slice_crossings(plan, replica, part)) return false;
    for (int k = 0; k < part->stage_count; k++)
        if (part->stages[k].in_flight > part->microbatches) return false;
    for (int r = 0; r < part->rank_count; r++)
        for (int i = 0; i < part->ranks[r].instruction_count; i++)
            if (part->ranks[r].instructions[i].microbatch >= part->microbatches) return false;
    return true;
}
