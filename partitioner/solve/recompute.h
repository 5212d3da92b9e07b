/* Recomputation per stage: forward runs again before backward instead of keeping its stash (Chen et al. 2016, arXiv
 * 1604.06174).
 *
 * Which stages recompute follows from an allocation: those that do not fit otherwise, as it only costs time. What is
 * exact: the bound, which is that of the relaxation where recomputing takes no time (PLAN_RECOMPUTE_AUTO), so it holds for
 * every plan with any choice. What is not: the allocation is the best of the relaxation's, of the optimum without
 * recomputation, and of the optima with given sets of devices that recompute, which need not include the best one. */
#ifndef PARTITIONER_SOLVE_RECOMPUTE_H
#define PARTITIONER_SOLVE_RECOMPUTE_H

#include "partitioner/solve/optimal.h"

/* Whether any stage could gain from recomputing: there is a stash, and a limit that it may exceed. */
bool recompute_matters(const Problem *problem);

/* optimal_solve for a problem with PLAN_RECOMPUTE_AUTO; the result's value is that of allocation_settle. */
OptimalResult recompute_solve(const Problem *problem, const Allocation *start, double seconds, Allocation *allocation,
                              Evidence *evidence);

#endif
