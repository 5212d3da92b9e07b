/* From an ONNX file to the training graph, for run, plan and compile. */
#ifndef DRIVER_COMPILE_TRAINING_MODEL_H
#define DRIVER_COMPILE_TRAINING_MODEL_H

#include "base/options.h"
#include "driver/compile/low_rank_targets.h"
#include "frontend/onnx/import.h"
#include "graph/graph.h"
#include "graph/kernel/kernel.h"
#include "graph/ops/autodiff.h"
#include "graph/passes/passes.h"

/* Rows of several lengths: --dim NAME=16,32,64 or NAME=auto:64, and --lengths. */
typedef struct LengthOptions {
    const char *dimension; /* NULL: all rows have one length */
    const int64_t *list;   /* ascending; `auto` has the longest alone */
    size_t count;
    const char *data; /* a data set with such lengths; NULL: those of the list are equally frequent */
} LengthOptions;

typedef struct ModelOptions {
    ImportOptions import;
    LowRankSpec low_rank;       /* --lora */
    uint64_t seed;              /* of the initial values of low-rank branches */
    LengthOptions lengths;      /* the dimension is bound to the longest */
    SkyPacking packing;         /* what was made of them (partitioner/planner/packing.h); slots 0: rows are padded */
    const char *loss;           /* --loss; NULL: the default */
    TextList no_gradient_rows;  /* --no-gradient-row: NAME=INDEX each */
    const char *optimizer;      /* --optimizer; NULL: adamw */
    bool want_loss;             /* attach the loss */
    bool differentiate;         /* gradients of all parameters (implies want_loss) */
    bool train;                 /* optimiser updates too */
    ProductPrecision precision; /* of matrix products; with bf16, what is stored of activations is rounded too */
    bool recompute_layers;      /* --recompute layers */
    bool coded_cuts;            /* with bf16: codecs of the plan say in what form values cross cuts, and not it */
    const char *last_pass;      /* stop after this pass (graph/passes/passes.h); NULL: run all */
    LogitsForm logits;          /* --logits */
    DType frozen_weights;       /* --frozen-weights; DTYPE_NONE: as the model has them */
    bool no_pruning;            /* compute every token, even if only one is read (graph/passes/prune.c) */
} ModelOptions;

typedef struct TrainingModel {
    Graph source; /* as it was imported; `graph` points into it */
    Graph graph;  /* what the passes made of it */
    ImportedModel imported;
    size_t imported_parameters; /* of its list; those of low-rank branches come after them */
    OptimizerSpec optimizer;
    LowRank low_rank;          /* of --lora; else without branches */
    const char *low_rank_text; /* --lora; NULL: not given */
    ProductPrecision precision;
    const char *loss;     /* of its head, where --loss does not say; NULL: the outputs decide */
    const char *settings; /* SkyProgram.settings, of the options that this is made by */
} TrainingModel;

/* Imports the model; then makes the training graph, as often as there are options to try, each time from what was
 * imported. training_model_load does both. Free with training_model_free in any case. */
bool training_model_import(TrainingModel *model, const char *path, const ModelOptions *options,
                           Diagnostics *diagnostics);
bool training_model_make(TrainingModel *model, const ModelOptions *options, Diagnostics *diagnostics);
bool training_model_load(TrainingModel *model, const char *path, const ModelOptions *options, Diagnostics *diagnostics);
void training_model_free(TrainingModel *model);

#endif
