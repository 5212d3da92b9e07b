/* From a model and a cluster to a plan: what `skycc plan MODEL` and `skycc compile` share. */
#ifndef DRIVER_COMPILE_PLAN_MODEL_H
#define DRIVER_COMPILE_PLAN_MODEL_H

#include "base/options.h"
#include "cluster/cluster.h"
#include "driver/compile/packed_model.h"
#include "partitioner/plan.h"
#include "partitioner/planner/planner.h"
#include "profiler/costs/model_costs.h"

typedef struct PlanModelOptions {
    const char *cluster, *profile; /* files; profile NULL: times are estimated */
    PlanRequest request;           /* without and pins are filled in by planned_model_plan */
    double clip;                   /* of stage programs, unless they are told otherwise; 0: none, and no round for it */
    TextList without, pins, added; /* --without DEVICE, --pin LAYERS=DEVICE, --add SPEC */
} PlanModelOptions;

typedef struct PlannedModel {
    Arena arena;
    Cluster cluster;
    const char *path; /* of the model; NULL: costs came from a file */
    TrainingModel model;
    ModelOptions packed;   /* what the model was loaded with: for packed_model_check */
    RowSamples rows;       /* where rows share lines (model.graph.packing) */
    int most_microbatches; /* then: what plans are laid out for; else 0 */
    double rows_gain; /* then: what twice the rows of a step would bring (plan.microbatches_gain); 0: was not asked */
    Profile profile;
    Costs costs;
    Plan plan;
    double advice_deadline; /* on the monotonic clock: half a second behind the time limit; 0: there is none */
} PlannedModel;

/* Instead of the first two: costs from a file, --add included. */
bool planned_model_read_costs(PlannedModel *planned, const PlanModelOptions *options, const char *path,
                              Diagnostics *diagnostics);

/* Three steps, in this order. Free with planned_model_free in any case. */
bool planned_model_load(PlannedModel *planned, const PlanModelOptions *options, const char *path,
                        const ModelOptions *load, Diagnostics *diagnostics);
bool planned_model_costs(PlannedModel *planned, const PlanModelOptions *options, Diagnostics *diagnostics);
bool planned_model_plan(PlannedModel *planned, const PlanModelOptions *options, Diagnostics *diagnostics);
/* What a report calls the model: its file's name without folders and suffix. */
const char *planned_model_name(Arena *arena, const char *path);
/* Says on standard error what was decided about rows of several lengths, unless all have one. */
void planned_model_tell_packing(const PlannedModel *planned, bool quiet);
/* --fail-above: whether the plan is as fast as the user wants it (EXIT_BAD_INPUT). `called` is "the" or says whose the
 * objective is; `seconds` INFINITY: any plan is. */
bool plan_check_limit(const Plan *plan, const char *called, double seconds, Diagnostics *diagnostics);
void planned_model_free(PlannedModel *planned);

#endif
