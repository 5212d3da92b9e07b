#include "partitioner/loop.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "partitioner/allocate.h"

/* Cuts and counts are inclusive. */
typedef struct Node {
    int low, high;                       /* where the first stage ends */
    int least_in_flight, most_in_flight; /* of the first stage */
    int pins_in_front;                   /* of the device's own pins: how many the first stage has */
    int64_t bound;
} Node;

enum { MOST_TRIALS = 24 }; /* of local search */

typedef struct Loop {
    const Problem *problem;
    int device;
    Arena arena;
    struct ProblemPin *own; /* the device's pins but those of the two ends, in layer order */
    int own_count;
    Node *open;
    int open_count, open_capacity;
    Allocation *best, trial;
    AllocationValue value; /* of *best */
    bool found, timed_out;
    int64_t unresolved; /* bound of nodes that the solver gave up; INT64_MAX: none */
    double deadline;
} Loop;

/* ---- the chain between the two ends ---- */

/* In a node's problem device 0 is the first end, then the others in their order, and the last end. */
static int device_here(const Loop *loop, int there)
{
    if (there == 0 || there == loop->problem->device_count) return loop->device;
    return there <= loop->device ? there - 1 : there;
}

static int device_there(const Loop *loop, int here) { return here < loop->device ? here + 1 : here; }

static int64_t bytes_of(const Loop *loop, int start, int end, int in_flight)
{
    return loop->problem->recompute == RECOMPUTE_ALWAYS ? problem_recompute_bytes(loop->problem, start, end, in_flight)
                                                        : problem_stage_bytes(loop->problem, start, end, in_flight);
}

/* What is left for the last end at most, and what the first end may take at most. */
static void share_memory(const Loop *loop, const Node *node, int64_t *first, int64_t *last)
{
    const Problem *p = loop->problem;
    int64_t limit = p->type_limit[p->type_of[loop->device]], least = INT64_MAX, most = 0;
    *first = *last = limit;
    if (limit == COSTS_NO_LIMIT) return;
    for (int cut = node->low; cut <= node->high; cut++) {
        int64_t few = bytes_of(loop, 0, cut, node->least_in_flight),
                many = bytes_of(loop, 0, cut, node->most_in_flight);
        if (few < least) least = few;
        if (many > most) most = many;
    }
    *first = most < limit ? most : limit;
    *last = limit > least ? limit - least : 0;
}

/* The layers before `cut` cost the first end nothing and are the last end's from the start. */
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

static void pin_ends(const Loop *loop, const Node *node, Problem *problem)
{
    const Problem *p = loop->problem;
    int last_device = p->device_count, end = p->layer_count - 1, front = node->low, back = end, stop = node->high;
    for (int i = 0; i < loop->own_count; i++) {
        if (i < node->pins_in_front && loop->own[i].last_layer + 1 > front) front = loop->own[i].last_layer + 1;
        if (i >= node->pins_in_front && loop->own[i].first_layer < back) back = loop->own[i].first_layer;
    }
    if (stop > back) stop = back;
    problem_pin(problem, 0, front - 1, 0);
    problem_pin(problem, back, end, last_device);
    problem_forbid(problem, stop, end, 0);
    for (int i = 0; i < p->pin_count; i++)
        if (p->pins[i].device != loop->device)
            problem_pin(problem, p->pins[i].first_layer, p->pins[i].last_layer, device_there(loop, p->pins[i].device));
}

static bool create_node(const Loop *loop, const Node *node, Costs *costs, Arena *arena, Problem *problem)
{
    const Problem *p = loop->problem;
    Diagnostics ignored = {0};
    *costs = *p->costs;
    costs->device_count = p->device_count + 1;
    costs->devices = arena_new_array(arena, DeviceCost, (size_t)costs->device_count);
    for (int d = 0; d < costs->device_count; d++) costs->devices[d] = p->costs->devices[device_here(loop, d)];
    share_memory(loop, node, &costs->devices[0].memory_bytes, &costs->devices[p->device_count].memory_bytes);
    bool ok = problem_create_recomputing(problem, costs, p->objective, p->schedule, p->microbatches, p->recompute, NULL,
                                         &ignored);
    diagnostics_free(&ignored);
    if (!ok) return false;
    pin_ends(loop, node, problem);
    move_work(problem, 0, p->device_count, node->low);
    return true;
}

