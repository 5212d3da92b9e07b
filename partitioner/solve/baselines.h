/* What a plan is compared with: the allocations that even, Sky Computing's algorithm and the heuristic find for it. */
#ifndef PARTITIONER_SOLVE_BASELINES_H
#define PARTITIONER_SOLVE_BASELINES_H

#include "partitioner/allocation.h"

/* Fills the first PLAN_OPTIMAL of `allocations` and says in `known` (false before) which were found; they need not fit.
 * Baselines do not know recomputation: where the problem leaves it open they get by without it if they can. `keeper`:
 * the device that has the first stage and the last, -1: none. */
void baselines_run(const Problem *problem, int keeper, Allocation *allocations, bool *known);

#endif
