#include "partitioner/periods.h"

/* Raises *below to the longest stage of no more than `period`, lowers *above to the shortest of more. */
static void stage_times(const Problem *p, int64_t period, int64_t *below, int64_t *above)
{
    int64_t within = *below, beyond = *above;
    for (int t = 0; t < p->type_count; t++) {
        const int64_t *work = p->work + (size_t)t * (size_t)(p->layer_count + 1), *start = work;
        for (const int64_t *end = work + 1; end <= work + p->layer_count; end++) {
            while (start < end && end[0] - start[0] > period) start++;
            if (*end - *start > within) within = *end - *start;
            if (start > work && *end - start[-1] < beyond) beyond = *end - start[-1];
        }
    }
    *below = within;
    *above = beyond;
}

static void link_times(const Problem *p, int64_t period, int64_t *below, int64_t *above)
{
    for (int cut = 1; cut < p->layer_count && !p->free_links; cut++)
        for (int a = 0; a < p->region_count; a++)
            for (int b = 0; b < p->region_count; b++) {
                int64_t busy = problem_link_period(p, cut, a, b);
                if (busy > period && busy < *above) *above = busy;
                if (busy <= period && busy > *below) *below = busy;
            }
}

int64_t period_above(const Problem *problem, int64_t period)
{
    int64_t below = 0, above = INT64_MAX;
    stage_times(problem, period, &below, &above);
    link_times(problem, period, &below, &above);
    return above;
}

int64_t period_not_above(const Problem *problem, int64_t period)
{
    int64_t below = 0, above = INT64_MAX;
    stage_times(problem, period, &below, &above);
    link_times(problem, period, &below, &above);
    return below;
}

int64_t period_largest(const Problem *problem) { return period_not_above(problem, INT64_MAX); }