/* A node's allocation as one of the problem: a first end and a last end without anything between them are one stage. */
static void translate(const Loop *loop, const Allocation *from, Allocation *to)
{
    to->stage_count = 0;
    for (int k = 0; k < from->stage_count; k++) {
        int device = device_here(loop, from->device[k]);
        if (to->stage_count > 0 && to->device[to->stage_count - 1] == device) to->stage_count--;
        to->device[to->stage_count] = device;
        to->end[to->stage_count++] = from->end[k];
    }
}

/* ---- branch and bound ---- */

static int64_t objective_of(const Loop *loop, const AllocationValue *value)
{
    return loop->problem->objective == PLAN_OBJECTIVE_STEP ? value->step : value->period;
}

static AllocationValue offer(Loop *loop, const Allocation *allocation)
{
    AllocationValue value = allocation_evaluate(loop->problem, allocation);
    if (value.fits && (!loop->found || allocation_better(loop->problem, &value, &loop->value))) {
        allocation_copy(loop->best, allocation);
        loop->value = value;
        loop->found = true;
    }
    return value;
}

static bool is_worse(const Loop *loop, int64_t bound)
{
    return loop->found && bound >= objective_of(loop, &loop->value);
}

static void add_node(Loop *loop, Node node)
{
    if (node.low <= node.high && node.least_in_flight <= node.most_in_flight && !is_worse(loop, node.bound))
        array_push(loop->open, loop->open_count, loop->open_capacity, node);
}

static void split(Loop *loop, Node node, int cut)
{
    if (node.low < node.high) {
        int middle = cut > node.low ? cut : node.low + 1;
        Node below = node, above = node;
        below.high = middle - 1;
        above.low = middle;
        add_node(loop, below);
        add_node(loop, above);
    } else if (node.least_in_flight < node.most_in_flight) {
        int middle = node.least_in_flight + (node.most_in_flight - node.least_in_flight) / 2;
        Node few = node, many = node;
        few.most_in_flight = middle;
        many.least_in_flight = middle + 1;
        add_node(loop, few);
        add_node(loop, many);
    } else if (node.bound < loop->unresolved) {
        loop->unresolved = node.bound;
    }
}

static void examine(Loop *loop, Node node)
{
    Arena arena = {0};
    Costs costs;
    Problem problem;
    if (create_node(loop, &node, &costs, &arena, &problem)) {
        Allocation start = allocation_create(&arena, &problem), found = allocation_create(&arena, &problem);
        bool fits = allocate_heuristic(&problem, &start);
        double left = loop->deadline - monotonic_seconds();
        OptimalResult result = optimal_solve(&problem, fits ? &start : NULL, left > 0 ? left / 2 : 0, &found, NULL);
        loop->timed_out |= result.timed_out;
        if (!result.infeasible && result.bound > node.bound) node.bound = result.bound;
        if (result.found) {
            translate(loop, &found, &loop->trial);
            AllocationValue value = offer(loop, &loop->trial);
            bool solved = value.fits && objective_of(loop, &value) <= node.bound;
            if (!solved) split(loop, node, loop->trial.stage_count > 1 ? loop->trial.end[0] : node.low);
        } else if (!result.infeasible) {
            split(loop, node, node.low + (node.high - node.low + 1) / 2);
        }
        problem_free(&problem);
    }
    arena_free(&arena);
}

static Node take_lowest(Loop *loop)
{
    int lowest = 0;
    for (int i = 1; i < loop->open_count; i++)
        if (loop->open[i].bound < loop->open[lowest].bound) lowest = i;
    Node node = loop->open[lowest];
    loop->open[lowest] = loop->open[--loop->open_count];
    return node;
}

static Node whole(const Loop *loop)
{
    const Problem *p = loop->problem;
    return (Node){.low = 1,
                  .high = p->layer_count - 1,
                  .least_in_flight = problem_in_flight(p, 2),
                  .most_in_flight = problem_in_flight(p, p->device_count + 1)};
}

/* Pins of the device lie in its first stage up to some pin, and in its last one from there on. */
static void add_roots(Loop *loop)
{
    for (int front = 0; front <= loop->own_count; front++) {
        Node node = whole(loop);
        node.pins_in_front = front;
        if (front > 0) node.low = loop->own[front - 1].last_layer + 1;
        if (front < loop->own_count && loop->own[front].first_layer < node.high)
            node.high = loop->own[front].first_layer;
        add_node(loop, node);
    }
}

/* ---- everything around it ---- */

static int by_layer(const void *a, const void *b)
{
    const struct ProblemPin *x = a, *y = b;
    return x->first_layer != y->first_layer ? x->first_layer - y->first_layer : x->last_layer - y->last_layer;
}

