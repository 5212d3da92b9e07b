/* What the exact allocator's two halves share: periods (optimal.c) and steps (optimal_step.c). */
#ifndef PARTITIONER_SOLVE_SOLVER_H
#define PARTITIONER_SOLVE_SOLVER_H

#include "partitioner/solve/evidence.h"
#include "partitioner/solve/neighbourhood.h"
#include "partitioner/solve/relaxation.h"

typedef struct Solver {
    const Problem *problem;
    Arena arena;
    double deadline; /* on the problem's watch */
    Incumbent best;
    Allocation trial;
    int64_t bound;
    bool timed_out;
    Neighbourhood neighbourhood;
    double *type_price; /* [type]: prices to start the next question from */
    Evidence *evidence; /* or NULL */
} Solver;

bool solver_out_of_time(Solver *solver);
/* One question may take a third of what is left. */
double solver_price_deadline(const Solver *solver);
/* Improves the best plan until `failures` tries in a row did not, the bound is met, or time is up. */
void solver_improve(Solver *solver, int failures, double until);

void solver_load_prices(const Solver *solver, const Relaxation *relaxation, double *price);
void solver_store_prices(Solver *solver, const Relaxation *relaxation, const double *price);

/* The optimum step's bound, given that some plan is known; INT64_MAX if there is none. */
int64_t solver_step(Solver *solver);
/* A plan for periods of about `cap` on the devices that `price` [type], the best ones for the least sum under that cap,
 * say are worth having: of large problems the first good one. */
bool solver_try_devices(Solver *solver, int64_t cap, const double *price);

#endif
