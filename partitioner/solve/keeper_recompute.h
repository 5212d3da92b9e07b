/* Plans around a keeper (keeper.h) where stages may recompute, and asked again by the dozen. */
#ifndef PARTITIONER_SOLVE_KEEPER_RECOMPUTE_H
#define PARTITIONER_SOLVE_KEEPER_RECOMPUTE_H

#include "partitioner/solve/keeper.h"

/* keeper_solve for a problem that leaves recomputation open; the result's value is that of allocation_settle. The
 * allocation is the best of three: the relaxation's, whose bound holds for all plans (the trail proves it), the optimum
 * in which no stage recomputes, and the one in which every stage does. */
KeeperResult keeper_solve_recomputing(const Problem *problem, int device, double seconds, Allocation *allocations,
                                      KeeperTrail *trail);

/* replan around a keeper: the same start, the same answers on every machine. Tiny problems are solved to the optimum,
 * others improved (keeper_improve). */
Replanned keeper_replan(const Problem *problem, int device, Allocation *allocation, int neighbourhoods,
                        double deadline);

#endif
