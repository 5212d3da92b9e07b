#include <string.h>

#include "base/integers.h"
#include "partitioner/schedule/order.h"

/* Pieces of work that a search may lay out; what one takes is about a tenth of a microsecond. */
static const int64_t SEARCH_WORK = 100000;

typedef struct OrderSearch {
    const Plan *plan;
    const int *most; /* [stage] */
    int64_t bound, work;
    bool found; /* `best` is an order; else only its time counts, as a limit */
    Order *best, trial;
    int *depth;      /* [stage]: of the rule to try */
    int *best_depth; /* of the best one */
    OrderRule rule, best_rule;
} OrderSearch;

/* Of one micro-batch. */
static int64_t stage_work(const PlanStage *stage)
{
    return stage->forward_ns + plan_stage_backward(stage) + plan_stage_weight_gradient(stage);
}

/* A rank's own work. */
static int64_t work_bound(const Plan *plan)
{
    int64_t bound = 0;
    for (int r = 0; r < plan->rank_count; r++) {
        const PlanRank *rank = &plan->ranks[r];
        int64_t work = 0, update = 0;
        for (int k = 0; k < rank->stage_count; k++) {
            const PlanStage *stage = &plan->stages[rank->stages[k]];
            work += stage_work(stage) * plan->microbatches;
            update += plan_stage_update(stage);
        }
        bound = larger(bound, work + update);
    }
    return bound;
}

int64_t order_bound(const Plan *plan, const int *most)
{
    int64_t bound = work_bound(plan), rounds = plan->microbatches;
    int64_t there = 0, back = 0; /* to and from stage k, with the work of the stages before it */
    for (int k = 0; k < plan->stage_count; k++) {
        const PlanStage *stage = &plan->stages[k];
        int64_t backward = plan_stage_backward(stage);
        bound = larger(bound, there + rounds * (stage->forward_ns + backward) + back);
        bound = larger(bound, there + rounds * stage_work(stage) + plan_stage_update(stage));
        there += stage->forward_ns;
        back += backward;
        if (k == plan->link_count) break;
        const PlanLink *link = &plan->links[k];
        there += link->latency_ns[0] + link->transfer_ns[0];
        back += link->latency_ns[1] + link->transfer_ns[1];
    }
    int64_t trip = there + back; /* of one micro-batch */
    /* The last micro-batch over a link still has to get to the end and back; ... */
    for (int k = 0; k < plan->link_count; k++)
        for (int d = 0; d < 2; d++) bound = larger(bound, trip + (rounds - 1) * plan->links[k].transfer_ns[d]);
    /* ... and so has the one that takes a slot last, each time after the one that it had to wait for. */
    int64_t held = trip; /* from stage k to the end and back */
    for (int k = 0; k < plan->stage_count && most; k++) {
        const PlanStage *stage = &plan->stages[k];
        bound = larger(bound, trip + (rounds - 1) / most[k] * (held + plan_stage_weight_gradient(stage)));
        held -= stage->forward_ns + plan_stage_backward(stage);
        if (k == plan->link_count) break;
        for (int d = 0; d < 2; d++) held -= plan->links[k].latency_ns[d] + plan->links[k].transfer_ns[d];
    }
    return bound;
}

static int64_t total_in_flight(const Order *order, const Plan *plan)
{
    int64_t total = 0;
    for (int k = 0; k < plan->stage_count; k++) total += order->in_flight[k];
    return total;
}

/* Lays out the rule of depths s->depth; takes the order if it is quicker, or as quick with less in flight. */
static bool try(OrderSearch *s, bool strict, bool forward_first)
{
    const Plan *plan = s->plan;
    s->rule = (OrderRule){s->depth, strict, forward_first};
    order_follow(&s->trial, plan, &s->rule, s->best->step_ns);
    s->work -= 2 * (int64_t)plan->stage_count * plan->microbatches;
    if (s->trial.step_ns == INT64_MAX || s->trial.step_ns > s->best->step_ns) return false;
    if (s->found && s->trial.step_ns == s->best->step_ns &&
        total_in_flight(&s->trial, plan) >= total_in_flight(s->best, plan))
        return false;
    s->found = true;
    Order swap = *s->best;
    *s->best = s->trial;
    s->trial = swap;
    memcpy(s->best_depth, s->depth, (size_t)plan->stage_count * sizeof *s->depth);
    s->best_rule = s->rule;
    return true;
}

