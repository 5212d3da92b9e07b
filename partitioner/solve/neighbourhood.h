/* Large-neighbourhood search: most stages of a plan stay, a few stretches of it are planned anew (Shaw 1998). The
 * relaxation rejects hopeless neighbourhoods; the others are searched. */
#ifndef PARTITIONER_SOLVE_NEIGHBOURHOOD_H
#define PARTITIONER_SOLVE_NEIGHBOURHOOD_H

#include "partitioner/allocation.h"

typedef struct Neighbourhood {
    const Problem *problem;
    uint64_t random; /* state: the same start gives the same search */
    int64_t tried, better;
    int failures;    /* in a row: neighbourhoods grow with them */
    int repeated;    /* of those, tries in a row that left everything free, as those of plans of few stages do */
    double deadline; /* on the problem's watch: tries end then; 0: never */
} Neighbourhood;

/* Tries one neighbourhood of an allocation that fits. True if *better holds a better one for the problem's objective.
 * `bound` is a lower bound of the objective. */
bool neighbourhood_try(Neighbourhood *search, const Allocation *allocation, int64_t bound, Allocation *better);

#endif
