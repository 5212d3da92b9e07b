#include "partitioner/solve/replan.h"

#include "partitioner/sizes.h"
#include "partitioner/solve/allocate.h"
#include "partitioner/solve/neighbourhood.h"
#include "partitioner/solve/recompute.h"

static Replanned solve(const Problem *p, Allocation *allocation)
{
    FREED_WITH(arena_free) Arena arena = {0};
    Allocation best = allocation_create(&arena, p);
    bool fits = allocation_evaluate(p, allocation).fits;
    const Allocation *start = fits ? allocation : NULL;
    OptimalResult result =
        recompute_matters(p) ? recompute_solve(p, start, 1e9, &best, NULL) : optimal_solve(p, start, 1e9, &best, NULL);
    if (result.found) allocation_copy(allocation, &best);
    return (Replanned){
        .found = result.found, .exact = result.bound == result.value || result.infeasible, .value_ns = result.value};
}

int replan_allowance(const Problem *p)
{
    int64_t share = 8000 / size_of(p);
    if (p->level_limit > 0 && !size_has_quick_levels(p)) return 0;
    return share < 1 ? 1 : share > 100 ? 100 : (int)share;
}

Replanned replan(const Problem *p, Allocation *allocation, int neighbourhoods, double deadline)
{
    static const int64_t WORK = 50000;
    if (size_is_tiny(p)) return solve(p, allocation);
    FREED_WITH(arena_free) Arena arena = {0};
    Allocation trial = allocation_create(&arena, p);
    bool fits = allocate_improve(p, allocation, WORK);
    if (!fits && size_has_heuristic(p)) {
        fits = allocate_heuristic(p, &trial);
        if (fits) allocation_copy(allocation, &trial);
    }
    Neighbourhood search = {.problem = p, .random = 0x9e3779b97f4a7c15, .deadline = deadline};
    for (int k = 0; k < neighbourhoods && fits && !watch_passed(p->watch, deadline); k++)
        if (neighbourhood_try(&search, allocation, 1, &trial)) allocation_copy(allocation, &trial);
    AllocationValue value = allocation_settle(p, allocation);
    return (Replanned){.found = fits, .value_ns = fits ? allocation_objective(p, &value) : 0};
}
