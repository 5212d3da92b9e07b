/* Adds the codecs of a plan's links to the training graph (graph/passes/code_cuts.h). */
#ifndef DRIVER_COMPILE_PLAN_CODECS_H
#define DRIVER_COMPILE_PLAN_CODECS_H

#include "driver/compile/training_model.h"
#include "partitioner/plan.h"

/* Afterwards the graph computes what the plan's pipeline does, in any number of stages. Refuses a plan of another
 * model (EXIT_BAD_INPUT). */
bool plan_codecs_apply(TrainingModel *model, const Plan *plan, const char *path, Diagnostics *diagnostics);

#endif