static void open_loop(Loop *loop)
{
    const Problem *p = loop->problem;
    loop->trial = allocation_create(&loop->arena, p);
    loop->own = arena_new_array(&loop->arena, struct ProblemPin, (size_t)p->pin_count);
    for (int i = 0; i < p->pin_count; i++) {
        struct ProblemPin pin = p->pins[i];
        bool end = pin.first_layer == 0 || pin.last_layer == p->layer_count - 1;
        if (pin.device == loop->device && (!end || pin.first_layer < pin.last_layer))
            loop->own[loop->own_count++] = pin;
    }
    if (loop->own_count) qsort(loop->own, (size_t)loop->own_count, sizeof *loop->own, by_layer);
    for (int i = 1; i < loop->own_count; i++) /* overlapping ones: each reaches as far as those before it */
        if (loop->own[i].last_layer < loop->own[i - 1].last_layer)
            loop->own[i].last_layer = loop->own[i - 1].last_layer;
}

static void offer_one_stage(Loop *loop)
{
    loop->trial.stage_count = 1;
    loop->trial.device[0] = loop->device;
    loop->trial.end[0] = loop->problem->layer_count;
    offer(loop, &loop->trial);
}

static void run_baselines(Loop *loop, Allocation *allocations, bool *known)
{
    Arena arena = {0};
    Costs costs;
    Problem problem;
    Node node = whole(loop);
    if (node.low <= node.high && create_node(loop, &node, &costs, &arena, &problem)) {
        Allocation all = allocation_create(&arena, &problem);
        allocate_even(&problem, &all);
        translate(loop, &all, &allocations[PLAN_EVEN]);
        known[PLAN_EVEN] = true;
        known[PLAN_SKY] = allocate_sky(&problem, &all);
        translate(loop, &all, &allocations[PLAN_SKY]);
        known[PLAN_HEURISTIC] = allocate_heuristic(&problem, &all);
        translate(loop, &all, &allocations[PLAN_HEURISTIC]);
        if (known[PLAN_HEURISTIC]) known[PLAN_HEURISTIC] = offer(loop, &allocations[PLAN_HEURISTIC]).fits;
        problem_free(&problem);
    }
    arena_free(&arena);
}

/* ---- local search ---- */

/* The best allocation as one of a node whose first stage ends at `cut`. */
static void follow_best(const Loop *loop, int cut, Allocation *chain)
{
    int n = loop->problem->layer_count;
    chain->stage_count = 1;
    chain->device[0] = 0;
    chain->end[0] = cut;
    for (int k = 1; k + 1 < loop->best->stage_count; k++) {
        if (loop->best->end[k] <= cut) continue;
        chain->device[chain->stage_count] = device_there(loop, loop->best->device[k]);
        chain->end[chain->stage_count++] = loop->best->end[k];
    }
    chain->device[chain->stage_count] = loop->problem->device_count;
    chain->end[chain->stage_count++] = n;
}

/* Plans again with the first stage ending at `cut`; whether that is better than the best so far. */
static bool try_cut(Loop *loop, int cut, int neighbourhoods)
{
    Arena arena = {0};
    Costs costs;
    Problem problem;
    AllocationValue before = loop->value;
    bool had = loop->found;
    int flights = problem_in_flight(loop->problem, loop->best->stage_count > 2 ? loop->best->stage_count : 2);
    Node node = {.low = cut, .high = cut, .least_in_flight = flights, .most_in_flight = flights};
    while (node.pins_in_front < loop->own_count && loop->own[node.pins_in_front].first_layer < cut)
        node.pins_in_front++;
    if (cut < 1 || cut >= loop->problem->layer_count) return false;
    if (create_node(loop, &node, &costs, &arena, &problem)) {
        Allocation chain = allocation_create(&arena, &problem);
        follow_best(loop, cut, &chain);
        if (replan(&problem, &chain, neighbourhoods, loop->deadline).found) {
            translate(loop, &chain, &loop->trial);
            offer(loop, &loop->trial);
        }
        problem_free(&problem);
    }
    arena_free(&arena);
    return loop->found && (!had || allocation_better(loop->problem, &loop->value, &before));
}

/* Moves the first stage's end as long as that helps, in ever smaller steps. */
static void climb(Loop *loop, int neighbourhoods, int trials)
{
    int n = loop->problem->layer_count, cut = loop->best->stage_count > 1 ? loop->best->end[0] : n / 2;
    try_cut(loop, cut, neighbourhoods);
    for (int step = n / 8 > 0 ? n / 8 : 1; step > 0; step /= 2)
        for (int side = -1; side <= 1; side += 2)
            while (trials-- > 0 && monotonic_seconds() < loop->deadline && try_cut(loop, cut + side * step, 0))
                cut += side * step;
}

