#include "partitioner/loop.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "partitioner/allocate.h"
#include "partitioner/recompute.h"

enum { MOST_TRIALS = 24 }; /* of local search */

typedef struct Loop {
    LoopFrame frame;
    Arena arena;
    LoopNode *open;
    int open_count, open_capacity;
    LoopTrail *trail; /* or NULL */
    Allocation *best, trial;
    AllocationValue value; /* of *best */
    bool found, timed_out;
    bool settled;       /* values count what recomputation takes */
    int64_t unresolved; /* bound of nodes that the solver gave up; INT64_MAX: none */
    double deadline;
} Loop;

/* ---- branch and bound ---- */

static int64_t objective_of(const Loop *loop, const AllocationValue *value)
{
    return loop->frame.problem->objective == PLAN_OBJECTIVE_STEP ? value->step : value->period;
}

static AllocationValue offer(Loop *loop, const Allocation *allocation)
{
    AllocationValue value = loop->settled ? allocation_settle(loop->frame.problem, allocation)
                                          : allocation_evaluate(loop->frame.problem, allocation);
    if (value.fits && (!loop->found || allocation_better(loop->frame.problem, &value, &loop->value))) {
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

/* `parent`: a step of the trail, or -1. */
static void add_node(Loop *loop, LoopNode node, int parent)
{
    if (node.low > node.high || node.least_in_flight > node.most_in_flight || is_worse(loop, node.bound)) return;
    if (loop->trail) {
        node.step = loop->trail->count;
        array_push(loop->trail->steps, loop->trail->count, loop->trail->capacity,
                   ((LoopStep){.node = node, .parent = parent}));
        if (parent >= 0) loop->trail->steps[parent].split = true;
    }
    array_push(loop->open, loop->open_count, loop->open_capacity, node);
}

static void split(Loop *loop, LoopNode node, int cut)
{
    if (node.low < node.high) {
        int middle = cut > node.low ? cut : node.low + 1;
        LoopNode below = node, above = node;
        below.high = middle - 1;
        above.low = middle;
        add_node(loop, below, node.step);
        add_node(loop, above, node.step);
    } else if (node.least_in_flight < node.most_in_flight) {
        int middle = node.least_in_flight + (node.most_in_flight - node.least_in_flight) / 2;
        LoopNode few = node, many = node;
        few.most_in_flight = middle;
        many.least_in_flight = middle + 1;
        add_node(loop, few, node.step);
        add_node(loop, many, node.step);
    } else if (node.bound < loop->unresolved) {
        loop->unresolved = node.bound;
    }
}

static void examine(Loop *loop, LoopNode node)
{
    Arena arena = {0};
    Costs costs;
    Problem problem;
    if (loop_create_node(&loop->frame, &node, &costs, &arena, &problem)) {
        Allocation start = allocation_create(&arena, &problem), found = allocation_create(&arena, &problem);
        bool fits = allocate_heuristic(&problem, &start);
        double left = loop->deadline - monotonic_seconds();
        LoopStep *step = loop->trail ? &loop->trail->steps[node.step] : NULL;
        OptimalResult result = optimal_solve(&problem, fits ? &start : NULL, left > 0 ? left / 2 : 0, &found,
                                             step ? &step->evidence : NULL);
        loop->timed_out |= result.timed_out;
        if (!result.infeasible && result.bound > node.bound) node.bound = result.bound;
        if (step) step->node.bound = result.infeasible ? INT64_MAX : node.bound;
        if (result.found) {
            loop_translate(&loop->frame, &found, &loop->trial);
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

static LoopNode take_lowest(Loop *loop)
{
    int lowest = 0;
    for (int i = 1; i < loop->open_count; i++)
        if (loop->open[i].bound < loop->open[lowest].bound) lowest = i;
    LoopNode node = loop->open[lowest];
    loop->open[lowest] = loop->open[--loop->open_count];
    return node;
}

static LoopNode whole(const Loop *loop)
{
    const Problem *p = loop->frame.problem;
    return (LoopNode){.low = 1,
                      .high = p->layer_count - 1,
                      .least_in_flight = problem_in_flight(p, 2),
                      .most_in_flight = problem_in_flight(p, p->device_count + 1)};
}

/* Pins of the device lie in its first stage up to some pin, and in its last one from there on. */
static void add_roots(Loop *loop)
{
    for (int front = 0; front <= loop->frame.own_count; front++) {
        LoopNode node = whole(loop);
        node.pins_in_front = front;
        if (front > 0) node.low = loop->frame.own[front - 1].last_layer + 1;
        if (front < loop->frame.own_count && loop->frame.own[front].first_layer < node.high)
            node.high = loop->frame.own[front].first_layer;
        add_node(loop, node, -1);
    }
}

/* ---- everything around it ---- */

static void open_loop(Loop *loop, const Problem *problem, int device)
{
    loop->trial = allocation_create(&loop->arena, problem);
    loop_open(&loop->frame, problem, device, &loop->arena);
}

static void offer_one_stage(Loop *loop)
{
    loop->trial.stage_count = 1;
    loop->trial.device[0] = loop->frame.device;
    loop->trial.end[0] = loop->frame.problem->layer_count;
    offer(loop, &loop->trial);
}

static void run_baselines(Loop *loop, Allocation *allocations, bool *known)
{
    Arena arena = {0};
    Costs costs;
    Problem problem;
    LoopNode node = whole(loop);
    if (node.low <= node.high && loop_create_node(&loop->frame, &node, &costs, &arena, &problem)) {
        Allocation all = allocation_create(&arena, &problem);
        allocate_even(&problem, &all);
        loop_translate(&loop->frame, &all, &allocations[PLAN_EVEN]);
        known[PLAN_EVEN] = true;
        known[PLAN_SKY] = allocate_sky(&problem, &all);
        loop_translate(&loop->frame, &all, &allocations[PLAN_SKY]);
        known[PLAN_HEURISTIC] = allocate_heuristic(&problem, &all);
        loop_translate(&loop->frame, &all, &allocations[PLAN_HEURISTIC]);
        if (known[PLAN_HEURISTIC]) known[PLAN_HEURISTIC] = offer(loop, &allocations[PLAN_HEURISTIC]).fits;
        problem_free(&problem);
    }
    arena_free(&arena);
}

/* ---- local search ---- */

/* The best allocation as one of a node whose first stage ends at `cut`. */
static void follow_best(const Loop *loop, int cut, Allocation *chain)
{
    int n = loop->frame.problem->layer_count;
    chain->stage_count = 1;
    chain->device[0] = 0;
    chain->end[0] = cut;
    for (int k = 1; k + 1 < loop->best->stage_count; k++) {
        if (loop->best->end[k] <= cut) continue;
        chain->device[chain->stage_count] = loop_device_there(&loop->frame, loop->best->device[k]);
        chain->end[chain->stage_count++] = loop->best->end[k];
    }
    chain->device[chain->stage_count] = loop->frame.problem->device_count;
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
    int flights = problem_in_flight(loop->frame.problem, loop->best->stage_count > 2 ? loop->best->stage_count : 2);
    LoopNode node = {.low = cut, .high = cut, .least_in_flight = flights, .most_in_flight = flights};
    while (node.pins_in_front < loop->frame.own_count && loop->frame.own[node.pins_in_front].first_layer < cut)
        node.pins_in_front++;
    if (cut < 1 || cut >= loop->frame.problem->layer_count) return false;
    if (loop_create_node(&loop->frame, &node, &costs, &arena, &problem)) {
        Allocation chain = allocation_create(&arena, &problem);
        follow_best(loop, cut, &chain);
        if (replan(&problem, &chain, neighbourhoods, loop->deadline).found) {
            loop_translate(&loop->frame, &chain, &loop->trial);
            offer(loop, &loop->trial);
        }
        problem_free(&problem);
    }
    arena_free(&arena);
    return loop->found && (!had || allocation_better(loop->frame.problem, &loop->value, &before));
}

/* Moves the first stage's end as long as that helps, in ever smaller steps. */
static void climb(Loop *loop, int neighbourhoods, int trials)
{
    int n = loop->frame.problem->layer_count, cut = loop->best->stage_count > 1 ? loop->best->end[0] : n / 2;
    try_cut(loop, cut, neighbourhoods);
    for (int step = n / 8 > 0 ? n / 8 : 1; step > 0; step /= 2)
        for (int side = -1; side <= 1; side += 2)
            while (trials-- > 0 && monotonic_seconds() < loop->deadline && try_cut(loop, cut + side * step, 0))
                cut += side * step;
}

LoopResult loop_solve(const Problem *problem, int device, double seconds, Allocation *allocations, LoopTrail *trail)
{
    Loop loop = {.trail = trail,
                 .best = &allocations[PLAN_OPTIMAL],
                 .unresolved = INT64_MAX,
                 .deadline = monotonic_seconds() + seconds};
    LoopResult result = {0};
    open_loop(&loop, problem, device);
    offer_one_stage(&loop);
    run_baselines(&loop, allocations, result.known);
    if (!replan_is_tiny(problem)) climb(&loop, 2, MOST_TRIALS);
    add_roots(&loop);
    while (loop.open_count > 0) {
        LoopNode node = take_lowest(&loop);
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
    Loop loop = {.settled = true, .deadline = deadline > 0 ? deadline : HUGE_VAL};
    int64_t trials = 60000 / ((int64_t)problem->layer_count * problem->device_count);
    Allocation all[PLAN_ALLOCATOR_COUNT];
    Replanned result = {0};
    open_loop(&loop, problem, device);
    for (int a = 0; a < PLAN_ALLOCATOR_COUNT; a++) all[a] = allocation_create(&loop.arena, problem);
    loop.best = &all[PLAN_OPTIMAL];
    if (replan_is_tiny(problem)) {
        OptimalResult best = recompute_loop(problem, device, 1e9, all, NULL).optimal;
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
                    loop_solve(&other, device, 0.5, all, NULL).optimal.found;
        problem_free(&other);
        *(fits ? &high : &low) = middle;
    }
    arena_free(&arena);
    return high;
}
