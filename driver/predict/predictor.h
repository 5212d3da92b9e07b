/* A model compiled for this machine, to be run forward over rows of texts, batch by batch. */
#ifndef DRIVER_PREDICT_PREDICTOR_H
#define DRIVER_PREDICT_PREDICTOR_H

#include "driver/compile/local_program.h"
#include "driver/predict/text_rows.h"

typedef struct Predictor {
    const char *called;   /* the model in messages; kept */
    const TextRows *rows; /* kept */
    int64_t batch, width; /* rows and tokens of a run */
    TrainingModel model;
    StageCode code;
    LocalProgram program;
    Execution execution;
    bool running;
    void **kept; /* per output: what the input past_OUTPUT gets in the next run; NULL: there is none */
} Predictor;

/* Compiles the model in the file `path`; `threads` 0: all processors. Errors while it runs name `called`. Free with
 * predictor_free in any case. */
bool predictor_open(Predictor *predictor, const char *path, const char *called, const TextRows *rows, int64_t batch,
                    int64_t width, int threads, Diagnostics *diagnostics);
/* Runs the rows from `first` on; the last row is repeated to fill the batch. */
bool predictor_run(Predictor *predictor, int64_t first, Diagnostics *diagnostics);
/* From now on an input past_NAME has what the run before computed as the output NAME; in the first run 0. */
void predictor_keep(Predictor *predictor);
/* The output of that name if it is [batch, ...] of `rank` dimensions; otherwise NULL. */
const SkyTensor *predictor_output(const Predictor *predictor, const char *name, uint32_t rank);
/* Copies what the last run computed for `row` (of all rows) into `values`. False after reporting a value that is not
 * finite. */
bool predictor_values(Predictor *predictor, const SkyTensor *output, int64_t row, double *values,
                      Diagnostics *diagnostics);
int64_t predictor_row_values(const SkyTensor *output); /* how many values an output has per row */
void predictor_free(Predictor *predictor);

#endif
