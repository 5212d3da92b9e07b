#include "partitioner/schedule/order.h"

#include "base/integers.h"

#include <string.h>

/* What a rank would do next. */
typedef struct Piece {
    int64_t start; /* INT64_MAX: nothing yet */
    int rank_of_choice;
    OrderStep step;
} Piece;

typedef struct Orderer {
    const Plan *plan;
    const OrderRule *rule;
    Order *order;
    Arena arena;
    int *done[3];        /* [forward, backward, weight gradient][stage] */
    int64_t *arrival[2]; /* [direction][stage * microbatches + microbatch]: of the message to the stage; -1: not sent */
    int64_t *link_free[2]; /* [direction][link] */
    int64_t *clock;        /* [rank] */
    int64_t *left[2];      /* [rank]: work that it has yet to do, all of it; and without weight gradients */
    int64_t *tail[2];      /* [rank]: what follows after each of these at least */
    int64_t most_ns;       /* longer orders are given up */
    Piece *next;           /* [rank] */
    int *winner;           /* a tournament among ranks: leaves at `leaves` + rank, the root at 1 */
    int leaves;
} Orderer;

enum { FORWARD, BACKWARD, WEIGHT };

static size_t message(const Orderer *o, int stage, int microbatch)
{
    return (size_t)stage * (size_t)o->plan->microbatches + (size_t)microbatch;
}

static bool splits(const Orderer *o, int stage) { return o->plan->stages[stage].weight_gradient_ns > 0; }

static int in_flight(const Orderer *o, int stage)
{
    return o->done[FORWARD][stage] - o->done[splits(o, stage) ? WEIGHT : BACKWARD][stage];
}

static void consider(Piece *best, int64_t start, int choice, OrderStep step)
{
    if (start < best->start || (start == best->start && choice < best->rank_of_choice))
        *best = (Piece){start, choice, step};
}

/* The next piece of a stage, if it can start at a time that is known. */
static void consider_stage(const Orderer *o, int stage, Piece *best)
{
    const Plan *plan = o->plan;
    int forwards = o->done[FORWARD][stage], backwards = o->done[BACKWARD][stage], weights = o->done[WEIGHT][stage];
    int64_t now = o->clock[plan->stages[stage].rank];
    bool room = forwards < plan->microbatches && in_flight(o, stage) < o->rule->depth[stage];
    if (room) {
        int64_t at = stage > 0 ? o->arrival[0][message(o, stage, forwards)] : 0;
        if (at >= 0)
            consider(best, larger(now, at), o->rule->forward_first ? 0 : 1, (OrderStep){SKY_FORWARD, stage, forwards});
    }
    if (backwards < forwards && !(o->rule->strict && room)) {
        int64_t at = stage + 1 < plan->stage_count ? o->arrival[1][message(o, stage, backwards)] : 0;
        if (at >= 0)
            consider(best, larger(now, at), o->rule->forward_first ? 1 : 0,
                     (OrderStep){SKY_BACKWARD, stage, backwards});
    }
    if (splits(o, stage) && weights < backwards)
        consider(best, now, 2, (OrderStep){SKY_WEIGHT_GRADIENT, stage, weights});
}

static void choose(Orderer *o, int rank)
{
    const PlanRank *r = &o->plan->ranks[rank];
    Piece best = {.start = INT64_MAX};
    for (int k = r->stage_count - 1; k >= 0; k--) consider_stage(o, r->stages[k], &best);
    o->next[rank] = best;
    for (int node = (o->leaves + rank) / 2; node >= 1; node /= 2) {
        int a = o->winner[2 * node], b = o->winner[2 * node + 1], before = o->winner[node];
        o->winner[node] = b < 0 || (a >= 0 && o->next[a].start <= o->next[b].start) ? a : b;
        if (o->winner[node] == before && before != rank) break; /* nothing changes further up */
    }
}

/* A message leaves the stage at `now`. */
static void send(Orderer *o, int stage, int microbatch, int direction, int64_t now)
{
    int to = direction == 0 ? stage + 1 : stage - 1, link = direction == 0 ? stage : stage - 1;
    if (to < 0 || to >= o->plan->stage_count) return;
    const PlanLink *l = &o->plan->links[link];
    int64_t *free_at = &o->link_free[l->half_duplex ? 0 : direction][link];
    *free_at = larger(*free_at, now + l->coding_ns[direction][0]) + l->transfer_ns[direction];
    int64_t arrival = *free_at + l->latency_ns[direction] + l->coding_ns[direction][1];
    o->arrival[direction][message(o, to, microbatch)] = arrival;
    int rank = o->plan->stages[to].rank;
    if (o->done[direction][to] == microbatch && o->next[rank].start >= arrival) choose(o, rank); /* else it can wait */
}

static void take(Orderer *o, int rank)
{
    Piece piece = o->next[rank];
    int stage = piece.step.stage;
    const PlanStage *s = &o->plan->stages[stage];
    Order *order = o->order;
    order->steps[rank][order->count[rank]++] = piece.step;
    int kind = piece.step.op == SKY_FORWARD ? FORWARD : piece.step.op == SKY_BACKWARD ? BACKWARD : WEIGHT;
    int64_t takes = kind == FORWARD    ? s->forward_ns
                    : kind == BACKWARD ? plan_stage_backward(s)
                                       : plan_stage_weight_gradient(s);
    o->clock[rank] = piece.start + takes;
    o->left[0][rank] -= takes;
    if (kind != WEIGHT) o->left[1][rank] -= takes;
    o->done[kind][stage]++;
    if (in_flight(o, stage) > order->in_flight[stage]) order->in_flight[stage] = in_flight(o, stage);
    if (kind != WEIGHT) send(o, stage, piece.step.microbatch, kind, o->clock[rank]);
    choose(o, rank);
}

