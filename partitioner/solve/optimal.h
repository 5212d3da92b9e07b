/* The exact allocator: best plan, lower bound, proof. */
#ifndef PARTITIONER_SOLVE_OPTIMAL_H
#define PARTITIONER_SOLVE_OPTIMAL_H

#include "partitioner/allocation.h"
#include "partitioner/solve/evidence.h"

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

/* Whether any plan fits, whatever its time. Open: the search was too narrow to say, or the deadline passed. */
typedef enum Feasibility { FEASIBLE_NO, FEASIBLE_YES, FEASIBLE_OPEN } Feasibility;

/* `allocation` gets a plan that fits, where there is one. `deadline`: on the problem's watch; 0: none. */
Feasibility optimal_feasibility(const Problem *problem, double deadline, Allocation *allocation);

#endif
