#include "partitioner/solve/keeper_feasible.h"

#include "partitioner/solve/keeper_node.h"

typedef struct Search {
    KeeperFrame frame;
    Allocation *allocation;
    double deadline;
} Search;

static bool try_one_stage(Search *s)
{
    s->allocation->stage_count = 1;
    s->allocation->device[0] = s->frame.device;
    s->allocation->end[0] = s->frame.problem->layer_count;
    return allocation_evaluate(s->frame.problem, s->allocation).fits;
}

/* Solves the node's problem, which is a relaxation: its plan need not fit. *cut is where to split the node. */
static Feasibility ask(Search *s, const KeeperNode *node, int *cut)
{
    FREED_WITH(arena_free) Arena arena = {0};
    Costs costs;
    Problem problem;
    Feasibility answer = FEASIBLE_OPEN;
    *cut = node->low + (node->high - node->low + 1) / 2;
    if (keeper_create_node(&s->frame, node, &costs, &arena, &problem)) {
        Allocation found = allocation_create(&arena, &problem);
        answer = optimal_feasibility(&problem, s->deadline, &found);
        if (answer == FEASIBLE_YES) {
            keeper_translate(&s->frame, &found, s->allocation);
            if (!allocation_evaluate(s->frame.problem, s->allocation).fits) answer = FEASIBLE_OPEN;
            if (s->allocation->stage_count > 1) *cut = s->allocation->end[0];
        }
        problem_free(&problem);
    }
    return answer;
}

static Feasibility explore(Search *s, KeeperNode node)
{
    KeeperNode children[2];
    int cut;
    if (node.low > node.high || node.least_in_flight > node.most_in_flight) return FEASIBLE_NO;
    if (watch_passed(s->frame.problem->watch, s->deadline)) return FEASIBLE_OPEN;
    Feasibility answer = ask(s, &node, &cut);
    if (answer != FEASIBLE_OPEN || !keeper_split(&node, cut, children)) return answer;
    answer = FEASIBLE_NO;
    for (int i = 0; i < 2 && answer != FEASIBLE_YES; i++) {
        Feasibility child = explore(s, children[i]);
        if (child != FEASIBLE_NO) answer = child;
    }
    return answer;
}

Feasibility keeper_feasibility(const Problem *problem, int device, double deadline, Allocation *allocation)
{
    FREED_WITH(arena_free) Arena arena = {0};
    Search s = {.allocation = allocation, .deadline = deadline};
    keeper_open(&s.frame, problem, device, &arena);
    Feasibility answer = try_one_stage(&s) ? FEASIBLE_YES : FEASIBLE_NO;
    for (int front = 0; front <= s.frame.own_count && answer != FEASIBLE_YES; front++) {
        Feasibility root = explore(&s, keeper_root(&s.frame, front));
        if (root != FEASIBLE_NO) answer = root;
    }
    return answer;
}
