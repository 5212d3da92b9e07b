#include "partitioner/planner/microbatches.h"

#include "partitioner/solve/allocate.h"

/* Nanoseconds of a step with n micro-batches; 0: no plan was found. */
static double step_ns(const Problem *problem, int n)
{
    Arena arena = {0};
    Problem sized = {0};
    double step = 0;
    if (problem_derive(&sized, problem, problem->costs, n, problem->recompute, problem->recomputing)) {
        Allocation allocation = allocation_create(&arena, &sized);
        allocate_heuristic(&sized, &allocation);
        AllocationValue value = allocation_settle(&sized, &allocation);
        if (value.fits) step = (double)value.step;
        problem_free(&sized);
    }
    arena_free(&arena);
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
