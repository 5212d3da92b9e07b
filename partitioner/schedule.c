#include "partitioner/schedule.h"

#include <stdlib.h>
#include <string.h>

/* ---- the order of forwards and backwards of one stage ---- */

typedef struct Step {
    bool backward;
    int microbatch;
} Step;

/* GPipe: all forwards, then all backwards (arXiv 1811.06965). 1F1B: as many forwards as there are stages behind, then
 * one backward per forward (PipeDream-flush, arXiv 2006.09503). */
static void stage_order(const Plan *plan, int stage, Step *steps)
{
    int n = plan->microbatches, warm_up = plan->schedule == PLAN_GPIPE ? n : plan->stage_count - stage, count = 0;
    if (warm_up > n) warm_up = n;
    for (int m = 0; m < warm_up; m++) steps[count++] = (Step){false, m};
    for (int m = 0; m < n; m++) {
        steps[count++] = (Step){true, m};
        if (m + warm_up < n) steps[count++] = (Step){false, m + warm_up};
    }
}

/* ---- instruction lists ---- */

typedef struct Builder {
    Plan *plan;
    Step **steps;                       /* [stage][2 * microbatches] */
    int *done;                          /* [stage]: how many of them are emitted */
    bool *forward_done, *backward_done; /* [stage * microbatches + microbatch] */
} Builder;

static void emit(const Builder *b, PlanRank *rank, PlanOp op, int stage, int microbatch)
{
    int slot = microbatch < 0 ? -1 : microbatch % b->plan->stages[stage].in_flight;
    rank->instructions[rank->instruction_count++] = (PlanInstruction){op, stage, microbatch, slot};
}

static bool is_ready(const Builder *b, int stage)
{
    int n = b->plan->microbatches, last = b->plan->stage_count - 1;
    if (b->done[stage] == 2 * n) return false;
    Step step = b->steps[stage][b->done[stage]];
    if (!step.backward) return stage == 0 || b->forward_done[(size_t)(stage - 1) * (size_t)n + (size_t)step.microbatch];
    return stage == last || b->backward_done[(size_t)(stage + 1) * (size_t)n + (size_t)step.microbatch];
}

static void emit_step(Builder *b, int stage)
{
    Plan *plan = b->plan;
    PlanRank *rank = &plan->ranks[plan->stages[stage].rank];
    Step step = b->steps[stage][b->done[stage]++];
    int m = step.microbatch, last = plan->stage_count - 1;
    bool from_before = stage > 0 && plan->stages[stage - 1].rank != plan->stages[stage].rank;
    bool from_behind = stage < last && plan->stages[stage + 1].rank != plan->stages[stage].rank;
    size_t index = (size_t)stage * (size_t)plan->microbatches + (size_t)m;
    if (!step.backward) {
        if (from_before) emit(b, rank, PLAN_RECEIVE_FORWARD, stage, m);
        emit(b, rank, PLAN_FORWARD, stage, m);
        if (from_behind) emit(b, rank, PLAN_SEND_FORWARD, stage, m);
        b->forward_done[index] = true;
    } else {
        if (from_behind) emit(b, rank, PLAN_RECEIVE_BACKWARD, stage, m);
        emit(b, rank, PLAN_BACKWARD, stage, m);
        if (from_before) emit(b, rank, PLAN_SEND_BACKWARD, stage, m);
        b->backward_done[index] = true;
    }
}

/* Rounds over the ranks; in each a rank does one ready step, the stage nearest the end first. That gives stages of one
 * rank an order that cannot deadlock, and leaves a stage alone on its rank with exactly its own order. */
static void emit_all(Builder *b)
{
    Plan *plan = b->plan;
    bool *ready = memory_allocate((size_t)plan->rank_count * sizeof *ready);
    int *chosen = memory_allocate((size_t)plan->rank_count * sizeof *chosen);
    for (int64_t left = 2 * (int64_t)plan->microbatches * plan->stage_count; left > 0;) {
        for (int r = 0; r < plan->rank_count; r++) {
            ready[r] = false;
            for (int k = plan->ranks[r].stage_count - 1; k >= 0 && !ready[r]; k--)
                if (is_ready(b, plan->ranks[r].stages[k])) ready[r] = true, chosen[r] = plan->ranks[r].stages[k];
        }
        int64_t before = left;
        for (int r = 0; r < plan->rank_count; r++)
            if (ready[r]) emit_step(b, chosen[r]), left--;
        if (left == before) bug("the schedule deadlocks");
    }
    free(ready);
    free(chosen);
    for (int r = 0; r < plan->rank_count; r++) {
        PlanRank *rank = &plan->ranks[r];
        for (int k = 0; k < rank->stage_count; k++) emit(b, rank, PLAN_REDUCE, rank->stages[k], -1);
        for (int k = 0; k < rank->stage_count; k++) emit(b, rank, PLAN_UPDATE, rank->stages[k], -1);
    }
}

