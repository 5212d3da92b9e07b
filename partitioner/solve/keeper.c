#include "partitioner/solve/keeper.h"

#include <stdlib.h>
#include <string.h>

#include "partitioner/sizes.h"
#include "partitioner/solve/allocate.h"

enum { MOST_TRIALS = 24 }; /* of local search */

typedef struct Keeper {
    KeeperFrame frame;
    Arena arena;
    KeeperNode *open;
    int open_count, open_capacity;
    KeeperTrail *trail; /* or NULL */
    Incumbent best;
    Allocation trial;
    bool timed_out;
    int64_t unresolved; /* least bound of the nodes that the solver gave up; INT64_MAX: none */
    double deadline;
} Keeper;

/* ---- branch and bound ---- */

static bool is_worse(const Keeper *keeper, int64_t bound)
{
    return keeper->best.found && bound >= incumbent_objective(&keeper->best);
}

/* `parent`: a step of the trail, or -1. */
static void add_node(Keeper *keeper, KeeperNode node, int parent)
{
    if (node.low > node.high || node.least_in_flight > node.most_in_flight || is_worse(keeper, node.bound)) return;
    if (keeper->trail) {
        node.step = keeper->trail->count;
        array_push(keeper->trail->steps, keeper->trail->count, keeper->trail->capacity,
                   ((KeeperStep){.node = node, .parent = parent}));
        if (parent >= 0) keeper->trail->steps[parent].split = true;
    }
    array_push(keeper->open, keeper->open_count, keeper->open_capacity, node);
}

static void split(Keeper *keeper, KeeperNode node, int cut)
{
    KeeperNode children[2];
    if (keeper_split(&node, cut, children)) {
        for (int i = 0; i < 2; i++) add_node(keeper, children[i], node.step);
    } else if (node.bound < keeper->unresolved) {
        keeper->unresolved = node.bound;
    }
}

static void examine(Keeper *keeper, KeeperNode node)
{
    FREED_WITH(arena_free) Arena arena = {0};
    Costs costs;
    Problem problem;
    if (keeper_create_node(&keeper->frame, &node, &costs, &arena, &problem)) {
        Allocation start = allocation_create(&arena, &problem), found = allocation_create(&arena, &problem);
        bool fits = allocate_heuristic(&problem, &start);
        double left = keeper->deadline - watch_seconds(keeper->frame.problem->watch);
        KeeperStep *step = keeper->trail ? &keeper->trail->steps[node.step] : NULL;
        OptimalResult result = optimal_solve(&problem, fits ? &start : NULL, left > 0 ? left / 2 : 0, &found,
                                             step ? &step->evidence : NULL);
        keeper->timed_out |= result.timed_out;
        if (!result.infeasible && result.bound > node.bound) node.bound = result.bound;
        if (step) step->node.bound = result.infeasible ? INT64_MAX : node.bound;
        if (result.found) {
            keeper_translate(&keeper->frame, &found, &keeper->trial);
            incumbent_offer(&keeper->best, &keeper->trial);
            AllocationValue value = incumbent_evaluate(&keeper->best, &keeper->trial);
            bool solved = value.fits && allocation_objective(keeper->frame.problem, &value) <= node.bound;
            if (!solved) split(keeper, node, keeper->trial.stage_count > 1 ? keeper->trial.end[0] : node.low);
        } else if (!result.infeasible) {
            split(keeper, node, node.low + (node.high - node.low + 1) / 2);
        }
        problem_free(&problem);
    }
}

static KeeperNode take_lowest(Keeper *keeper)
{
    int lowest = 0;
    for (int i = 1; i < keeper->open_count; i++)
        if (keeper->open[i].bound < keeper->open[lowest].bound) lowest = i;
    KeeperNode node = keeper->open[lowest];
    keeper->open[lowest] = keeper->open[--keeper->open_count];
    return node;
}

/* The device's first stage has its pins up to some pin, its last stage has the others. */
static void add_roots(Keeper *keeper)
{
    for (int front = 0; front <= keeper->frame.own_count; front++)
        add_node(keeper, keeper_root(&keeper->frame, front), -1);
}

