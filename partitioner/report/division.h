/* A time that no plan's step is below, however the devices are grouped and the layers divided.
 *
 * For a time T and a number of replicas, a device can do a stage for so many micro-batches at most: the first one has
 * to get there, the last one's gradient has to get back, gradients are summed at the end, and links and memory hold
 * what they hold. With a price for each device, a pipeline for n micro-batches costs a shortest path over cuts at
 * least. Where, under some prices, all pipelines that a step needs cost more than all devices together, no plan takes
 * T. */
#ifndef PARTITIONER_REPORT_DIVISION_H
#define PARTITIONER_REPORT_DIVISION_H

#include "partitioner/problem.h"

/* ns, between `low`, which is a bound, and `high`, the step of a plan. `splits`: stages may put half of a backward off.
 * `low` where there is too much to look at, where steps differ, or where a device has two stages. */
int64_t division_bound(const Problem *problem, bool splits, int64_t low, int64_t high);

#endif
