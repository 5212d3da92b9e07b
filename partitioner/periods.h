/* The values that a plan's period can have: the times of stages and of links. */
#ifndef PARTITIONER_PERIODS_H
#define PARTITIONER_PERIODS_H

#include "partitioner/problem.h"

/* The values a period can have: the least above `period` (INT64_MAX if none), the largest not above it (0 if none), and
 * the largest of all. */
int64_t period_above(const Problem *problem, int64_t period);
int64_t period_not_above(const Problem *problem, int64_t period);
int64_t period_largest(const Problem *problem);

#endif
