#include "federation/jumps.h"

#include <stdlib.h>
#include <string.h>

static int by_value(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return left < right ? -1 : left > right;
}

double jump_watch(JumpWatch *watch, double value)
{
    double sorted[JUMP_ROUNDS];
    int here = watch->count < JUMP_ROUNDS ? watch->count : JUMP_ROUNDS;
    memcpy(sorted, watch->last, sizeof sorted);
    qsort(sorted, (size_t)here, sizeof *sorted, by_value);
    double median = here ? (sorted[(here - 1) / 2] + sorted[here / 2]) / 2 : 0;
    if (here >= JUMP_LEAST && median > 0 && value >= JUMP_FACTOR * median) return value / median;
    watch->last[watch->count++ % JUMP_ROUNDS] = value;
    return 0;
}
