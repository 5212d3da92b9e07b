/* Where a program finds its initial weights: in the model's own files where the bytes stand there as they are needed,
 * in a stage-NN.safetensors beside the program otherwise, and where the program is for another host. */
#ifndef DRIVER_COMPILE_WEIGHTS_H
#define DRIVER_COMPILE_WEIGHTS_H

#include "codegen/stage/stage.h"
#include "driver/compile/training_model.h"

/* --init none or normal:STD */
typedef struct WeightInit {
    bool drawn; /* else they are the model's */
    float deviation;
} WeightInit;

/* Fills initial_mean and initial_deviation of the stage's parameters as BERT's authors start training: matrices are
 * drawn, vectors are 0 except those that scale a normalisation's result, which are 1. */
void weights_draw(StageCode *code, const Graph *graph, float deviation);
/* Whether the value belongs to a low-rank branch, which has initial values of its own whatever --init says. */
bool is_low_rank(const TrainingModel *model, ValueId value);

typedef struct WeightOptions {
    const char *directory;       /* where files are written now */
    const char *final_directory; /* the name that directory will have: references are relative to it */
    WeightInit init;
    bool alone; /* no references: the directory is copied to where the model is not */
} WeightOptions;

/* Fills the initial_* fields of the stage's parameters, writing
 * DIRECTORY/stage-NN.safetensors if some bytes are not usable in place. Errors: a parameter without data
 * (EXIT_BAD_INPUT). */
bool weights_reference(StageCode *code, const TrainingModel *model, const WeightOptions *options,
                       Diagnostics *diagnostics);

/* In checkpoints the states of the optimiser stand beside the parameters, under names of their own. Reports parameters
 * that have such a name (EXIT_BAD_INPUT). */
bool weights_check_names(const TrainingModel *model, Diagnostics *diagnostics);

#endif
