/* The best plan that a fixed amount of work finds: for questions about other clusters, asked by the dozen, whose
 * answers must not depend on the machine or on the clock. */
#ifndef PARTITIONER_SOLVE_REPLAN_H
#define PARTITIONER_SOLVE_REPLAN_H

#include "partitioner/allocation.h"

typedef struct Replanned {
    bool found, exact;    /* exact: nothing is better than what was found, or nothing fits */
    int64_t value_ns;     /* of the problem's objective */
    int64_t simulated_ns; /* of advice about steps: the simulated step, by which plans are chosen; else 0 */
} Replanned;

/* What plans are compared by. */
static inline int64_t replanned_ns(const Replanned *plan)
{
    return plan->simulated_ns > 0 ? plan->simulated_ns : plan->value_ns;
}

/* `allocation` holds where to start from (a plan of a similar problem, which need not fit here) and gets the best
 * found. Tiny problems (sizes.h) are solved to the optimum; in others local search improves the start, and then that
 * many neighbourhoods, as long as it is not past the deadline (on the problem's watch; 0: none). */
Replanned replan(const Problem *problem, Allocation *allocation, int neighbourhoods, double deadline);
/* How many neighbourhoods all questions about a problem of this size may have together, so that they take a fraction of
 * a second. */
int replan_allowance(const Problem *problem);

#endif
