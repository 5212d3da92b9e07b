#include "partitioner/solve/keeper_node.h"

#include <stdlib.h>

static int by_layer(const void *a, const void *b)
{
    const ProblemPin *x = a, *y = b;
    return x->first_layer != y->first_layer ? x->first_layer - y->first_layer : x->last_layer - y->last_layer;
}

void keeper_open(KeeperFrame *frame, const Problem *p, int device, Arena *arena)
{
    *frame = (KeeperFrame){.problem = p, .device = device};
    frame->own = arena_new_array(arena, ProblemPin, (size_t)p->pin_count);
    for (int i = 0; i < p->pin_count; i++) {
        ProblemPin pin = p->pins[i];
        bool end = pin.first_layer == 0 || pin.last_layer == p->layer_count - 1;
        if (pin.device == frame->device && (!end || pin.first_layer < pin.last_layer))
            frame->own[frame->own_count++] = pin;
    }
    if (frame->own_count) qsort(frame->own, (size_t)frame->own_count, sizeof *frame->own, by_layer);
    for (int i = 1; i < frame->own_count; i++) /* overlapping pins: each reaches as far as those before it */
        if (frame->own[i].last_layer < frame->own[i - 1].last_layer)
            frame->own[i].last_layer = frame->own[i - 1].last_layer;
}

KeeperNode keeper_whole(const KeeperFrame *frame)
{
    const Problem *p = frame->problem;
    return (KeeperNode){.low = 1,
                        .high = p->layer_count - 1,
                        .least_in_flight = problem_in_flight(p, 2),
                        .most_in_flight = problem_in_flight(p, p->device_count + 1)};
}

KeeperNode keeper_root(const KeeperFrame *frame, int front)
{
    KeeperNode node = keeper_whole(frame);
    node.pins_in_front = front;
    if (front > 0) node.low = frame->own[front - 1].last_layer + 1;
    if (front < frame->own_count && frame->own[front].first_layer < node.high)
        node.high = frame->own[front].first_layer;
    return node;
}

bool keeper_split(const KeeperNode *node, int cut, KeeperNode children[2])
{
    children[0] = children[1] = *node;
    if (node->low < node->high) {
        int middle = cut > node->low ? cut : node->low + 1;
        children[0].high = middle - 1;
        children[1].low = middle;
    } else if (node->least_in_flight < node->most_in_flight) {
        int middle = node->least_in_flight + (node->most_in_flight - node->least_in_flight) / 2;
        children[0].most_in_flight = middle;
        children[1].least_in_flight = middle + 1;
    } else {
        return false;
    }
    return true;
}

/* In a node's problem, device 0 is the first end, then come the other devices in their order, then the last end. */
int keeper_device_here(const KeeperFrame *frame, int there)
{
    if (there == 0 || there == frame->problem->device_count) return frame->device;
    return there <= frame->device ? there - 1 : there;
}

int keeper_device_there(const KeeperFrame *frame, int here) { return here < frame->device ? here + 1 : here; }

static int64_t first_end_bytes(const KeeperFrame *frame, int cut, int in_flight)
{
    bool plain = frame->recomputing && !frame->recomputing[0];
    return (plain ? problem_stage_bytes : problem_least_bytes)(frame->problem, 0, cut, in_flight);
}

/* The most memory for the last end and the most for the first end. */
static void share_memory(const KeeperFrame *frame, const KeeperNode *node, int64_t *first, int64_t *last)
{
    const Problem *p = frame->problem;
    int64_t limit = p->type_limit[p->type_of[frame->device]], least = INT64_MAX, most = 0;
    *first = *last = limit;
    if (limit == COSTS_NO_LIMIT) return;
    for (int cut = node->low; cut <= node->high; cut++) {
        int64_t few = first_end_bytes(frame, cut, node->least_in_flight),
                many = first_end_bytes(frame, cut, node->most_in_flight);
        if (few < least) least = few;
        if (many > most) most = many;
    }
    *first = most < limit ? most : limit;
    *last = limit > least ? limit - least : 0;
}

