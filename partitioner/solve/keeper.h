/* Plans in which one device keeps the raw inputs and the labels: it owns the first stage and the last one, two stages
 * of one rank.
 *
 * Solved by branching on where the first stage ends. A node fixes a range for that cut and for the micro-batches that
 * the first stage has in flight, and asks the ordinary solver about a chain between two devices: the first takes at
 * least the layers that the range begins with, for nothing; the last starts with their time, and without the memory
 * they take. That is a relaxation, and exact where the range is one cut and one count. */
#ifndef PARTITIONER_SOLVE_KEEPER_H
#define PARTITIONER_SOLVE_KEEPER_H

#include "partitioner/solve/keeper_node.h"
#include "partitioner/solve/optimal.h"
#include "partitioner/solve/replan.h"

typedef struct KeeperResult {
    OptimalResult optimal;
    bool known[PLAN_ALLOCATOR_COUNT]; /* which allocators found an allocation */
} KeeperResult;

/* `problem` pins its first and last layer to `device`. Fills one allocation per allocator (made by allocation_create
 * for the problem); the first and the last stage of each are on `device`. `recomputing` is as in KeeperFrame; bounds
 * are then of that choice, and values those of allocation_settle. `trail` (NULL: not wanted) gets what keeper_certify
 * needs. */
KeeperResult keeper_solve(const Problem *problem, int device, const bool *recomputing, double seconds,
                          Allocation *allocations, KeeperTrail *trail);

/* The baselines alone: fills the allocations before PLAN_OPTIMAL, and `known` for them. */
void keeper_baselines(const Problem *problem, int device, Allocation *allocations, bool *known);

/* replan for problems that are not tiny: the first stage's end is moved as long as that helps, and the chain after it
 * planned again. The same start, the same answers on every machine. */
Replanned keeper_improve(const Problem *problem, int device, Allocation *allocation, int neighbourhoods,
                         double deadline);

#endif
