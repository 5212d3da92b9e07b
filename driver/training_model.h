/* From an ONNX file to the training graph: the front half of run, plan and compile, in one place. */
#ifndef DRIVER_TRAINING_MODEL_H
#define DRIVER_TRAINING_MODEL_H

#include "frontend/import.h"
#include "graph/autodiff.h"
#include "graph/graph.h"

typedef struct ModelOptions {
    ImportOptions import;
    const char *loss;      /* --loss; NULL: the default */
    const char *optimizer; /* --optimizer; NULL: adamw */
    bool want_loss;        /* attach the loss */
    bool differentiate;    /* gradients of all parameters (implies want_loss) */
    bool train;            /* optimiser updates too */
    bool bf16;             /* factors of matrix products are rounded to bf16 */
    bool no_pruning;       /* compute every token, also where only one is read (graph/prune.h) */
} ModelOptions;

typedef struct TrainingModel {
    Graph graph;
    ImportedModel imported;
    OptimizerSpec optimizer;
} TrainingModel;

/* Free with training_model_free in any case. */
bool training_model_load(TrainingModel *model, const char *path, const ModelOptions *options, Diagnostics *diagnostics);
void training_model_free(TrainingModel *model);

#endif
