/* The codecs of a plan's links, put into the training graph (graph/passes/code_cuts.h). */
#ifndef DRIVER_COMPILE_PLAN_CODECS_H
#define DRIVER_COMPILE_PLAN_CODECS_H

#include "driver/compile/training_model.h"
#include "partitioner/plan.h"

/* The graph then computes what the plan's pipeline does, in however many stages. Refuses (EXIT_BAD_INPUT) a plan of
 * another model. */
bool plan_codecs_apply(TrainingModel *model, const Plan *plan, const char *path, Diagnostics *diagnostics);

#endif
