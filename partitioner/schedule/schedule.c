#include "partitioner/schedule/schedule.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "partitioner/plan_norm.h"
#include "partitioner/replicas.h"
#include "partitioner/schedule/order.h"
#include "partitioner/schedule/simulate.h"

/* ---- instruction lists ---- */

static void emit(Plan *plan, PlanRank *rank, SkyInstructionOp op, int stage, int microbatch)
{
    int slot = microbatch < 0 ? -1 : microbatch % plan->stages[stage].in_flight;
    rank->instructions[rank->instruction_count++] = (PlanInstruction){op, stage, microbatch, slot};
}

/* A piece of work with the messages around it; between stages of one rank there are none. */
static void emit_step(Plan *plan, PlanRank *rank, OrderStep step)
{
    int s = step.stage, m = step.microbatch;
    bool from_before = s > 0 && plan->stages[s - 1].rank != plan->stages[s].rank;
    bool from_behind = s + 1 < plan->stage_count && plan->stages[s + 1].rank != plan->stages[s].rank;
    if (step.op == SKY_FORWARD && from_before) emit(plan, rank, SKY_RECEIVE_FORWARD, s, m);
    if (step.op == SKY_BACKWARD && from_behind) emit(plan, rank, SKY_RECEIVE_BACKWARD, s, m);
    emit(plan, rank, step.op, s, m);
    if (step.op == SKY_FORWARD && from_behind) emit(plan, rank, SKY_SEND_FORWARD, s, m);
    if (step.op == SKY_BACKWARD && from_before) emit(plan, rank, SKY_SEND_BACKWARD, s, m);
}

static void build_instructions(Plan *plan, const Order *order)
{
    for (int r = 0; r < plan->rank_count; r++) {
        PlanRank *rank = &plan->ranks[r];
        size_t most = 3 * (size_t)order->count[r] + 2 * (size_t)rank->stage_count;
        rank->instructions = arena_new_array(&plan->arena, PlanInstruction, most);
        for (int i = 0; i < order->count[r]; i++) emit_step(plan, rank, order->steps[r][i]);
        for (int k = 0; k < rank->stage_count; k++) emit(plan, rank, SKY_REDUCE, rank->stages[k], -1);
        for (int k = 0; k < rank->stage_count; k++) emit(plan, rank, SKY_UPDATE, rank->stages[k], -1);
    }
}

/* ---- how many micro-batches may be in flight ---- */

static int64_t bytes_with(const Plan *plan, const Problem *problem, int stage, int in_flight)
{
    const PlanStage *s = &plan->stages[stage];
    int64_t split = 0, more, bytes;
    if (s->recompute) return problem_recompute_bytes(problem, s->first_layer, s->last_layer + 1, in_flight);
    bytes = problem_stage_bytes(problem, s->first_layer, s->last_layer + 1, in_flight);
    for (int l = s->first_layer; s->weight_gradient_ns > 0 && l <= s->last_layer; l++)
        split += problem->costs->layers[l].split_bytes;
    if (__builtin_mul_overflow(split, in_flight, &more) || __builtin_add_overflow(bytes, more, &bytes))
        return COSTS_NO_LIMIT - 1; /* more than any limit but none */
    return bytes;
}

/* Whether the rank's stages fit in its memory with `more` micro-batches in flight than each needs at least. */
static bool rank_has_room(const Plan *plan, const Problem *problem, const PlanRank *rank, const int *least, int more)
{
    int64_t total = 0;
    for (int k = 0; k < rank->stage_count; k++) {
        int stage = rank->stages[k], wanted = least[stage] + more;
        int64_t bytes = bytes_with(plan, problem, stage, wanted < plan->microbatches ? wanted : plan->microbatches);
        if (__builtin_add_overflow(total, bytes, &total)) return false;
    }
    return total <= plan->stages[rank->stages[0]].memory_limit_bytes;
}

/* As many as the memory of every device holds, but no fewer than `least`. */
static void fill_most(const Plan *plan, const Problem *problem, const int *least, int *most)
{
    for (int r = 0; r < plan->rank_count; r++) {
        const PlanRank *rank = &plan->ranks[r];
        int low = 0, high = plan->microbatches; /* so many more fit, do not fit */
        while (low + 1 < high) {
            int middle = low + (high - low) / 2;
            if (rank_has_room(plan, problem, rank, least, middle))
                low = middle;
            else
                high = middle;
        }
        for (int k = 0; k < rank->stage_count; k++) {
            int stage = rank->stages[k];
            most[stage] = least[stage] + low < plan->microbatches ? least[stage] + low : plan->microbatches;
        }
    }
}

