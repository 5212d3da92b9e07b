/* What the solver's prices proved on its way, so that a certificate need not find them again.
 *
 * Period: one item, plans with periods up to `high` (low is 0) are refuted by its prices. Step: items that tile the
 * periods; under the cap `high` no plan's sum is below the shortest path less the total of the prices. */
#ifndef PARTITIONER_SOLVE_EVIDENCE_H
#define PARTITIONER_SOLVE_EVIDENCE_H

#include "partitioner/problem.h"

typedef struct EvidenceItem {
    int64_t low, high;   /* periods in (low, high] */
    const double *price; /* [type] integers */
} EvidenceItem;

typedef struct Evidence {
    Arena arena;
    EvidenceItem *items;
    int count, capacity;
} Evidence;

/* `price` [type] is copied. Does nothing if `evidence` is NULL or the interval is empty. */
void evidence_add(Evidence *evidence, const Problem *problem, int64_t low, int64_t high, const double *price);
/* The same, instead of all that there was. */
void evidence_replace(Evidence *evidence, const Problem *problem, int64_t low, int64_t high, const double *price);
/* By descending periods. */
void evidence_sort(Evidence *evidence);
void evidence_free(Evidence *evidence);

#endif
