/* Plans with several pipelines: devices in groups, micro-batches dealt to them, each group planned on its own. */
#ifndef PARTITIONER_PLANNER_REPLICATED_H
#define PARTITIONER_PLANNER_REPLICATED_H

#include "partitioner/planner/planner.h"

/* plan_make with request->replicas: one pipeline, or so many. */
bool plan_make_replicas(Plan *plan, const Costs *costs, const PlanRequest *request, Diagnostics *diagnostics);

/* One pipeline for each of `count` groups. `group_of` [device of the costs]: its group, or -1: not used. Micro-batches go
 * where they are done first. EXIT_NO_PLAN where a group has no plan, or there are fewer micro-batches than groups. */
bool plan_make_grouped(Plan *plan, const Costs *costs, const PlanRequest *request, const int *group_of, int count,
                       Diagnostics *diagnostics);

#endif