/* What of a stage's backward can be put off. Nothing before the first stage waits for its backward, so all of it is one
 * piece. */
static int64_t weight_gradient_ns(const Costs *costs, bool known, const PlanStage *stage, int device)
{
    double total = 0;
    for (int l = stage->first_layer; stage->first_layer > 0 && !stage->recompute && l <= stage->last_layer; l++) {
        const LayerCost *layer = &costs->layers[l];
        double share = !known ? 0.5 : layer->backward_s > 0 ? layer->weight_gradient_s / layer->backward_s : 0;
        total += floor(share * ceil(costs_backward_s(costs, device, l) * 1e9));
    }
    return (int64_t)total;
}

/* Splits backward where the device has room for what that keeps with the micro-batches it needs in flight. */
static void split_backward(Plan *plan, const Problem *problem, const Allocation *allocation, const int *least)
{
    const Costs *costs = problem->costs;
    bool known = false;
    for (int l = 0; l < costs->layer_count && !known; l++) known = costs->layers[l].weight_gradient_s > 0;
    for (int k = 0; k < plan->stage_count; k++)
        plan->stages[k].weight_gradient_ns = weight_gradient_ns(costs, known, &plan->stages[k], allocation->device[k]);
    for (int r = 0; r < plan->rank_count; r++) {
        const PlanRank *rank = &plan->ranks[r];
        for (int k = rank->stage_count - 1; k >= 0 && !rank_has_room(plan, problem, rank, least, 0); k--)
            plan->stages[rank->stages[k]].weight_gradient_ns = 0;
    }
}

/* A less simple order has to be worth it. */
enum { WORTH = 1000 };

static bool is_quicker(int64_t step, int64_t than) { return than - step > than / WORTH; }

/* Of orders with split backward. Those that cannot be worth it next to `simple` are not looked for: INT64_MAX. The
 * stages are split after it. */
static int64_t search_split(Plan *plan, const Plan *typical, const Problem *problem, const Allocation *allocation,
                            Order *order, int64_t simple, const int *least, Arena *arena)
{
    int *most = arena_new_array(arena, int, (size_t)plan->stage_count);
    split_backward(plan, problem, allocation, least);
    fill_most(typical, problem, least, most);
    order->step_ns = INT64_MAX;
    if (is_quicker(order_bound(typical, most), simple)) order_search(order, typical, least, most, simple, arena);
    return order->step_ns;
}

static void swap_orders(Order *a, Order *b)
{
    Order swap = *a;
    *a = *b;
    *b = swap;
}

/* `typical`: the plan with as many micro-batches as the worst sampled step has, which makes better orders than the mean
 * or the most there is room for. Of 1F1B (or that with no more in flight than the limit), the order that is found and
 * one with backward split AUTO takes the simplest of the quickest. Split ones come first: they are mostly the quickest,
 * and others are then given up early. */
static void search_schedule(Plan *plan, const Plan *typical, const Problem *problem, const Allocation *allocation,
                            Order *order, const int *least, Arena *arena)
{
    int *most = arena_new_array(arena, int, (size_t)plan->stage_count);
    int64_t *put_off = arena_new_array(arena, int64_t, (size_t)plan->stage_count), split_ns = INT64_MAX;
    bool choose = plan->schedule == PLAN_AUTO;
    Order found, split;
    order_create(&found, typical, arena);
    order_create(&split, typical, arena);
    order->step_ns = INT64_MAX;
    if (plan->schedule != PLAN_ZB)
        order_follow(order, typical, &(OrderRule){.depth = least, .strict = true}, INT64_MAX);
    if (plan->schedule != PLAN_SEARCHED)
        split_ns = search_split(plan, typical, problem, allocation, &split, order->step_ns, least, arena);
    for (int k = 0; k < plan->stage_count; k++) put_off[k] = plan->stages[k].weight_gradient_ns;
    if (plan->schedule != PLAN_ZB) {
        for (int k = 0; k < plan->stage_count; k++) plan->stages[k].weight_gradient_ns = 0;
        fill_most(typical, problem, least, most);
        int64_t limit = split_ns < INT64_MAX / 2 ? split_ns + split_ns / (WORTH - 1) : INT64_MAX;
        order_search(&found, typical, least, most, limit, arena);
        plan->schedule = choose && plan->in_flight_limit == 0 ? PLAN_1F1B : PLAN_SEARCHED;
        if (!choose || is_quicker(found.step_ns, order->step_ns)) {
            swap_orders(order, &found);
            plan->schedule = PLAN_SEARCHED;
        }
        if (!is_quicker(split_ns, order->step_ns)) return;
    }
    swap_orders(order, &split);
    plan->schedule = PLAN_ZB;
    for (int k = 0; k < plan->stage_count; k++) plan->stages[k].weight_gradient_ns = put_off[k];
}

