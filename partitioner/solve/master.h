/* The master program of column generation: the cheapest mixture of a relaxation's paths that uses no class more than it
 * has devices. Its dual says what a use of a device is worth. Only prices.c includes it.
 *
 * Rows 0 ... classes:
 *     minimise    sum cost_p x_p + penalty * excess
 *     row 0       sum x_p = 1
 *     row c + 1   sum uses_pc x_p - size_c * excess + slack_c = size_c (sums) or 0 (feasibility), perturbed
 * In the feasibility form costs are 0 and the penalty 1: `excess` is the least multiple of the cluster that suffices.
 *
 * A revised simplex with a dense inverse solves it, over the paths that entered so far. Costs and duals are in units of
 * `scale` integers of the relaxation (its nanoseconds and prices). Nothing here is exact, and nothing has to be: prices
 * are rounded before they are tried, and the relaxation says what they prove. */
#ifndef PARTITIONER_SOLVE_MASTER_H
#define PARTITIONER_SOLVE_MASTER_H

#include "partitioner/solve/shortest.h"

typedef struct Master Master;
typedef struct PricesBasis PricesBasis; /* as in partitioner/solve/prices.h: a basis on its own, without its master */

/* A master without paths: only master_start and master_start_from may come next. The relaxation must outlive it. The
 * arena holds the master but for what grows with its paths, which master_free gives back, before the arena is freed. */
Master *master_create(const Relaxation *relaxation, double scale, Arena *arena);
void master_free(Master *master);

/* Starts from one path, which is copied, and as much excess as that takes. */
void master_start(Master *master, const Path *first);
/* Starts from a saved basis, which is copied; its paths that the relaxation no longer has get a cost that drives them
 * out. False, and nothing changes, if the basis is of a master with another number of classes or another scale. */
bool master_start_from(Master *master, const PricesBasis *basis);

/* Brings in slacks and excess as long as that helps, and now and then computes the inverse anew. To be called before
 * the prices are asked for. */
void master_settle(Master *master);
/* Brings the path, which is copied, into the basis. False, and the master is as it was, if that would not help: if the
 * path is the shortest one under the master's prices, no path would, and the master is solved. */
bool master_enter(Master *master, const Path *path);

/* Gets, by class, what a use of a device is worth: 0 or more, in units of the scale. */
void master_prices(const Master *master, double *price);
/* What the mixture costs, in integers of the relaxation: no prices have a bound above that. */
double master_cost(const Master *master);
/* Adds to `mixture` [class][cut] how often the mixture starts a stage of the class there. */
void master_add_mixture(const Master *master, double *mixture);

/* The basis on its own, to be freed with master_basis_free; it refers neither to the master nor to its relaxation. */
PricesBasis *master_save_basis(const Master *master);
double master_basis_scale(const PricesBasis *basis);
void master_basis_free(PricesBasis *basis); /* NULL is allowed */

#endif
