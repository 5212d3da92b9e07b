/* Where a program finds its initial weights: in the model's own file if the bytes are usable as they are, otherwise,
 * or if the program is for another host, in stage-NN.safetensors next to the program. */
#ifndef DRIVER_COMPILE_WEIGHTS_H
#define DRIVER_COMPILE_WEIGHTS_H

#include "codegen/stage/stage.h"
#include "driver/compile/training_model.h"

/* --init none or normal:STD */
typedef struct WeightInit {
    bool drawn; /* else they are the model's */
    float deviation;
} WeightInit;

/* Fills initial_mean and initial_deviation as BERT's authors start training: matrices are drawn, gains of
 * normalisations are 1, other vectors 0. */
void weights_draw(StageCode *code, const Graph *graph, float deviation);
/* Whether the value belongs to a low-rank branch, whose initial values --init does not change. */
bool is_low_rank(const TrainingModel *model, ValueId value);

typedef struct WeightOptions {
    const char *directory;       /* where files are written now */
    const char *final_directory; /* the final name of that directory; references are relative to it */
    WeightInit init;
    bool alone; /* no references: the directory is copied to a place without the model */
} WeightOptions;

/* Fills the initial_* fields of the stage's parameters, and writes DIRECTORY/stage-NN.safetensors for bytes that are
 * not usable in place. Errors: a parameter without data (EXIT_BAD_INPUT). */
bool weights_reference(StageCode *code, const TrainingModel *model, const WeightOptions *options,
                       Diagnostics *diagnostics);

/* Checkpoints store optimiser states under names of their own. Reports parameters with such a name (EXIT_BAD_INPUT). */
bool weights_check_names(const TrainingModel *model, Diagnostics *diagnostics);

#endif
