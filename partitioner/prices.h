/* The best prices of a relaxation: its Lagrangian dual, solved by column generation.
 *
 * The master program chooses a mixture of paths that uses each class no more than it has devices; its dual gives
 * prices, the relaxation's shortest path under them the next column (Dantzig and Wolfe 1960), with dual smoothing
 * (Wentges 1997) and a revised simplex with a dense inverse. Every set of prices that was tried is rounded to integers
 * first, so the best bound is exact whatever happens to the floating-point simplex. */
#ifndef PARTITIONER_PRICES_H
#define PARTITIONER_PRICES_H

#include "partitioner/relaxation.h"

typedef struct Prices {
    double *price; /* [class] integers; the best found */
    double total;  /* sum over classes of size x price */
    double path;   /* shortest path under them */
    /* sums: a lower bound on the sum of any plan under the cap; feasibility: positive means that there is none. */
    double bound;
    bool solved; /* the master program was solved to its optimum: these prices are (nearly) the best there are */
    int iterations;
    double deadline; /* set by the caller: on the monotonic clock, when to stop; 0: never */
} Prices;

/* Scale of the prices of a feasibility question: they sum to about this. */
#define PRICES_SCALE 1e9

/* Starts from prices->price (all zero: from mean reach). Stops early once bound > target: a proof, or bound enough.
 * `incumbent` (NULL: none) is a path of the relaxation that respects the class sizes: it keeps the master program
 * feasible. `mixture`, if not NULL, gets the weight of each cut ([layer_count + 1]) in the final mixture. */
void prices_solve(Prices *prices, Relaxation *relaxation, double target, int max_iterations, const Path *incumbent,
                  double *mixture);

#endif
