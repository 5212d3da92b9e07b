#include "partitioner/plan.h"

#include <string.h>

#include "base/parts.h"

const char *const plan_op_words[SKY_OP_COUNT] = {
    [SKY_RECEIVE_FORWARD] = "recv-forward",    [SKY_FORWARD] = "forward",   [SKY_SEND_FORWARD] = "send-forward",
    [SKY_RECEIVE_BACKWARD] = "recv-backward",  [SKY_BACKWARD] = "backward", [SKY_SEND_BACKWARD] = "send-backward",
    [SKY_WEIGHT_GRADIENT] = "weight-gradient", [SKY_REDUCE] = "reduce",     [SKY_UPDATE] = "update",
};
const char *const plan_allocator_words[PLAN_ALLOCATOR_COUNT] = {"even", "sky", "heuristic", "optimal"};
const char *const plan_objective_words[PLAN_OBJECTIVE_COUNT] = {"step", "period"};
const char *const plan_schedule_words[PLAN_SCHEDULE_COUNT + 1] = {"gpipe", "1f1b", "zb", "searched", "auto"};
const char *const plan_recompute_words[PLAN_RECOMPUTE_COUNT] = {"auto", "never", "always", "layers"};

const char *plan_op_name(SkyInstructionOp op) { return plan_op_words[op]; }
const char *plan_allocator_name(PlanAllocator allocator) { return plan_allocator_words[allocator]; }
const char *plan_objective_name(PlanObjective objective) { return plan_objective_words[objective]; }
const char *plan_schedule_name(PlanSchedule schedule) { return plan_schedule_words[schedule]; }
const char *plan_recompute_name(PlanRecompute recompute) { return plan_recompute_words[recompute]; }

ScheduleTraits plan_schedule_traits(PlanSchedule schedule)
{
    static const ScheduleTraits traits[PLAN_SCHEDULE_COUNT + 1] = {
        [PLAN_GPIPE] = {.holds_all = true, .told = "GPipe (all forwards, then all backwards)"},
        [PLAN_1F1B] = {.told = "1F1B (one forward, one backward in turn)"},
        [PLAN_ZB] = {.is_searched = true, .splits_backward = true, .told = "zero-bubble"},
        [PLAN_SEARCHED] = {.is_searched = true, .told = "searched (the quickest order of micro-batches in simulation)"},
        [PLAN_AUTO] = {.is_searched = true, .splits_backward = true},
    };
    return traits[schedule];
}

int64_t plan_value_ns(const Plan *plan)
{
    return plan->objective == PLAN_OBJECTIVE_STEP ? plan->step_ns : plan->period_ns;
}

int64_t plan_chosen_ns(const Plan *plan)
{
    return plan->objective == PLAN_OBJECTIVE_STEP ? plan->simulated_step_ns : plan->period_ns;
}

int64_t plan_optimum_ns(const Plan *plan)
{
    const PlanComparison *row = &plan->compared[PLAN_OPTIMAL];
    if (plan->allocator != PLAN_OPTIMAL || row->stage_count == 0) return plan_value_ns(plan);
    return plan->objective == PLAN_OBJECTIVE_PERIOD ? row->period_ns : row->step_ns;
}

void plan_free(Plan *plan)
{
    for (int r = 0; r < plan->replica_count; r++)
        if (plan->replicas[r].pipeline) plan_free(plan->replicas[r].pipeline);
    arena_free(&plan->arena);
    memset(plan, 0, sizeof *plan);
}

void plan_add_seconds(JsonWriter *json, const char *key, int64_t nanoseconds)
{
    json_add_number(json, key, (double)nanoseconds / 1e9);
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
    return word_index(device, plan->without, (size_t)plan->without_count) >= 0;
}
