/* The exact allocator: best plan, lower bound, proof. */
#ifndef PARTITIONER_OPTIMAL_H
#define PARTITIONER_OPTIMAL_H

#include "partitioner/evidence.h"

typedef struct OptimalResult {
    bool found;           /* *allocation holds a plan that fits */
    bool infeasible;      /* proven: no plan fits */
    bool timed_out;       /* the time limit, not the proof, ended the search */
    int64_t value, bound; /* of the problem's objective; bound <= every plan's value; equal: proven optimal */
} OptimalResult;

/* `start` (NULL: none) is a plan to improve on. At most `seconds` are spent, give or take the step at hand. `evidence`
 * (NULL: not wanted) gets what prices proved, for certify. */
OptimalResult optimal_solve(const Problem *problem, const Allocation *start, double seconds, Allocation *allocation,
                            Evidence *evidence);

/* Can any plan fit, whatever its time? Exact for the purposes of a hint: a question the search leaves open counts as
 * no. */
bool optimal_is_feasible(const Problem *problem);

#endif
