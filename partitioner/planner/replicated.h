/* Plans with several pipelines: devices in groups, micro-batches dealt to them, each group planned on its own. */
#ifndef PARTITIONER_PLANNER_REPLICATED_H
#define PARTITIONER_PLANNER_REPLICATED_H

#include "partitioner/planner/replica_groups.h"

/* plan_make with request->replicas: one pipeline, or so many. */
bool plan_make_replicas(Plan *plan, const Costs *costs, const PlanRequest *request, Diagnostics *diagnostics);

/* One pipeline for each group. EXIT_NO_PLAN where a group has no plan. */
bool plan_make_grouped(Plan *plan, const Costs *costs, const PlanRequest *request, const ReplicaGroups *groups,
                       Diagnostics *diagnostics);

#endif
