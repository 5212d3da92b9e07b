/* From a model and a cluster to a plan: the shared part of `skycc plan MODEL` and `skycc compile`. */
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
    double clip;                   /* default of the stage programs; 0: no clipping, and no message for the norm */
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
    double advice_deadline; /* on the monotonic clock: half a second after the time limit; 0: no limit */
} PlannedModel;

/* Replaces the first two steps: costs from a file, with --add. */
bool planned_model_read_costs(PlannedModel *planned, const PlanModelOptions *options, const char *path,
                              Diagnostics *diagnostics);

/* Three steps, in this order. Free with planned_model_free in any case. */
bool planned_model_load(PlannedModel *planned, const PlanModelOptions *options, const char *path,
                        const ModelOptions *load, Diagnostics *diagnostics);
bool planned_model_costs(PlannedModel *planned, const PlanModelOptions *options, Diagnostics *diagnostics);
bool planned_model_plan(PlannedModel *planned, const PlanModelOptions *options, Diagnostics *diagnostics);
/* The model's name in reports: its file name without folders and suffix. */
const char *planned_model_name(Arena *arena, const char *path);
/* Says on standard error what was decided about rows of several lengths, unless all have one. */
void planned_model_tell_packing(const PlannedModel *planned, bool quiet);
/* --fail-above: whether the plan is fast enough (else EXIT_BAD_INPUT). `called` is "the" or says whose objective it
 * is; `seconds` INFINITY: no limit. */
bool plan_check_limit(const Plan *plan, const char *called, double seconds, Diagnostics *diagnostics);
void planned_model_free(PlannedModel *planned);

#endif
