#include "partitioner/plan.h"

#include <string.h>

const char *plan_op_name(PlanOp op)
{
    static const char *const names[PLAN_OP_COUNT] = {
        [PLAN_RECEIVE_FORWARD] = "recv-forward",
        [PLAN_FORWARD] = "forward",
        [PLAN_SEND_FORWARD] = "send-forward",
        [PLAN_RECEIVE_BACKWARD] = "recv-backward",
        [PLAN_BACKWARD] = "backward",
        [PLAN_SEND_BACKWARD] = "send-backward",
        [PLAN_WEIGHT_GRADIENT] = "weight-gradient",
        [PLAN_REDUCE] = "reduce",
        [PLAN_UPDATE] = "update",
    };
    return names[op];
}

const char *plan_allocator_name(PlanAllocator allocator)
{
    static const char *const names[PLAN_ALLOCATOR_COUNT] = {"even", "sky", "heuristic", "optimal"};
    return names[allocator];
}

const char *plan_schedule_name(PlanSchedule schedule)
{
    static const char *const names[PLAN_SCHEDULE_COUNT] = {"gpipe", "1f1b", "zb", "auto"};
    return names[schedule];
}

const char *plan_recompute_name(PlanRecompute recompute)
{
    static const char *const names[PLAN_RECOMPUTE_COUNT] = {"auto", "never", "always"};
    return names[recompute];
}

const char *plan_objective_name(PlanObjective objective)
{
    return objective == PLAN_OBJECTIVE_STEP ? "step" : "period";
}

bool plan_allocator_from_name(const char *name, PlanAllocator *allocator)
{
    for (int i = 0; i < PLAN_ALLOCATOR_COUNT; i++)
        if (strcmp(name, plan_allocator_name((PlanAllocator)i)) == 0) return *allocator = (PlanAllocator)i, true;
    return false;
}

bool plan_objective_from_name(const char *name, PlanObjective *objective)
{
    for (int i = 0; i < 2; i++)
        if (strcmp(name, plan_objective_name((PlanObjective)i)) == 0) return *objective = (PlanObjective)i, true;
    return false;
}

bool plan_recompute_from_name(const char *name, PlanRecompute *recompute)
{
    for (int i = 0; i < PLAN_RECOMPUTE_COUNT; i++)
        if (strcmp(name, plan_recompute_name((PlanRecompute)i)) == 0) return *recompute = (PlanRecompute)i, true;
    return false;
}

bool plan_schedule_from_name(const char *name, PlanSchedule *schedule)
{
    for (int i = 0; i < PLAN_SCHEDULE_COUNT; i++)
        if (strcmp(name, plan_schedule_name((PlanSchedule)i)) == 0) return *schedule = (PlanSchedule)i, true;
    return false;
}

int64_t plan_value_ns(const Plan *plan)
{
    return plan->objective == PLAN_OBJECTIVE_STEP ? plan->step_ns : plan->period_ns;
}

void plan_free(Plan *plan)
{
    arena_free(&plan->arena);
    memset(plan, 0, sizeof *plan);
}

int64_t plan_rank_work(const Plan *plan, int rank)
{
    int64_t work = 0;
    for (int k = 0; k < plan->ranks[rank].stage_count; k++) {
        const PlanStage *stage = &plan->stages[plan->ranks[rank].stages[k]];
        work += stage->forward_ns + stage->backward_ns;
    }
    return work;
}

int64_t plan_rank_memory(const Plan *plan, int rank)
{
    int64_t bytes = 0;
    for (int k = 0; k < plan->ranks[rank].stage_count; k++)
        bytes += plan->stages[plan->ranks[rank].stages[k]].memory_bytes;
    return bytes;
}

int64_t plan_rank_process(const Plan *plan, int rank)
{
    return plan_rank_memory(plan, rank) + plan->ranks[rank].process_bytes;
}

/* "identity" is what plans call none. */
Codec plan_link_codec(const PlanLink *link, int direction) { return link->codecs[direction]; }

int plan_link_busy(const PlanLink *link) { return link->transfer_ns[1] > link->transfer_ns[0]; }

int64_t plan_link_period(const PlanLink *link)
{
    int64_t period = link->transfer_ns[plan_link_busy(link)];
    if (link->half_duplex) period = link->transfer_ns[0] + link->transfer_ns[1];
    for (int i = 0; i < 4; i++)
        if (link->coding_ns[i / 2][i % 2] > period) period = link->coding_ns[i / 2][i % 2];
    return period;
}

bool plan_link_is_coded(const PlanLink *link) { return link->codecs[0] != CODEC_NONE || link->codecs[1] != CODEC_NONE; }

int plan_rank_of(const Plan *plan, const char *device)
{
    int rank = plan->rank_count - 1;
    while (rank >= 0 && strcmp(plan->ranks[rank].device, device) != 0) rank--;
    return rank;
}

bool plan_leaves_out(const Plan *plan, const char *device)
{
    for (int i = 0; i < plan->without_count; i++)
        if (strcmp(plan->without[i], device) == 0) return true;
    return false;
}
