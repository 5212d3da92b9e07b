/* From a model and a cluster to a plan: what `skycc plan MODEL` and `skycc compile` share. */
#ifndef DRIVER_PLAN_MODEL_H
#define DRIVER_PLAN_MODEL_H

#include <getopt.h>

#include "driver/options.h"
#include "driver/training_model.h"
#include "partitioner/plan.h"
#include "partitioner/planner.h"
#include "profiler/cluster.h"
#include "profiler/model_costs.h"

typedef struct PlanModelOptions {
    const char *model, *cluster, *profile;
    ModelOptions load; /* import.dimensions are filled in by planned_model_load */
    DimensionBindings dimensions;
    PlanRequest request;                   /* without and pins are filled in by planned_model_plan */
    const char **without, **pins, **added; /* --without DEVICE, --pin LAYERS=DEVICE, --add SPEC */
    int without_count, without_capacity, pin_count, pin_capacity, added_count, added_capacity;
    double fail_above; /* seconds; < 0: no limit */
} PlanModelOptions;

enum {
    OPTION_PROFILE = 1024,
    OPTION_DIM,
    OPTION_MICROBATCHES,
    OPTION_ALLOCATE,
    OPTION_OBJECTIVE,
    OPTION_TIME_LIMIT,
    OPTION_SCHEDULE,
    OPTION_RECOMPUTE,
    OPTION_WITHOUT,
    OPTION_ADD,
    OPTION_PIN,
    OPTION_FAIL_ABOVE,
    OPTION_LOSS,
    OPTION_OPTIMIZER,
    OPTION_DROPOUT,
    OPTION_PRECISION,
    OPTION_NO_PRUNE,
    OPTION_KEEP_TIES,
    OPTION_UNTIE
};

/* Rows for getopt_long: of a model on a cluster, and of plans, too. -d is short, too. */
#define MODEL_LONG_OPTIONS                                                                                             \
    {"cluster", required_argument, NULL, 'd'}, {"dim", required_argument, NULL, OPTION_DIM},                           \
        {"loss", required_argument, NULL, OPTION_LOSS}, {"optimizer", required_argument, NULL, OPTION_OPTIMIZER},      \
        {"dropout", required_argument, NULL, OPTION_DROPOUT},                                                          \
        {"precision", required_argument, NULL, OPTION_PRECISION}, {"no-prune", no_argument, NULL, OPTION_NO_PRUNE},    \
        {"keep-ties", no_argument, NULL, OPTION_KEEP_TIES},                                                            \
    {                                                                                                                  \
        "untie", no_argument, NULL, OPTION_UNTIE                                                                       \
    }

#define PLAN_LONG_OPTIONS                                                                                              \
    MODEL_LONG_OPTIONS, {"profile", required_argument, NULL, OPTION_PROFILE},                                          \
        {"microbatches", required_argument, NULL, OPTION_MICROBATCHES},                                                \
        {"allocate", required_argument, NULL, OPTION_ALLOCATE},                                                        \
        {"objective", required_argument, NULL, OPTION_OBJECTIVE},                                                      \
        {"time-limit", required_argument, NULL, OPTION_TIME_LIMIT},                                                    \
        {"schedule", required_argument, NULL, OPTION_SCHEDULE},                                                        \
        {"recompute", required_argument, NULL, OPTION_RECOMPUTE},                                                      \
        {"without", required_argument, NULL, OPTION_WITHOUT}, {"add", required_argument, NULL, OPTION_ADD},            \
        {"pin", required_argument, NULL, OPTION_PIN},                                                                  \
    {                                                                                                                  \
        "fail-above", required_argument, NULL, OPTION_FAIL_ABOVE                                                       \
    }

#define PLAN_OPTIONS_HELP                                                                                              \
    "  -d, --cluster FILE    the devices and links (cluster.yaml)\n"                                                   \
    "  --profile FILE        times measured by skycc probe; without: estimated from the device specifications\n"       \
    "  --dim NAME=VALUE      bind a symbolic dimension; the batch dimension is the micro-batch\n"                      \
    "  --microbatches N      micro-batches per step (default 8), or auto\n"                                            \
    "  --allocate HOW        even, sky, heuristic or optimal (default optimal)\n"                                      \
    "  --objective WHAT      step or period (default step)\n"                                                          \
    "  --time-limit SECONDS  of planning, proof and advice included (default 30)\n"                                    \
    "  --schedule HOW        gpipe, 1f1b, zb (backward split) or auto: the fastest in simulation (default)\n"          \
    "  --recompute WHEN      run forward again instead of keeping its results: auto (where memory is short), never, "  \
    "always\n"                                                                                                         \
    "  --without DEVICE      leave a device out (may be repeated)\n"                                                   \
    "  --add SPEC            one device more, such as name=x,memory=8GiB,gflops=100 or name=x,like=DEVICE\n"           \
    "  --pin LAYERS=DEVICE   keep layers on a device: a name, the beginning of names, or FIRST-LAST by name or "       \
    "number\n"                                                                                                         \
    "  --fail-above SECONDS  exit 1 if the step (or the period, if that is the objective) is longer\n"                 \
    "  --loss SPEC           cross-entropy[:OUTPUT[:LABELS]] or output:NAME, joined by +\n"                            \
    "  --dropout P|off       drop elements with probability P in training, where BERT does, or never\n"                \
    "  --precision f32|bf16  bf16: round the factors of matrix products, add up in f32; all else is f32 (default)\n"   \
    "  --no-prune            compute what nobody reads too (the last block for all tokens, not only the one read)\n"   \
    "  --keep-ties, --untie  how initializers that share bytes are trained\n"

void plan_model_defaults(PlanModelOptions *options);
/* Takes one of the options above. */
bool plan_model_option(PlanModelOptions *options, int option, char *argument, Diagnostics *diagnostics);
void plan_model_options_free(PlanModelOptions *options);

typedef struct PlannedModel {
    Arena arena;
    Cluster cluster;
    TrainingModel model;
    Profile profile;
    Costs costs;
    Plan plan;
    double advice_deadline; /* on the monotonic clock: half a second behind the time limit */
} PlannedModel;

/* Instead of the first two: costs from a file, --add included. */
bool planned_model_read_costs(PlannedModel *planned, const PlanModelOptions *options, const char *path,
                              Diagnostics *diagnostics);

/* Three steps, in this order. Free with planned_model_free in any case. */
bool planned_model_load(PlannedModel *planned, const PlanModelOptions *options, const ModelOptions *load,
                        Diagnostics *diagnostics);
bool planned_model_costs(PlannedModel *planned, const PlanModelOptions *options, Diagnostics *diagnostics);
bool planned_model_plan(PlannedModel *planned, const PlanModelOptions *options, Diagnostics *diagnostics);
/* --fail-above: whether the plan is as fast as the user wants it (EXIT_BAD_INPUT). */
bool planned_model_check_limit(const PlannedModel *planned, const PlanModelOptions *options, Diagnostics *diagnostics);
void planned_model_free(PlannedModel *planned);

#endif