static int clamp(int64_t value, int low, int high) { return (int)(value < low ? low : value > high ? high : value); }

/* Micro-batches that pass a stage while one is on its way from it to the end and back. */
static void fill_by_delay(OrderSearch *s, double share)
{
    const Plan *plan = s->plan;
    int64_t delay = 0, period = 1;
    for (int r = 0; r < plan->rank_count; r++) {
        int64_t work = 0;
        for (int k = 0; k < plan->ranks[r].stage_count; k++) {
            const PlanStage *stage = &plan->stages[plan->ranks[r].stages[k]];
            work += stage_work(stage);
        }
        period = larger(period, work);
    }
    for (int k = 0; k < plan->link_count; k++) period = larger(period, plan_link_period(&plan->links[k]));
    for (int k = plan->stage_count - 1; k >= 0; k--) {
        delay += stage_work(&plan->stages[k]);
        double wanted = share * (double)delay / (double)period + 0.999999;
        s->depth[k] = clamp(wanted < plan->microbatches ? (int64_t)wanted : plan->microbatches, 1, s->most[k]);
        if (k == 0) break;
        const PlanLink *link = &plan->links[k - 1];
        delay += link->latency_ns[0] + link->latency_ns[1] + link->transfer_ns[0] + link->transfer_ns[1];
    }
}

/* As a strict order needs them: not growing. */
static void flatten(const OrderSearch *s)
{
    for (int k = 1; k < s->plan->stage_count; k++)
        if (s->depth[k] > s->depth[k - 1]) s->depth[k] = s->depth[k - 1];
}

static void try_kinds(OrderSearch *s)
{
    try(s, false, false);
    try(s, false, true);
    flatten(s);
    try(s, true, false);
}

/* Depths near those of the best order, one stage at a time, farther ones first. */
static void climb(OrderSearch *s)
{
    static const int steps[] = {4, -4, 1, -1};
    size_t bytes = (size_t)s->plan->stage_count * sizeof *s->depth;
    for (bool better = true; better;) {
        better = false;
        for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
            for (int k = 0; k < s->plan->stage_count; k++) {
                if (s->work < 0 || s->best->step_ns <= s->bound) return;
                memcpy(s->depth, s->best_depth, bytes);
                s->depth[k] = clamp((int64_t)s->depth[k] + steps[i], 1, s->most[k]);
                if (s->depth[k] == s->best_depth[k]) continue;
                if (s->best_rule.strict) flatten(s);
                better |= try(s, s->best_rule.strict, s->best_rule.forward_first);
            }
    }
}

static void search(OrderSearch *s, const int *least)
{
    static const double shares[] = {1, 1.25, 1.5, 2, 3};
    size_t bytes = (size_t)s->plan->stage_count * sizeof *least;
    memcpy(s->depth, least, bytes);
    flatten(s);
    try(s, true, false);
    if (s->best->step_ns <= s->bound) return;
    memcpy(s->depth, s->most, bytes); /* often the quickest, so that the others are given up early */
    try_kinds(s);
    for (int forward_first = 0; forward_first < 2; forward_first++) {
        memcpy(s->depth, least, bytes);
        try(s, false, forward_first);
    }
    for (size_t i = 0; i < sizeof shares / sizeof *shares && s->work > 0; i++) {
        fill_by_delay(s, shares[i]);
        try_kinds(s);
    }
    if (s->found) climb(s);
}

/* Whether there is work left for climbing after all rules were tried: it may start at an order that takes too long. */
static bool will_climb(const Plan *plan)
{
    enum { RULES = 21 };
    return RULES * 2 * (int64_t)plan->stage_count * plan->microbatches <= SEARCH_WORK;
}

void order_search(Order *order, const Plan *plan, const int *least, const int *most, int64_t most_ns, Arena *arena)
{
    size_t stages = (size_t)plan->stage_count;
    OrderSearch s = {.plan = plan,
                     .most = most,
                     .bound = order_bound(plan, most),
                     .work = SEARCH_WORK,
                     .best = order,
                     .depth = arena_new_array(arena, int, stages),
                     .best_depth = arena_new_array(arena, int, stages)};
    order->step_ns = will_climb(plan) ? INT64_MAX : most_ns;
    order_create(&s.trial, plan, arena);
    search(&s, least);
    if (!s.found) order->step_ns = INT64_MAX;
    order->rule = s.best_rule;
    order->rule.depth = s.best_depth;
}