static void open_keeper(Keeper *keeper, const Problem *problem, int device)
{
    keeper->trial = allocation_create(&keeper->arena, problem);
    keeper_open(&keeper->frame, problem, device, &keeper->arena);
}

static void offer_one_stage(Keeper *keeper)
{
    keeper->trial.stage_count = 1;
    keeper->trial.device[0] = keeper->frame.device;
    keeper->trial.end[0] = keeper->frame.problem->layer_count;
    incumbent_offer(&keeper->best, &keeper->trial);
}

static void run_baselines(Keeper *keeper, Allocation *allocations, bool *known)
{
    FREED_WITH(arena_free) Arena arena = {0};
    Costs costs;
    Problem problem;
    KeeperNode node = keeper_whole(&keeper->frame);
    if (node.low <= node.high && keeper_create_node(&keeper->frame, &node, &costs, &arena, &problem)) {
        Allocation all = allocation_create(&arena, &problem);
        allocate_even(&problem, &all);
        keeper_translate(&keeper->frame, &all, &allocations[PLAN_EVEN]);
        known[PLAN_EVEN] = true;
        known[PLAN_SKY] = allocate_sky(&problem, &all);
        keeper_translate(&keeper->frame, &all, &allocations[PLAN_SKY]);
        known[PLAN_HEURISTIC] = allocate_heuristic(&problem, &all);
        keeper_translate(&keeper->frame, &all, &allocations[PLAN_HEURISTIC]);
        if (known[PLAN_HEURISTIC]) {
            incumbent_offer(&keeper->best, &allocations[PLAN_HEURISTIC]);
            known[PLAN_HEURISTIC] = incumbent_evaluate(&keeper->best, &allocations[PLAN_HEURISTIC]).fits;
        }
        problem_free(&problem);
    }
}

void keeper_baselines(const Problem *problem, int device, Allocation *allocations, bool *known)
{
    Keeper keeper = {.best = {.problem = problem, .allocation = &allocations[PLAN_OPTIMAL]}};
    open_keeper(&keeper, problem, device);
    run_baselines(&keeper, allocations, known);
    arena_free(&keeper.arena);
}

/* ---- local search ---- */

/* Makes the best allocation one of a node whose first stage ends at `cut`. */
static void follow_best(const Keeper *keeper, int cut, Allocation *chain)
{
    int n = keeper->frame.problem->layer_count;
    chain->stage_count = 1;
    chain->device[0] = 0;
    chain->end[0] = cut;
    for (int k = 1; k + 1 < keeper->best.allocation->stage_count; k++) {
        if (keeper->best.allocation->end[k] <= cut) continue;
        chain->device[chain->stage_count] = keeper_device_there(&keeper->frame, keeper->best.allocation->device[k]);
        chain->end[chain->stage_count++] = keeper->best.allocation->end[k];
    }
    chain->device[chain->stage_count] = keeper->frame.problem->device_count;
    chain->end[chain->stage_count++] = n;
}

/* Plans again with the first stage ending at `cut`. Returns whether that beats the best so far. */
static bool try_cut(Keeper *keeper, int cut, int neighbourhoods)
{
    FREED_WITH(arena_free) Arena arena = {0};
    Costs costs;
    Problem problem;
    AllocationValue before = keeper->best.value;
    bool had = keeper->best.found;
    int flights = problem_in_flight(
        keeper->frame.problem, keeper->best.allocation->stage_count > 2 ? keeper->best.allocation->stage_count : 2);
    KeeperNode node = {.low = cut, .high = cut, .least_in_flight = flights, .most_in_flight = flights};
    while (node.pins_in_front < keeper->frame.own_count && keeper->frame.own[node.pins_in_front].first_layer < cut)
        node.pins_in_front++;
    if (cut < 1 || cut >= keeper->frame.problem->layer_count) return false;
    if (keeper_create_node(&keeper->frame, &node, &costs, &arena, &problem)) {
        Allocation chain = allocation_create(&arena, &problem);
        follow_best(keeper, cut, &chain);
        if (replan(&problem, &chain, neighbourhoods, keeper->deadline).found) {
            keeper_translate(&keeper->frame, &chain, &keeper->trial);
            incumbent_offer(&keeper->best, &keeper->trial);
        }
        problem_free(&problem);
    }
    return keeper->best.found && (!had || allocation_better(keeper->frame.problem, &keeper->best.value, &before));
}

