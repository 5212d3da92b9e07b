/* Where memory is short and the user said how many rows a micro-batch has: what smaller ones of the same global batch
 * would bring. Found by the heuristic allocation. */
#ifndef DRIVER_COMPILE_SMALLER_MICROBATCHES_H
#define DRIVER_COMPILE_SMALLER_MICROBATCHES_H

#include "driver/compile/plan_model.h"
#include "partitioner/planner/advice.h"

/* After planned_model_plan failed: if nothing fits, the hint names the largest micro-batch that does. */
void smaller_microbatches_hint(const PlannedModel *planned, const PlanModelOptions *options, Diagnostics *diagnostics);
/* Adds to the advice on a plan that would be quicker with more memory. */
void smaller_microbatches_advise(const PlannedModel *planned, const PlanModelOptions *options, Advice *advice);

#endif
