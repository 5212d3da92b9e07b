#include "partitioner/planner/microbatches.h"

#include "partitioner/solve/allocate.h"
#include "partitioner/solve/optimal.h"
#include "partitioner/solve/replan.h"

/* Where the heuristic finds nothing that fits: the exact search, if need be with one micro-batch in flight, and what
 * local search makes of that. */
static void find_any(Problem *problem, Allocation *allocation)
{
    static const double SECONDS = 0.2;
    Feasibility answer = FEASIBLE_NO;
    for (int limit = 0; limit < 2 && answer != FEASIBLE_YES; limit++) {
        if (limit > 0 && problem->schedule != PLAN_AUTO) break;
        if (limit > 0) problem_limit_in_flight(problem, limit);
        answer = optimal_feasibility(problem, watch_seconds(problem->watch) + SECONDS, allocation);
    }
    if (answer == FEASIBLE_YES) replan(problem, allocation, 0, 0);
}

/* Nanoseconds of a step with n micro-batches; 0: no plan was found. */
static double step_ns(const Problem *problem, int n)
{
    FREED_WITH(arena_free) Arena arena = {0};
    FREED_WITH(problem_free) Problem sized = {0};
    double step = 0;
    if (problem_derive(&sized, problem, problem->costs, n, problem->recompute, problem->recomputing)) {
        Allocation allocation = allocation_create(&arena, &sized);
        if (!allocate_heuristic(&sized, &allocation)) find_any(&sized, &allocation);
        AllocationValue value = allocation_settle(&sized, &allocation);
        if (value.fits) step = (double)value.step;
    }
    return step;
}

int microbatches_choose(const Problem *problem, double *gain)
{
    int n = 1;
    double step = step_ns(problem, n);
    for (*gain = -1; n < MICROBATCHES_MOST && step > 0; n *= 2) {
        double twice = step_ns(problem, 2 * n);
        *gain = twice > 0 ? 2 * step / twice - 1 : -1;
        if (*gain < MICROBATCHES_GAIN) return n;
        step = twice;
    }
    return n;
}

int microbatches_choose_by_rate(MicrobatchRate *rate, void *context, double *gain)
{
    int n = 1;
    double rows = rate(context, n);
    for (*gain = -1; n < MICROBATCHES_MOST && rows > 0; n *= 2) {
        double twice = rate(context, 2 * n);
        *gain = twice / rows - 1;
        if (*gain < MICROBATCHES_GAIN) return n;
        rows = twice;
    }
    return n;
}
