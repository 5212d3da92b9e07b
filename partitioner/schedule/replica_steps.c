#include "partitioner/schedule/replica_steps.h"

#include "base/integers.h"
#include "partitioner/replica_sums.h"
#include "partitioner/replicas.h"
#include "partitioner/schedule/simulate.h"

/* ---- Sums that overlap with backwards ---- */

typedef struct Overlap {
    const Plan *plan;
    const Costs *costs;
    Arena arena;
    int64_t **ended; /* [rank][layer]: when its gradients are final; -1: the rank does not have it */
    int64_t *begun;  /* [rank]: when it has its sums */
} Overlap;

/* The last instruction of a rank's list that adds to the gradients of the stage. */
static SimulatedSpan last_backward(const PlanRank *rank, const SimulatedSpan *spans, int stage)
{
    int last = 0;
    for (int i = 0; i < rank->instruction_count; i++)
        if ((rank->instructions[i].op == SKY_BACKWARD || rank->instructions[i].op == SKY_WEIGHT_GRADIENT) &&
            rank->instructions[i].stage == stage)
            last = i;
    return spans[last];
}

/* A stage that recomputes begins its backward with its forward. */
static void end_stage(const Overlap *o, const PlanStage *stage, SimulatedSpan span, int64_t *ended)
{
    int device = costs_find_device(o->costs, stage->device);
    double done = 0, all = 0;
    for (int l = stage->first_layer; l <= stage->last_layer; l++) {
        if (stage->recompute) done += costs_forward_s(o->costs, device, l);
        all += costs_backward_s(o->costs, device, l);
    }
    all += done;
    for (int l = stage->last_layer; l >= stage->first_layer; l--) {
        done += costs_backward_s(o->costs, device, l);
        ended[l] =
            larger(ended[l], all > 0 ? span.start + (int64_t)((double)(span.end - span.start) * done / all) : span.end);
    }
}

static bool end_replica(Overlap *o, const PlanReplica *replica, Diagnostics *diagnostics)
{
    const Plan *part = replica->pipeline;
    FREED_WITH(simulation_free) Simulation simulation = {0};
    if (!plan_simulate(&simulation, part, diagnostics)) return false;
    for (int k = 0; k < part->stage_count; k++) {
        int rank = part->stages[k].rank;
        SimulatedSpan span = last_backward(&part->ranks[rank], simulation.spans[rank], k);
        int64_t *begun = &o->begun[replica->first_rank + rank];
        end_stage(o, &part->stages[k], span, o->ended[replica->first_rank + rank]);
        *begun = larger(*begun, span.end);
    }
    return true;
}

/* A rank sums layer by layer, the last first, each once all have ended it. */
static void sum_layers(Overlap *o, int rank, const int *regions)
{
    int64_t now = 0, latency = 0;
    for (int l = o->plan->layer_count - 1; l >= 0; l--) {
        int64_t takes =
            o->ended[rank][l] < 0 ? 0 : replica_sums_layer_ns(o->plan, o->costs, regions, rank, l, &latency);
        if (takes == 0) continue;
        for (int r = 0; r < o->plan->rank_count; r++) now = larger(now, o->ended[r][l]);
        now += takes;
    }
    o->begun[rank] = larger(o->begun[rank], now + latency);
}

static int64_t update_ns(const Plan *plan, const PlanRank *rank)
{
    int64_t sum = 0;
    for (int k = 0; k < rank->stage_count; k++) sum += plan->stages[rank->stages[k]].update_ns;
    return sum;
}

bool replica_steps_overlap(Plan *plan, const Costs *costs, Diagnostics *diagnostics)
{
    Overlap o = {.plan = plan, .costs = costs};
    size_t ranks = (size_t)plan->rank_count, layers = (size_t)plan->layer_count;
    o.begun = arena_new_array(&o.arena, int64_t, 2 * ranks + NORM_ROUND_SCRATCH(ranks));
    o.ended = arena_new_array(&o.arena, int64_t *, ranks);
    int64_t *known = o.begun + ranks, step = 0;
    for (size_t r = 0; r < ranks; r++) {
        o.ended[r] = arena_new_array(&o.arena, int64_t, layers);
        for (size_t l = 0; l < layers; l++) o.ended[r][l] = -1;
    }
    bool ok = true;
    for (int r = 0; r < plan->replica_count && ok; r++) ok = end_replica(&o, &plan->replicas[r], diagnostics);
    const int *regions = replica_sums_regions(plan, costs, &o.arena);
    for (int r = 0; r < plan->rank_count && ok; r++) sum_layers(&o, r, regions);
    if (ok && plan->norm) norm_round(plan->norm, o.begun, known, known + ranks);
    for (int r = 0; r < plan->rank_count; r++)
        step = larger(step, (plan->norm ? known[r] : o.begun[r]) + update_ns(plan, &plan->ranks[r]));
    if (ok && step > 0) {
        double busy = (1 - plan->bubble) * (double)plan->simulated_step_ns * plan->rank_count;
        for (int k = 0; k < plan->stage_count; k++) busy -= (double)plan->stages[k].sum_ns; /* links are, ranks not */
        plan->simulated_step_ns = step;
        plan->bubble = 1 - busy / ((double)step * plan->rank_count);
    }
    arena_free(&o.arena);
    return ok;
}

/* ---- Packed rows ---- */

/* What a step with the first micro-batches takes in simulation: the slowest replica that has any of them. */
static int64_t simulate_first(const Plan *plan, uint32_t *const *dealt, int microbatches)
{
    int64_t most = 0, whole = 0;
    FREED_WITH(diagnostics_free) Diagnostics ignored = {0};
    for (int r = 0; r < plan->replica_count; r++) {
        const Plan *part = plan->replicas[r].pipeline;
        FREED_WITH(simulation_free) Simulation simulation = {0};
        int count = 0;
        whole = larger(whole, part->simulated_step_ns);
        while (count < part->microbatches && dealt[r][count] < (uint32_t)microbatches) count++;
        if (count == 0 || !plan_simulate_first(&simulation, part, count, &ignored)) continue;
        most = larger(most, simulation.step_ns);
    }
    return larger(0, plan->padded_step_ns - whole + most);
}

void replica_steps_expect(Plan *plan)
{
    FREED_WITH(arena_free) Arena arena = {0};
    int64_t steps = row_samples_steps(&plan->rows), all = 0;
    if (!plan->rows.microbatch_kinds) return;
    int *shares = arena_new_array(&arena, int, (size_t)plan->replica_count);
    uint32_t **dealt = arena_new_array(&arena, uint32_t *, (size_t)plan->replica_count);
    for (int r = 0; r < plan->replica_count; r++) shares[r] = plan->replicas[r].microbatches;
    for (int r = 0; r < plan->replica_count; r++) {
        dealt[r] = arena_new_array(&arena, uint32_t, (size_t)shares[r]);
        plan_deal(shares, plan->replica_count, r, dealt[r]);
    }
    plan->padded_step_ns = plan->simulated_step_ns;
    for (int i = 0; i < plan->rows.microbatch_kinds; i++) {
        plan->worst_step_ns = simulate_first(plan, dealt, plan->rows.microbatches[i].value);
        all += plan->worst_step_ns * plan->rows.microbatches[i].times;
    }
    plan->simulated_step_ns = divide_up(all, steps);
    plan->step_ns = larger(plan->step_ns - plan->padded_step_ns + plan->simulated_step_ns, 0);
    plan->lower_bound_ns = 0;
    plan->gap = plan_value_ns(plan) > 0;
}
