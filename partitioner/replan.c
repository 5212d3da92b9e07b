#include "partitioner/replan.h"

#include "partitioner/allocate.h"
#include "partitioner/neighbourhood.h"
#include "partitioner/recompute.h"

static int64_t value_of(const Problem *p, const AllocationValue *value)
{
    return p->objective == PLAN_OBJECTIVE_STEP ? value->step : value->period;
}

bool replan_is_tiny(const Problem *p) { return p->device_count <= 5 && p->layer_count * p->device_count <= 100; }

static Replanned solve(const Problem *p, Allocation *allocation)
{
    Arena arena = {0};
    Allocation best = allocation_create(&arena, p);
    bool fits = allocation_evaluate(p, allocation).fits;
    const Allocation *start = fits ? allocation : NULL;
    OptimalResult result =
        recompute_matters(p) ? recompute_solve(p, start, 1e9, &best, NULL) : optimal_solve(p, start, 1e9, &best, NULL);
    if (result.found) allocation_copy(allocation, &best);
    arena_free(&arena);
    return (Replanned){result.found, result.bound == result.value || result.infeasible, result.value};
}

int replan_allowance(const Problem *p)
{
    int64_t size = (int64_t)p->layer_count * p->device_count, share = 8000 / size;
    if (p->level_limit > 0 && size > 2000) return 0; /* one alone takes a tenth of a second */
    return share < 1 ? 1 : share > 100 ? 100 : (int)share;
}

Replanned replan(const Problem *p, Allocation *allocation, int neighbourhoods, double deadline)
{
    static const int64_t WORK = 50000;
    if (replan_is_tiny(p)) return solve(p, allocation);
    Arena arena = {0};
    Allocation trial = allocation_create(&arena, p);
    bool fits = allocate_improve(p, allocation, WORK);
    if (!fits && (int64_t)p->layer_count * p->device_count <= 20000) {
        fits = allocate_heuristic(p, &trial);
        if (fits) allocation_copy(allocation, &trial);
    }
    Neighbourhood search = {.problem = p, .random = 0x9e3779b97f4a7c15, .deadline = deadline};
    for (int k = 0; k < neighbourhoods && fits && (deadline <= 0 || monotonic_seconds() < deadline); k++)
        if (neighbourhood_try(&search, allocation, 1, &trial)) allocation_copy(allocation, &trial);
    AllocationValue value = allocation_settle(p, allocation);
    arena_free(&arena);
    return (Replanned){fits, false, fits ? value_of(p, &value) : 0};
}
