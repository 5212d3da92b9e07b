/* The member "groupings" of plan.json: how many ways to group devices into replicas were compared, and the best for
 * each number of replicas, with a bound for all plans with these groups. */
#ifndef PARTITIONER_PLAN_GROUPINGS_H
#define PARTITIONER_PLAN_GROUPINGS_H

#include "base/json.h"
#include "partitioner/plan.h"

/* Adds the member, if there is one. */
void plan_groupings_print(const Plan *plan, JsonWriter *json);
/* Reads the member of `root`, if it is there, and checks its structure: every device at most once in a grouping. */
bool plan_groupings_read(Plan *plan, JsonReader json, const json_t *root);

#endif
