#include "partitioner/schedule/replica_steps.h"

#include <stdlib.h>

#include "base/integers.h"
#include "partitioner/replica_sums.h"
#include "partitioner/replicas.h"
#include "partitioner/schedule/simulate.h"

/* ---- Sums that overlap with backwards ---- */

typedef struct Overlap {
    const Plan *plan;
    const Costs *costs;
    Arena arena;
    int64_t **ended;         /* [rank][layer]: when its gradients are final; -1: the rank does not have it */
    int64_t *begun;          /* [rank]: when it has ended its last backward */
    int64_t **takes;         /* [rank][layer]: how long its sum occupies the rank's links */
    int64_t *latency;        /* [rank] */
    int64_t *ready;          /* [layer]: when all have ended it */
    int64_t *summed, *known; /* [rank] of an order: when it has its sums, and the norm */
    int64_t *scratch;
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

static int64_t update_ns(const Plan *plan, const PlanRank *rank)
{
    int64_t sum = 0;
    for (int k = 0; k < rank->stage_count; k++) sum += plan->stages[rank->stages[k]].update_ns;
    return sum;
}

/* A rank sums layer by layer, in the order of all (NULL: the last layer first), each once all have ended it. */
static int64_t step_in_order(const Overlap *o, const int *order)
{
    const Plan *plan = o->plan;
    int64_t step = 0;
    for (int r = 0; r < plan->rank_count; r++) {
        int64_t now = 0;
        for (int i = 0; i < plan->layer_count; i++) {
            int l = order ? order[i] : plan->layer_count - 1 - i;
            if (o->takes[r][l] > 0) now = larger(now, o->ready[l]) + o->takes[r][l];
        }
        o->summed[r] = larger(o->begun[r], now + o->latency[r]);
    }
    if (plan->norm) norm_round(plan->norm, o->summed, o->known, o->scratch);
    for (int r = 0; r < plan->rank_count; r++)
        step = larger(step, (plan->norm ? o->known : o->summed)[r] + update_ns(plan, &plan->ranks[r]));
    return step;
}

/* When a layer can be summed. */
typedef struct ReadyLayer {
    int64_t ready;
    int layer;
} ReadyLayer;

static int by_ready(const void *a, const void *b)
{
    const ReadyLayer *left = a, *right = b;
    if (left->ready != right->ready) return left->ready < right->ready ? -1 : 1;
    return left->layer > right->layer ? -1 : left->layer < right->layer;
}

/* The order in which layers become ready; no order lets a rank end its sums sooner. */
static int *order_of_ready(const Overlap *o, Arena *arena)
{
    int count = o->plan->layer_count, *order = arena_new_array(arena, int, (size_t)count);
    FREED ReadyLayer *layers = memory_allocate((size_t)count * sizeof *layers);
    for (int l = 0; l < count; l++) layers[l] = (ReadyLayer){o->ready[l], l};
    qsort(layers, (size_t)count, sizeof *layers, by_ready);
    for (int i = 0; i < count; i++) order[i] = layers[i].layer;
    return order;
}

static void open_overlap(Overlap *o)
{
    size_t ranks = (size_t)o->plan->rank_count, layers = (size_t)o->plan->layer_count;
    o->begun = arena_new_array(&o->arena, int64_t, ranks);
    o->summed = arena_new_array(&o->arena, int64_t, 2 * ranks + NORM_ROUND_SCRATCH(ranks));
    o->known = o->summed + ranks;
    o->scratch = o->known + ranks;
    o->latency = arena_new_array(&o->arena, int64_t, ranks);
    o->ready = arena_new_array(&o->arena, int64_t, layers);
    o->ended = arena_new_array(&o->arena, int64_t *, ranks);
    o->takes = arena_new_array(&o->arena, int64_t *, ranks);
    for (size_t r = 0; r < ranks; r++) {
        o->takes[r] = arena_new_array(&o->arena, int64_t, layers);
        o->ended[r] = arena_new_array(&o->arena, int64_t, layers);
        for (size_t l = 0; l < layers; l++) o->ended[r][l] = -1;
    }
}

static void find_sums(Overlap *o)
{
    const int *regions = replica_sums_regions(o->plan, o->costs, &o->arena);
    for (int r = 0; r < o->plan->rank_count; r++)
        for (int l = 0; l < o->plan->layer_count; l++) {
            if (o->ended[r][l] < 0) continue;
            o->ready[l] = larger(o->ready[l], o->ended[r][l]);
            o->takes[r][l] = replica_sums_layer_ns(o->plan, o->costs, regions, r, l, &o->latency[r]);
        }
}

bool replica_steps_overlap(Plan *plan, const Costs *costs, bool choose, Diagnostics *diagnostics)
{
    Overlap o = {.plan = plan, .costs = costs};
    open_overlap(&o);
    bool ok = true;
    for (int r = 0; r < plan->replica_count && ok; r++) ok = end_replica(&o, &plan->replicas[r], diagnostics);
    if (ok) find_sums(&o);
    int64_t step = ok ? step_in_order(&o, plan->sum_order) : 0;
    if (ok && choose) {
        int *order = order_of_ready(&o, &plan->arena);
        int64_t ordered = step_in_order(&o, order);
        if (ordered < step) {
            plan->sum_order = order;
            step = ordered;
        }
    }
    if (step > 0) {
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