static void build_instructions(Plan *plan)
{
    Arena scratch = {0};
    size_t stages = (size_t)plan->stage_count, n = (size_t)plan->microbatches;
    Builder b = {plan, arena_new_array(&scratch, Step *, stages), arena_new_array(&scratch, int, stages),
                 arena_new_array(&scratch, bool, stages *n), arena_new_array(&scratch, bool, stages *n)};
    for (int s = 0; s < plan->stage_count; s++) {
        b.steps[s] = arena_new_array(&scratch, Step, 2 * n);
        stage_order(plan, s, b.steps[s]);
    }
    for (int r = 0; r < plan->rank_count; r++) {
        PlanRank *rank = &plan->ranks[r];
        rank->instructions = arena_new_array(&plan->arena, PlanInstruction, (size_t)rank->stage_count * (6 * n + 2));
    }
    emit_all(&b);
    arena_free(&scratch);
}

/* ---- the plan around them ---- */

static void build_stage(Plan *plan, const Problem *problem, const Allocation *allocation, int k, int rank)
{
    int start = k ? allocation->end[k - 1] : 0, end = allocation->end[k];
    int device = allocation->device[k], type = problem->type_of[device];
    const int64_t *forward = problem->forward + (size_t)type * (size_t)(problem->layer_count + 1);
    PlanStage *stage = &plan->stages[k];
    stage->device = arena_string(&plan->arena, problem->costs->devices[device].name);
    stage->rank = rank;
    stage->first_layer = start;
    stage->last_layer = end - 1;
    stage->forward_ns = forward[end] - forward[start];
    stage->backward_ns = problem_work(problem, type, start, end) - stage->forward_ns;
    stage->update_ns = problem_update(problem, type, start, end);
    stage->in_flight = problem_in_flight(problem, allocation->stage_count - k);
    stage->memory_bytes = problem_stage_bytes(problem, start, end, stage->in_flight);
    stage->memory_limit_bytes = problem->type_limit[type];
}

static void build_ranks(Plan *plan, const Problem *problem, const Allocation *allocation)
{
    int *rank_of = memory_allocate((size_t)problem->device_count * sizeof *rank_of); /* rank + 1 */
    plan->ranks = arena_new_array(&plan->arena, PlanRank, (size_t)plan->stage_count);
    for (int k = 0; k < plan->stage_count; k++) {
        int *rank = &rank_of[allocation->device[k]];
        if (!*rank) *rank = ++plan->rank_count;
        build_stage(plan, problem, allocation, k, *rank - 1);
        PlanRank *r = &plan->ranks[*rank - 1];
        r->device = plan->stages[k].device;
        int *stages = arena_new_array(&plan->arena, int, (size_t)r->stage_count + 1);
        if (r->stage_count) memcpy(stages, r->stages, (size_t)r->stage_count * sizeof *stages);
        stages[r->stage_count++] = k;
        r->stages = stages;
    }
    free(rank_of);
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
        link->logical_bytes = link->wire_bytes = problem->costs->layers[cut - 1].output_bytes;
        link->dtype = DTYPE_F32;
        link->codec = "identity";
        if (plan->stages[k].rank == plan->stages[k + 1].rank) continue;
        link->latency_ns[0] = problem_latency(problem, from, to);
        link->latency_ns[1] = problem_latency(problem, to, from);
        link->transfer_ns[0] = problem_transfer(problem, cut, from, to);
        link->transfer_ns[1] = problem_transfer(problem, cut, to, from);
    }
}

void plan_build(Plan *plan, const Problem *problem, const Allocation *allocation, PlanAllocator allocator)
{
    memset(plan, 0, sizeof *plan);
    char text[33];
    plan->name = arena_string(&plan->arena, problem->costs->name);
    plan->model_hash = arena_string(&plan->arena, problem->costs->model_hash ? problem->costs->model_hash : "");
    plan->costs_hash = arena_string(&plan->arena, hash_format(costs_hash(problem->costs), text));
    plan->allocator = allocator;
    plan->objective = problem->objective;
    plan->schedule = problem->schedule;
    plan->microbatches = problem->microbatches;
    plan->layer_count = problem->layer_count;
    plan->stage_count = allocation->stage_count;
    plan->stages = arena_new_array(&plan->arena, PlanStage, (size_t)plan->stage_count);
    build_ranks(plan, problem, allocation);
    build_links(plan, problem, allocation);
    build_instructions(plan);
    AllocationValue value = allocation_evaluate(problem, allocation);
    plan->period_ns = value.period;
    plan->step_ns = value.step;
    Diagnostics diagnostics = {0};
    Simulation simulation;
    if (!plan_simulate(&simulation, plan, &diagnostics)) {
        diagnostics_print(&diagnostics, stderr);
        bug("the planner made a schedule that its own simulator refuses");
    }
    plan->simulated_step_ns = simulation.step_ns;
    plan->bubble = simulation.bubble;
    simulation_free(&simulation);
    diagnostics_free(&diagnostics);
}
