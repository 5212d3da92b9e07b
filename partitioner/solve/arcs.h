/* The stages a gap leaves. Prices that bound a relaxation also bound it with any one stage fixed into the plan: a stage
 * through which no chain stays within what the devices' prices allow can be left out (reduced-cost fixing, Dantzig,
 * Fulkerson and Johnson 1954). Near the optimum a few hundred stages of ten thousand are left, and shortest paths over
 * them cost accordingly less.
 *
 * A relaxation reduced to arcs answers the same questions (shortest_solve, shortest_path, search_plans), for plans
 * better than the gap only. */
#ifndef PARTITIONER_SOLVE_ARCS_H
#define PARTITIONER_SOLVE_ARCS_H

#include "partitioner/solve/relaxation.h"

/* Keeps the stages whose cheapest chain, under `price`, costs at most `most`. `relaxation` must be solved for `price`.
 * False, and nothing changes, if it has levels or frozen stages, or if too many stages would stay to be worth it. */
bool arcs_reduce(Relaxation *relaxation, const double *price, double most);

/* Feasibility: from now on stages cost their devices' prices, and a plan exists only if one costs no more than all
 * prices together (`allowance`). Further prices come on top, with as many classes as before. Unlike the feasibility
 * form itself this one stays sharp when some device has no choice left. */
void arcs_rebase(Relaxation *relaxation, const double *price);

/* `child` is `parent`, reduced to arcs, with one more split. It must be freed before the parent. A device that the
 * split names gets a class of its own if it has none: the last. */
void arcs_restrict(Relaxation *child, const Relaxation *parent, const Split *split);

/* Is there such a stage? */
bool arcs_contain(const Relaxation *relaxation, int class_index, int start, int end);

/* shortest_solve for a relaxation that is reduced to arcs. */
double arcs_solve(Relaxation *relaxation, const double *price);

#endif