static void build_schedule(Plan *plan, const Problem *problem, const Allocation *allocation)
{
    FREED_WITH(arena_free) Arena scratch = {0};
    Order order;
    int *least = arena_new_array(&scratch, int, (size_t)plan->stage_count);
    Plan typical = *plan;
    if (plan->rows.microbatch_kinds) typical.microbatches = row_samples_worst(&plan->rows);
    order_create(&order, &typical, &scratch);
    for (int k = 0; k < plan->stage_count; k++) least[k] = problem_in_flight(problem, plan->stage_count - k);
    if (plan_schedule_traits(plan->schedule).is_searched)
        search_schedule(plan, &typical, problem, allocation, &order, least, &scratch);
    else
        order_follow(&order, &typical, &(OrderRule){.depth = least, .strict = true}, INT64_MAX);
    if (typical.microbatches < plan->microbatches) { /* the order found, for the longest step */
        OrderRule rule = order.rule;
        order_create(&order, plan, &scratch);
        order_follow(&order, plan, &rule, INT64_MAX);
    }
    for (int k = 0; k < plan->stage_count; k++) {
        PlanStage *stage = &plan->stages[k];
        stage->in_flight = order.in_flight[k];
        stage->memory_bytes = bytes_with(plan, problem, k, stage->in_flight);
    }
    build_instructions(plan, &order);
}

/* ---- the plan around them ---- */

static void build_stage(Plan *plan, const Problem *problem, const Allocation *allocation, int k, int rank)
{
    int start = allocation_start(allocation, k), end = allocation->end[k];
    int device = allocation->device[k], type = problem->type_of[device];
    const int64_t *forward = problem->forward + (size_t)type * (size_t)(problem->layer_count + 1);
    PlanStage *stage = &plan->stages[k];
    stage->device = arena_string(&plan->arena, problem->costs->devices[device].name);
    stage->rank = rank;
    stage->first_layer = start;
    stage->last_layer = end - 1;
    stage->forward_ns = forward[end] - forward[start];
    stage->backward_ns = problem_work(problem, type, start, end) - stage->forward_ns;
    stage->recompute = allocation_recomputes(problem, allocation, k);
    if (stage->recompute && problem_is_relaxed(problem)) stage->backward_ns += stage->forward_ns;
    for (int l = start; l < end; l++) stage->sum_ns += (int64_t)ceil(costs_sum_s(problem->costs, device, l) * 1e9);
    stage->update_ns = problem_update(problem, type, start, end) - stage->sum_ns;
    stage->memory_limit_bytes = problem->type_limit[type];
}

static void build_ranks(Plan *plan, const Problem *problem, const Allocation *allocation)
{
    FREED int *rank_of = memory_allocate((size_t)problem->device_count * sizeof *rank_of); /* rank + 1 */
    plan->ranks = arena_new_array(&plan->arena, PlanRank, (size_t)plan->stage_count);
    for (int k = 0; k < plan->stage_count; k++) {
        int *rank = &rank_of[allocation->device[k]];
        if (!*rank) *rank = ++plan->rank_count;
        build_stage(plan, problem, allocation, k, *rank - 1);
        PlanRank *r = &plan->ranks[*rank - 1];
        r->device = plan->stages[k].device;
        const DeviceCost *device = &problem->costs->devices[allocation->device[k]];
        r->process_bytes = device->process_bytes;
        r->host = device->host;
        r->cores = problem->costs->processors > 0 ? device->cores : 0;
        int *stages = arena_new_array(&plan->arena, int, (size_t)r->stage_count + 1);
        if (r->stage_count) memcpy(stages, r->stages, (size_t)r->stage_count * sizeof *stages);
        stages[r->stage_count++] = k;
        r->stages = stages;
    }
}