LoopResult loop_solve(const Problem *problem, int device, double seconds, Allocation *allocations)
{
    Loop loop = {.problem = problem,
                 .device = device,
                 .best = &allocations[PLAN_OPTIMAL],
                 .unresolved = INT64_MAX,
                 .deadline = monotonic_seconds() + seconds};
    LoopResult result = {0};
    open_loop(&loop);
    offer_one_stage(&loop);
    run_baselines(&loop, allocations, result.known);
    if (!replan_is_tiny(problem)) climb(&loop, 2, MOST_TRIALS);
    add_roots(&loop);
    while (loop.open_count > 0) {
        Node node = take_lowest(&loop);
        if (is_worse(&loop, node.bound)) continue;
        if (monotonic_seconds() > loop.deadline) {
            loop.timed_out = true;
            loop.open[loop.open_count++] = node; /* its place is still there */
            break;
        }
        examine(&loop, node);
    }
    if (loop.timed_out && loop.found) { /* what the nodes found is no local optimum yet */
        loop.deadline = monotonic_seconds() + seconds / 10;
        climb(&loop, 2, MOST_TRIALS);
    }
    result.optimal.found = result.known[PLAN_OPTIMAL] = loop.found;
    result.optimal.value = loop.found ? objective_of(&loop, &loop.value) : 0;
    result.optimal.bound = loop.found ? result.optimal.value : INT64_MAX;
    if (loop.unresolved < result.optimal.bound) result.optimal.bound = loop.unresolved;
    for (int i = 0; i < loop.open_count; i++)
        if (loop.open[i].bound < result.optimal.bound) result.optimal.bound = loop.open[i].bound;
    result.optimal.infeasible = !loop.found && loop.open_count == 0 && loop.unresolved == INT64_MAX;
    result.optimal.timed_out = loop.timed_out && result.optimal.bound < result.optimal.value;
    free(loop.open);
    arena_free(&loop.arena);
    return result;
}

Replanned loop_replan(const Problem *problem, int device, Allocation *allocation, int neighbourhoods, double deadline)
{
    Loop loop = {.problem = problem, .device = device, .deadline = deadline > 0 ? deadline : HUGE_VAL};
    int64_t trials = 60000 / ((int64_t)problem->layer_count * problem->device_count);
    Allocation all[PLAN_ALLOCATOR_COUNT];
    Replanned result = {0};
    open_loop(&loop);
    for (int a = 0; a < PLAN_ALLOCATOR_COUNT; a++) all[a] = allocation_create(&loop.arena, problem);
    loop.best = &all[PLAN_OPTIMAL];
    if (replan_is_tiny(problem)) {
        OptimalResult best = loop_solve(problem, device, 1e9, all).optimal;
        result = (Replanned){best.found, best.infeasible || (best.found && best.bound >= best.value), best.value};
    } else {
        allocation_copy(loop.best, allocation);
        offer(&loop, allocation);
        offer_one_stage(&loop);
        climb(&loop, neighbourhoods, trials < 2 ? 2 : trials > MOST_TRIALS ? MOST_TRIALS : (int)trials);
        result = (Replanned){loop.found, false, loop.found ? objective_of(&loop, &loop.value) : 0};
    }
    if (result.found) allocation_copy(allocation, loop.best);
    arena_free(&loop.arena);
    return result;
}

int64_t loop_least_memory(const Problem *problem, int device)
{
    int64_t low = -1, high = problem_stage_bytes(problem, 0, problem->layer_count, problem->microbatches);
    int64_t fine = high >> 20; /* a millionth of what is enough for all layers */
    Arena arena = {0};
    Allocation all[PLAN_ALLOCATOR_COUNT];
    for (int a = 0; a < PLAN_ALLOCATOR_COUNT; a++) all[a] = allocation_create(&arena, problem);
    while (high - low > 1 + fine) { /* with `high` one stage fits */
        int64_t middle = low + (high - low) / 2;
        Costs costs = *problem->costs;
        Problem other;
        costs.devices = arena_copy(&arena, problem->costs->devices, (size_t)costs.device_count * sizeof *costs.devices);
        costs.devices[device].memory_bytes = middle;
        bool fits = problem_derive(&other, problem, &costs, problem->microbatches, problem->recompute, NULL) &&
                    loop_solve(&other, device, 0.5, all).optimal.found;
        problem_free(&other);
        *(fits ? &high : &low) = middle;
    }
    arena_free(&arena);
    return high;
}
