#include "partitioner/solve/baselines.h"

#include "partitioner/solve/allocate.h"
#include "partitioner/solve/keeper.h"
#include "partitioner/solve/recompute.h"

static void run_chain(const Problem *problem, Allocation *allocations, bool *known)
{
    allocate_even(problem, &allocations[PLAN_EVEN]);
    known[PLAN_EVEN] = true;
    known[PLAN_SKY] = allocate_sky(problem, &allocations[PLAN_SKY]);
    known[PLAN_HEURISTIC] = allocate_heuristic(problem, &allocations[PLAN_HEURISTIC]);
}

/* Takes the allocations that are not known yet. */
static void run_keeper(const Problem *problem, int keeper, Allocation *allocations, bool *known)
{
    FREED_WITH(arena_free) Arena arena = {0};
    Allocation found[PLAN_ALLOCATOR_COUNT];
    bool found_any[PLAN_ALLOCATOR_COUNT] = {false};
    for (int a = 0; a < PLAN_ALLOCATOR_COUNT; a++) found[a] = allocation_create(&arena, problem);
    keeper_baselines(problem, keeper, found, found_any);
    for (int a = 0; a < PLAN_OPTIMAL; a++)
        if (found_any[a] && !known[a]) {
            allocation_copy(&allocations[a], &found[a]);
            known[a] = true;
        }
}

void baselines_run(const Problem *problem, int keeper, Allocation *allocations, bool *known)
{
    Problem plain;
    if (recompute_matters(problem) &&
        problem_derive(&plain, problem, problem->costs, problem->microbatches, PLAN_RECOMPUTE_NEVER, NULL)) {
        if (keeper >= 0)
            run_keeper(&plain, keeper, allocations, known);
        else
            run_chain(&plain, allocations, known);
        problem_free(&plain);
    }
    if (keeper >= 0)
        run_keeper(problem, keeper, allocations, known);
    else if (!known[PLAN_HEURISTIC])
        run_chain(problem, allocations, known);
}