/* After the last backward of a rank the gradient still has to get to the first stage; then there are updates. */
static void fill_left(Orderer *o)
{
    const Plan *plan = o->plan;
    int64_t *update = arena_new_array(&o->arena, int64_t, (size_t)plan->rank_count), back = 0;
    for (int i = 0; i < 2; i++) {
        o->left[i] = arena_new_array(&o->arena, int64_t, (size_t)plan->rank_count);
        o->tail[i] = arena_new_array(&o->arena, int64_t, (size_t)plan->rank_count);
    }
    for (int k = 0; k < plan->stage_count; k++) update[plan->stages[k].rank] += plan_stage_update(&plan->stages[k]);
    for (int k = 0; k < plan->stage_count; k++) {
        const PlanStage *stage = &plan->stages[k];
        int64_t backward = plan_stage_backward(stage);
        if (plan->ranks[stage->rank].stages[0] == k) o->tail[1][stage->rank] = back + update[plan->stages[0].rank];
        o->tail[0][stage->rank] = update[stage->rank];
        o->left[1][stage->rank] += plan->microbatches * (stage->forward_ns + backward);
        o->left[0][stage->rank] +=
            plan->microbatches * (stage->forward_ns + backward + plan_stage_weight_gradient(stage));
        if (k == plan->link_count) break;
        const PlanLink *link = &plan->links[k];
        back += backward + link->coding_ns[1][0] + link->transfer_ns[1] + link->latency_ns[1] + link->coding_ns[1][1];
    }
}

static bool is_too_late(const Orderer *o, int rank)
{
    int64_t now = o->next[rank].start;
    return now + o->left[0][rank] + o->tail[0][rank] > o->most_ns ||
           (o->left[1][rank] > 0 && now + o->left[1][rank] + o->tail[1][rank] > o->most_ns);
}

static void open_orderer(Orderer *o)
{
    size_t stages = (size_t)o->plan->stage_count, ranks = (size_t)o->plan->rank_count;
    size_t messages = stages * (size_t)o->plan->microbatches;
    for (int k = 0; k < 3; k++) o->done[k] = arena_new_array(&o->arena, int, stages);
    for (int d = 0; d < 2; d++) {
        o->link_free[d] = arena_new_array(&o->arena, int64_t, stages);
        o->arrival[d] = arena_new_array(&o->arena, int64_t, messages);
        memset(o->arrival[d], -1, messages * sizeof *o->arrival[d]);
    }
    o->clock = arena_new_array(&o->arena, int64_t, ranks);
    o->next = arena_new_array(&o->arena, Piece, ranks);
    for (o->leaves = 1; o->leaves < o->plan->rank_count;) o->leaves *= 2;
    o->winner = arena_new_array(&o->arena, int, 2 * (size_t)o->leaves);
    for (int k = 0; k < 2 * o->leaves; k++)
        o->winner[k] = k >= o->leaves && k - o->leaves < o->plan->rank_count ? k - o->leaves : -1;
}

static size_t steps_of(const Plan *plan, int rank)
{
    return 3 * (size_t)plan->ranks[rank].stage_count * (size_t)plan->microbatches;
}

void order_create(Order *order, const Plan *plan, Arena *arena)
{
    order->steps = arena_new_array(arena, OrderStep *, (size_t)plan->rank_count);
    order->count = arena_new_array(arena, int, (size_t)plan->rank_count);
    order->in_flight = arena_new_array(arena, int, (size_t)plan->stage_count);
    for (int r = 0; r < plan->rank_count; r++) order->steps[r] = arena_new_array(arena, OrderStep, steps_of(plan, r));
    order->step_ns = INT64_MAX;
}

static bool all_done(const Orderer *o)
{
    for (int k = 0; k < o->plan->stage_count; k++)
        if (o->done[splits(o, k) ? WEIGHT : BACKWARD][k] < o->plan->microbatches) return false;
    return true;
}

void order_follow(Order *order, const Plan *plan, const OrderRule *rule, int64_t most_ns)
{
    Orderer o = {.plan = plan, .rule = rule, .order = order, .most_ns = most_ns};
    open_orderer(&o);
    fill_left(&o);
    order->rule = *rule;
    memset(order->count, 0, (size_t)plan->rank_count * sizeof *order->count);
    memset(order->in_flight, 0, (size_t)plan->stage_count * sizeof *order->in_flight);
    for (int r = 0; r < plan->rank_count; r++) choose(&o, r);
    /* The rank whose next piece starts first: nothing that is still to happen can change what it does then. */
    for (int r = o.winner[1]; o.next[r].start < INT64_MAX && !is_too_late(&o, r); r = o.winner[1]) take(&o, r);
    order->step_ns = all_done(&o) ? 0 : INT64_MAX;
    for (int r = 0; r < plan->rank_count && order->step_ns < INT64_MAX; r++) {
        for (int k = 0; k < plan->ranks[r].stage_count; k++)
            o.clock[r] += plan_stage_update(&plan->stages[plan->ranks[r].stages[k]]);
        order->step_ns = larger(order->step_ns, o.clock[r]);
    }
    arena_free(&o.arena);
}
