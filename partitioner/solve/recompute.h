/* Recomputation per stage: forward runs again before backward instead of keeping its stash (Chen et al. 2016, arXiv
 * 1604.06174).
 *
 * Which stages recompute follows from an allocation: those that do not fit otherwise, since it only costs time. The
 * bound is exact: it is that of the relaxation in which recomputing takes no time, so it holds for every choice. The
 * allocation is exact where all sets of devices that may recompute can be tried (SIZE_RECOMPUTE_CHOICES). Elsewhere it
 * is the best of the relaxation's, of the optimum without recomputation, and of optima with sets near theirs. */
#ifndef PARTITIONER_SOLVE_RECOMPUTE_H
#define PARTITIONER_SOLVE_RECOMPUTE_H

#include "partitioner/solve/optimal.h"

/* Whether any stage could gain from recomputing: there is a stash, and a limit that it may exceed. */
bool recompute_matters(const Problem *problem);

/* optimal_solve for a problem with PLAN_RECOMPUTE_AUTO; the result's value is that of allocation_settle. */
OptimalResult recompute_solve(const Problem *problem, const Allocation *start, double seconds, Allocation *allocation,
                              Evidence *evidence);

#endif
