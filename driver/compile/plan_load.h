/* From a model's file to the training graph of one micro-batch: how the rows of a step are cut into micro-batches, and
 * packed where they have several lengths.
 *
 * --dim batch=B, --microbatches N and --batch R = B N say how, two of them, or one with the default of another
 * (docs/plans.md). Where --batch says alone, or nothing is given, every size is tried that divides it: the model is
 * imported for it, and planned by an allocation that answers in milliseconds. The quickest step wins; of equals the
 * one with larger micro-batches. Of large models only sizes near the best are tried, as the time of a step falls and
 * then rises with the number of micro-batches. */
#ifndef DRIVER_COMPILE_PLAN_LOAD_H
#define DRIVER_COMPILE_PLAN_LOAD_H

#include "driver/compile/plan_model.h"

/* Rows of a step where nothing says how many. */
enum { BATCH_DEFAULT = 32 };

/* Free with planned_model_free in any case. */
bool planned_model_load(PlannedModel *planned, const PlanModelOptions *options, const char *path,
                        const ModelOptions *load, Diagnostics *diagnostics);

#endif
