/* Where a program finds its initial weights: in the model's own files where the bytes stand there as they are needed,
 * in a stage-NN.safetensors beside the program otherwise. */
#ifndef DRIVER_WEIGHTS_H
#define DRIVER_WEIGHTS_H

#include "codegen/stage.h"
#include "driver/training_model.h"

typedef struct WeightOptions {
    const char *directory;       /* where files are written now */
    const char *final_directory; /* the name that directory will have: references are relative to it */
    float deviation;             /* --init normal:STD: draw every weight; < 0: take the model's */
} WeightOptions;

/* Fills initial_file, initial_offset and initial_deviation of the stage's parameters, writing
 * DIRECTORY/stage-NN.safetensors if some bytes are not usable in place. Errors: a parameter without data
 * (EXIT_BAD_INPUT). */
bool weights_reference(StageCode *code, const TrainingModel *model, const WeightOptions *options,
                       Diagnostics *diagnostics);

#endif