/* Charges the layers before `cut` to the last end, so that they cost the first end nothing. */
static void move_work(Problem *node, int first, int last, int cut)
{
    size_t cuts = (size_t)node->layer_count + 1;
    int64_t *sums[] = {node->forward, node->work, node->update};
    for (size_t k = 0; k < sizeof sums / sizeof *sums; k++) {
        int64_t *front = sums[k] + cuts * (size_t)node->type_of[first],
                *back = sums[k] + cuts * (size_t)node->type_of[last];
        int64_t moved = front[cut];
        for (size_t c = 0; c < cuts; c++) front[c] = (int)c < cut ? 0 : front[c] - moved;
        back[node->layer_count] += moved;
    }
    for (int end = 0; end < 2; end++) {
        size_t base = cuts * (size_t)node->type_of[end ? last : first];
        for (size_t c = 0; c < cuts; c++) node->work_f[base + c] = (double)node->work[base + c];
    }
}

static void pin_ends(const KeeperFrame *frame, const KeeperNode *node, Problem *problem)
{
    const Problem *p = frame->problem;
    int last_device = p->device_count, end = p->layer_count - 1, front = node->low, back = end, stop = node->high;
    for (int i = 0; i < frame->own_count; i++) {
        if (i < node->pins_in_front && frame->own[i].last_layer + 1 > front) front = frame->own[i].last_layer + 1;
        if (i >= node->pins_in_front && frame->own[i].first_layer < back) back = frame->own[i].first_layer;
    }
    if (stop > back) stop = back;
    problem_pin(problem, 0, front - 1, 0);
    problem_pin(problem, back, end, last_device);
    problem_forbid(problem, stop, end, 0);
    for (int i = 0; i < p->pin_count; i++)
        if (p->pins[i].device != frame->device)
            problem_pin(problem, p->pins[i].first_layer, p->pins[i].last_layer,
                        keeper_device_there(frame, p->pins[i].device));
}

bool keeper_create_node(const KeeperFrame *frame, const KeeperNode *node, Costs *costs, Arena *arena, Problem *problem)
{
    const Problem *p = frame->problem;
    Diagnostics ignored = {0};
    *costs = *p->costs;
    costs->device_count = p->device_count + 1;
    costs->devices = arena_new_array(arena, DeviceCost, (size_t)costs->device_count);
    for (int d = 0; d < costs->device_count; d++) costs->devices[d] = p->costs->devices[keeper_device_here(frame, d)];
    costs->devices[0].name = KEEPER_FIRST_END;
    share_memory(frame, node, &costs->devices[0].memory_bytes, &costs->devices[p->device_count].memory_bytes);
    bool ok = problem_create_recomputing(problem, costs, p->objective, p->schedule, p->microbatches, p->recompute,
                                         frame->recomputing, &ignored);
    diagnostics_free(&ignored);
    if (!ok) return false;
    problem_limit_in_flight(problem, p->in_flight_limit);
    problem->watch = p->watch;
    pin_ends(frame, node, problem);
    move_work(problem, 0, p->device_count, node->low);
    return true;
}

/* Turns a node's allocation into one of the problem. A first end next to the last end becomes one stage with it. */
void keeper_translate(const KeeperFrame *frame, const Allocation *from, Allocation *to)
{
    to->stage_count = 0;
    for (int k = 0; k < from->stage_count; k++) {
        int device = keeper_device_here(frame, from->device[k]);
        if (to->stage_count > 0 && to->device[to->stage_count - 1] == device) to->stage_count--;
        to->device[to->stage_count] = device;
        to->end[to->stage_count++] = from->end[k];
    }
}

void keeper_trail_free(KeeperTrail *trail)
{
    for (int i = 0; i < trail->count; i++) evidence_free(&trail->steps[i].evidence);
    free(trail->steps);
    *trail = (KeeperTrail){0};
}