static void build_links(Plan *plan, const Problem *problem, const Allocation *allocation)
{
    plan->link_count = plan->stage_count - 1;
    plan->links = arena_new_array(&plan->arena, PlanLink, (size_t)plan->stage_count);
    for (int k = 0; k < plan->link_count; k++) {
        int cut = allocation->end[k], from = problem->type_region[problem->type_of[allocation->device[k]]],
            to = problem->type_region[problem->type_of[allocation->device[k + 1]]];
        PlanLink *link = &plan->links[k];
        link->from = k;
        link->to = k + 1;
        link->dtype = DTYPE_F32;
        const LayerCost *layer = &problem->costs->layers[cut - 1];
        for (int d = 0; d < 2; d++) link->logical_bytes[d] = link->wire_bytes[d] = costs_output_bytes(layer, d);
        if (plan->stages[k].rank == plan->stages[k + 1].rank) continue;
        const LinkCharge *charge = problem_link(problem, cut, from, to);
        link->half_duplex =
            problem->costs->half_duplex && problem->costs->half_duplex[from * problem->costs->region_count + to];
        for (int d = 0; d < 2; d++) {
            link->codecs[d] = (Codec)charge->codecs[d];
            link->wire_bytes[d] = costs_wire_bytes(layer, d, link->codecs[d]);
            link->latency_ns[d] = d ? problem_latency(problem, to, from) : problem_latency(problem, from, to);
            link->transfer_ns[d] = charge->transfer_ns[d];
            for (int way = 0; way < 2; way++) link->coding_ns[d][way] = charge->coding_ns[d][way];
        }
    }
}

void plan_build_candidate(Plan *plan, const Problem *problem, const Allocation *allocation)
{
    memset(plan, 0, sizeof *plan);
    plan->objective = problem->objective;
    plan->codecs = problem->costs->codecs ? problem->costs->codecs : CODECS_LOSSLESS;
    plan->schedule = problem->schedule;
    plan->recompute = problem->recompute;
    plan->microbatches = problem->microbatches;
    plan->rows = row_samples_copy(&problem->costs->rows, &plan->arena);
    plan->batch = batch_choice_copy(&problem->costs->batch, &plan->arena);
    plan->in_flight_limit = problem->in_flight_limit;
    plan->layer_count = problem->layer_count;
    plan->stage_count = allocation->stage_count;
    plan->stages = arena_new_array(&plan->arena, PlanStage, (size_t)plan->stage_count);
    build_ranks(plan, problem, allocation);
    plan->processors = problem->costs->processors;
    plan_set_alone(plan, -1);
    build_links(plan, problem, allocation);
    plan_norm_set(plan, problem->costs);
    build_schedule(plan, problem, allocation);
    AllocationValue value = allocation_settle(problem, allocation);
    plan->period_ns = value.period;
    plan->step_ns = value.step;
    if (plan->rows.microbatch_kinds) {
        int64_t worst = value.sum + (row_samples_worst(&plan->rows) - 1) * value.period;
        int64_t padded = value.sum + (plan->microbatches - 1) * value.period;
        plan->worst_step_ns = row_samples_whole(&plan->rows, worst) + value.update;
        plan->padded_step_ns = row_samples_whole(&plan->rows, padded) + value.update;
    }
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    if (!plan_simulate_samples(plan, &plan->simulated_step_ns, &plan->bubble, &diagnostics)) {
        diagnostics_print(&diagnostics, stderr);
        bug("the planner made a schedule that its own simulator refuses");
    }
}

void plan_build(Plan *plan, const Problem *problem, const Allocation *allocation, PlanAllocator allocator)
{
    plan_build_candidate(plan, problem, allocation);
    plan->name = arena_string(&plan->arena, problem->costs->name);
    plan->model_hash = arena_string(&plan->arena, problem->costs->model_hash ? problem->costs->model_hash : "");
    plan->allocator = allocator;
}
