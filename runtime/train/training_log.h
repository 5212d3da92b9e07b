/* The log of a run as CSV, a row a step (--log). On rank 0 only.
 *
 * What cannot be written is kept and tried again with the next row: a disk that is full for a while loses nothing, and
 * training goes on. */
#ifndef RUNTIME_TRAIN_TRAINING_LOG_H
#define RUNTIME_TRAIN_TRAINING_LOG_H

#include "base/buffer.h"
#include "base/diagnostics.h"
#include "runtime/train/metrics.h"

typedef struct TrainingLog {
    const char *path; /* NULL: there is none */
    int descriptor;
    Buffer unwritten;
    bool row_open;           /* its metrics are to come, if the step is evaluated */
    int error;               /* errno of the first write that failed; 0: none did */
    int64_t step, lost_from; /* of the last row, and of the first that could not be written at once; 0: none */
} TrainingLog;

typedef struct LogRow {
    int64_t step;
    double loss, learning_rate, seconds, tokens_per_second;
    int64_t tokens, tokens_valid; /* -1: the data does not say */
} LogRow;

/* With first_step > 1 rows up to the step before are kept, if the file has the columns that this run writes. */
bool training_log_open(TrainingLog *log, const char *path, int64_t first_step, Diagnostics *diagnostics);
void training_log_step(TrainingLog *log, const LogRow *row);
/* Belongs to the row of the step before it. NaN: not measured. */
void training_log_evaluation(TrainingLog *log, const double values[METRIC_COUNT]);
/* An error: rows are lost. */
bool training_log_close(TrainingLog *log, Diagnostics *diagnostics);

#endif
