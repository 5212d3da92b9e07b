/* Search for plans inside a relaxation: partial plans grow from the last layer towards the first, ranked and pruned by
 * the relaxation's potentials (the cheapest way to complete them) and the prices of the devices they have left. */
#ifndef PARTITIONER_SOLVE_SEARCH_H
#define PARTITIONER_SOLVE_SEARCH_H

#include "partitioner/solve/relaxation.h"

typedef struct SearchLimits {
    int width;          /* partial plans kept per cut */
    int64_t period_low; /* sums: only plans of at least this period matter */
    double best;        /* sums: only plans of a step below this matter */
    bool rough;         /* for a plan alone: of large problems fewer starts of stages are looked at */
    double deadline;    /* on the problem's watch: then the search is incomplete; 0: none */
} SearchLimits;

typedef struct SearchResult {
    bool found;    /* *allocation holds a plan: under the cap (feasibility), or with a step below `best` (sums) */
    bool complete; /* nothing was left out: if nothing was found there is nothing */
} SearchResult;

/* `price` are the prices whose potentials the relaxation holds. In the feasibility form the search stops at the first
 * plan; else it finds the best step among plans under the cap. */
SearchResult search_plans(const Relaxation *relaxation, const double *price, SearchLimits limits,
                          Allocation *allocation);

#endif
