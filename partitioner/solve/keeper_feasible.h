/* Whether any plan fits around a keeper (keeper.h), whatever its time: the same branching, in which nodes only ask
 * optimal_feasibility. */
#ifndef PARTITIONER_SOLVE_KEEPER_FEASIBLE_H
#define PARTITIONER_SOLVE_KEEPER_FEASIBLE_H

#include "partitioner/solve/optimal.h"

/* `problem` pins its first and last layer to `device`; the rest is as for optimal_feasibility. */
Feasibility keeper_feasibility(const Problem *problem, int device, double deadline, Allocation *allocation);

#endif
