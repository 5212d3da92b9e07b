#include "partitioner/solve/evidence.h"

#include <stdlib.h>

void evidence_add(Evidence *evidence, const Problem *problem, int64_t low, int64_t high, const double *price)
{
    if (!evidence || low >= high) return;
    price = arena_copy(&evidence->arena, price, (size_t)problem->type_count * sizeof *price);
    array_push(evidence->items, evidence->count, evidence->capacity, ((EvidenceItem){low, high, price}));
}

void evidence_replace(Evidence *evidence, const Problem *problem, int64_t low, int64_t high, const double *price)
{
    if (evidence) evidence->count = 0;
    evidence_add(evidence, problem, low, high, price);
}

static int by_period(const void *a, const void *b)
{
    const EvidenceItem *x = a, *y = b;
    return x->high != y->high ? (x->high > y->high ? -1 : 1) : 0;
}

void evidence_sort(Evidence *evidence)
{
    if (evidence->count > 0) qsort(evidence->items, (size_t)evidence->count, sizeof *evidence->items, by_period);
}

void evidence_free(Evidence *evidence)
{
    free(evidence->items);
    arena_free(&evidence->arena);
    *evidence = (Evidence){0};
}
