/* The best prices of a relaxation: its Lagrangian dual, solved by column generation.
 *
 * The master program chooses a mixture of paths that uses each class no more than it has devices; its dual gives
 * prices, the relaxation's shortest path under them the next column (Dantzig and Wolfe 1960), with dual smoothing
 * (Wentges 1997) and a revised simplex with a dense inverse. Every set of prices that was tried is rounded to integers
 * first, so the best bound is exact whatever happens to the floating-point simplex. */
#ifndef PARTITIONER_SOLVE_PRICES_H
#define PARTITIONER_SOLVE_PRICES_H

#include "partitioner/solve/shortest.h"

/* The mixture of paths that a master program ended with, to start that of a more restricted relaxation from. */
typedef struct PricesBasis PricesBasis;

typedef struct Prices {
    double *price; /* [class] integers; the best found */
    double total;  /* sum over classes of size x price */
    double path;   /* shortest path under them */
    /* sums: a lower bound on the sum of any plan under the cap; feasibility: positive means that there is none. */
    double bound;
    bool solved; /* the master program was solved to its optimum: these prices are (nearly) the best there are */
    int iterations;
    double deadline;  /* set by the caller: on the problem's watch, when to stop; 0: never */
    double tolerance; /* set by the caller: how far the bound may stay from the best there is; 0: as close as it gets */
    /* Set by the caller, each may be NULL. */
    double *mixture;         /* [class][cut]: gets how often the final mixture starts a stage of the class there */
    const PricesBasis *warm; /* of a relaxation with the same classes, for relaxations reduced to arcs */
    PricesBasis **keep;      /* gets the final basis, to be freed; NULL if the master program was not needed */
    Path *feasible;          /* feasibility: gets a path that uses no class too often, a plan: that ends the search */
    bool found;              /* *feasible holds one */
} Prices;

/* Scale of the prices of a feasibility question: they sum to about this. */
#define PRICES_SCALE 1e9

/* More iterations than the best prices take, however many classes there are: a stop for a simplex that stalls. */
enum { PRICES_ITERATIONS = 20000 };

/* Starts from prices->price (all zero: from mean reach). Stops early once bound > target: a proof, or bound enough. */
void prices_solve(Prices *prices, Relaxation *relaxation, double target, int max_iterations);
void prices_basis_free(PricesBasis *basis);

#endif
