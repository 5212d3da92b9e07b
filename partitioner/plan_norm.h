/* The round on the norm of the gradient (runtime/program/norm_round.h), as a plan has it: absent where the costs do not
 * say that there is one (`norm_bytes`), or where there is one rank. Only the simulated step counts it. */
#ifndef PARTITIONER_PLAN_NORM_H
#define PARTITIONER_PLAN_NORM_H

#include "base/json.h"
#include "partitioner/plan.h"

/* Of a plan whose ranks are known. */
void plan_norm_set(Plan *plan, const Costs *costs);

/* The member "norm" of plan.json. */
void plan_norm_print(const Plan *plan, JsonWriter *json);
bool plan_norm_read(Plan *plan, JsonReader json, const json_t *root);

#endif