/* Moves the end of the first stage in ever smaller steps, as long as that helps. */
static void climb(Keeper *keeper, int neighbourhoods, int trials)
{
    int n = keeper->frame.problem->layer_count,
        cut = keeper->best.allocation->stage_count > 1 ? keeper->best.allocation->end[0] : n / 2;
    try_cut(keeper, cut, neighbourhoods);
    for (int step = n / 8 > 0 ? n / 8 : 1; step > 0; step /= 2)
        for (int side = -1; side <= 1; side += 2)
            while (trials-- > 0 && !watch_passed(keeper->frame.problem->watch, keeper->deadline) &&
                   try_cut(keeper, cut + side * step, 0))
                cut += side * step;
}

KeeperResult keeper_solve(const Problem *problem, int device, const bool *recomputing, double seconds,
                          Allocation *allocations, KeeperTrail *trail)
{
    Keeper keeper = {
        .trail = trail,
        .best = {.problem = problem, .allocation = &allocations[PLAN_OPTIMAL], .settled = recomputing != NULL},
        .unresolved = INT64_MAX,
        .deadline = watch_seconds(problem->watch) + seconds};
    KeeperResult result = {0};
    open_keeper(&keeper, problem, device);
    keeper.frame.recomputing = recomputing;
    offer_one_stage(&keeper);
    run_baselines(&keeper, allocations, result.known);
    if (!size_is_tiny(problem)) climb(&keeper, 2, MOST_TRIALS);
    add_roots(&keeper);
    while (keeper.open_count > 0) {
        KeeperNode node = take_lowest(&keeper);
        if (is_worse(&keeper, node.bound)) continue;
        if (watch_passed(problem->watch, keeper.deadline)) {
            keeper.timed_out = true;
            keeper.open[keeper.open_count++] = node; /* puts the node back */
            break;
        }
        examine(&keeper, node);
    }
    if (keeper.timed_out && keeper.best.found) { /* the best plan need not be a local optimum yet */
        keeper.deadline = watch_seconds(problem->watch) + seconds / 10;
        climb(&keeper, 2, MOST_TRIALS);
    }
    result.optimal.found = result.known[PLAN_OPTIMAL] = keeper.best.found;
    result.optimal.value = keeper.best.found ? incumbent_objective(&keeper.best) : 0;
    result.optimal.bound = keeper.best.found ? result.optimal.value : INT64_MAX;
    if (keeper.unresolved < result.optimal.bound) result.optimal.bound = keeper.unresolved;
    for (int i = 0; i < keeper.open_count; i++)
        if (keeper.open[i].bound < result.optimal.bound) result.optimal.bound = keeper.open[i].bound;
    result.optimal.infeasible = !keeper.best.found && keeper.open_count == 0 && keeper.unresolved == INT64_MAX;
    result.optimal.timed_out = keeper.timed_out && result.optimal.bound < result.optimal.value;
    free(keeper.open);
    arena_free(&keeper.arena);
    return result;
}

Replanned keeper_improve(const Problem *problem, int device, Allocation *allocation, int neighbourhoods,
                         double deadline)
{
    Keeper keeper = {.deadline = deadline};
    int64_t trials = 60000 / size_of(problem);
    Allocation best = allocation_create(&keeper.arena, problem);
    keeper.best = (Incumbent){.problem = problem, .allocation = &best, .settled = true};
    allocation_copy(&best, allocation); /* a start, even if it does not fit */
    open_keeper(&keeper, problem, device);
    incumbent_offer(&keeper.best, allocation);
    offer_one_stage(&keeper);
    climb(&keeper, neighbourhoods, trials < 2 ? 2 : trials > MOST_TRIALS ? MOST_TRIALS : (int)trials);
    Replanned result = {.found = keeper.best.found};
    if (result.found) result.value_ns = incumbent_objective(&keeper.best);
    if (result.found) allocation_copy(allocation, &best);
    arena_free(&keeper.arena);
    return result;
}
