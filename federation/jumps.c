#include "federation/jumps.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

static int by_value(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return left < right ? -1 : left > right;
}

static double median_of(const double *values, int count)
{
    FREED double *sorted = memory_allocate((size_t)count * sizeof *sorted);
    memcpy(sorted, values, (size_t)count * sizeof *sorted);
    qsort(sorted, (size_t)count, sizeof *sorted, by_value);
    return (sorted[(count - 1) / 2] + sorted[count / 2]) / 2;
}

double jump_watch(JumpWatch *watch, const double *others, int count, double value)
{
    int here = watch->count < JUMP_ROUNDS ? watch->count : JUMP_ROUNDS;
    double median = here >= JUMP_LEAST ? median_of(watch->last, here) : count >= 2 ? median_of(others, count) : 0;
    if (median > 0 && value >= JUMP_FACTOR * median) return value / median;
    watch->last[watch->count++ % JUMP_ROUNDS] = value;
    return 0;
}
