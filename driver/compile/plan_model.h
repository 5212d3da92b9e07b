/* From a model and a cluster to a plan: the shared part of `skycc plan MODEL` and `skycc compile`. */
#ifndef DRIVER_COMPILE_PLAN_MODEL_H
#define DRIVER_COMPILE_PLAN_MODEL_H

#include "base/options.h"
#include "cluster/cluster.h"
#include "driver/compile/packed_model.h"
#include "partitioner/plan.h"
#include "partitioner/planner/planner.h"
#include "profiler/costs/model_costs.h"

/* The model and --microbatches say how many rows a step has, and no default does. */
enum { BATCH_BOUND = -1 };

typedef struct PlanModelOptions {
    const char *cluster, *profile; /* files; profile NULL: times are estimated */
    int64_t batch;                 /* --batch: rows of a step; 0: not given; BATCH_BOUND */
    PlanRequest request;           /* without and pins are filled in by planned_model_plan */
    double clip;                   /* default of the stage programs; 0: no clipping, and no message for the norm */
    TextList without, pins, added; /* --without DEVICE, --pin LAYERS=DEVICE, --add SPEC */
} PlanModelOptions;

typedef struct PlannedModel {
    Arena arena;
    Cluster cluster;
    const char *path; /* of the model; NULL: costs came from a file */
    TrainingModel model;
    ModelOptions packed; /* what the model was loaded with: for packed_model_check */
    RowSamples rows;     /* where rows share lines (model.graph.packing) */
    BatchChoice batch;   /* how the rows of a step were cut, where that was chosen */
    int microbatches;    /* what plans are laid out for, or PLAN_MICROBATCHES_AUTO */
    /* Where rows share lines: what twice the rows of a step would bring (plan.microbatches_gain); 0: was not asked. */
    double rows_gain;
    Profile profile;
    bool profiled; /* it was read */
    Costs costs;
    Plan plan;
    double advice_deadline; /* on the monotonic clock: half a second after the time limit; 0: no limit */
} PlannedModel;

/* Instead of planned_model_load (driver/compile/plan_load.h) and planned_model_costs: costs from a file, with --add. */
bool planned_model_read_costs(PlannedModel *planned, const PlanModelOptions *options, const char *path,
                              Diagnostics *diagnostics);

/* In this order, after planned_model_load. Free with planned_model_free in any case. */
bool planned_model_costs(PlannedModel *planned, const PlanModelOptions *options, Diagnostics *diagnostics);
bool planned_model_plan(PlannedModel *planned, const PlanModelOptions *options, Diagnostics *diagnostics);
/* The model's name in reports: its file name without folders and suffix. */
const char *planned_model_name(Arena *arena, const char *path);
/* Says on standard error how many micro-batches were chosen, and what was decided about rows of several lengths. */
void planned_model_tell_packing(const PlannedModel *planned, bool quiet);
/* --fail-above: whether the plan is fast enough (else EXIT_BAD_INPUT). `called` is "the" or says whose objective it
 * is; `seconds` INFINITY: no limit. */
bool plan_check_limit(const Plan *plan, const char *called, double seconds, Diagnostics *diagnostics);
void planned_model_free(PlannedModel *planned);

#endif
