/* A model compiled for this machine, to be run forward over rows of texts, batch by batch. */
#ifndef DRIVER_PREDICT_PREDICTOR_H
#define DRIVER_PREDICT_PREDICTOR_H

#include "driver/compile/local_program.h"
#include "driver/predict/text_rows.h"
#include "runtime/program/execute.h"

typedef struct Predictor {
    const char *called;   /* the model in messages; kept */
    const TextRows *rows; /* kept */
    int64_t batch, width; /* rows and tokens of a run */
    TrainingModel model;
    StageCode code;
    LocalProgram program;
    Execution execution;
    bool running;
} Predictor;

/* Compiles the model in the file `path`; `threads` 0: as many as there are processors. What is reported when it
 * runs names `called`. Free with predictor_free in any case. */
bool predictor_open(Predictor *predictor, const char *path, const char *called, const TextRows *rows, int64_t batch,
                    int64_t width, int threads, Diagnostics *diagnostics);
/* Runs the rows from `first` on; of a batch that the rows do not fill, the rest is the last row again. */
bool predictor_run(Predictor *predictor, int64_t first, Diagnostics *diagnostics);
/* The output of that name if it has numbers in `rank` dimensions, the first of them the batch; else NULL. */
const SkyTensor *predictor_output(const Predictor *predictor, const char *name, uint32_t rank);
/* What the last run gave `row` (of all rows): into values, as many as the output has for a row. False after reporting
 * that they are not all finite. */
bool predictor_values(Predictor *predictor, const SkyTensor *output, int64_t row, double *values,
                      Diagnostics *diagnostics);
int64_t predictor_row_values(const SkyTensor *output); /* how many an output has for a row */
void predictor_free(Predictor *predictor);

#endif
