/* The columns of a CSV log by meaning. The log of a run has one row per step, the log of a federation's coordinator
 * one row per round. */
#ifndef DRIVER_PLOT_PLOT_LOG_H
#define DRIVER_PLOT_PLOT_LOG_H

#include <stddef.h>

#include "base/arena.h"
#include "base/diagnostics.h"

/* The series of a run. A federation has LOSS, the mean, followed by one series per site. */
enum {
    LOSS,
    EVAL_LOSS,
    EVAL_ACCURACY, /* the first of those that share an axis */
    EVAL_F1,
    EVAL_MATTHEWS,
    EVAL_PEARSON,
    EVAL_SPEARMAN,
    EVAL_EXACT,
    LEARNING_RATE, /* these are not drawn */
    SECONDS,
    TOKENS_PER_SECOND,
    RUN_SERIES
};

typedef struct PlotSeries {
    const char *name; /* the column's name, or the site's */
    int column;       /* in the file; -1: not in this log */
} PlotSeries;

typedef struct PlotLog {
    Arena arena;
    bool federated;
    PlotSeries *series;
    int series_count;
    double *steps, *values; /* [row]; [row][series], NAN: none. Steps, or rounds, ascend; malloc'ed */
    size_t count, step_capacity, value_count, value_capacity;
    int step_column, columns;
    size_t diverged;       /* losses that are nan or infinite */
    double first_diverged; /* the step of the first */
} PlotLog;

/* Reports errors with their line. On success there is a finite loss. Free it in any case. */
bool plot_log_read(PlotLog *log, const char *path, Diagnostics *diagnostics);
void plot_log_free(PlotLog *log);

static inline double plot_value(const PlotLog *log, size_t row, int series)
{
    return log->values[row * (size_t)log->series_count + (size_t)series];
}

#endif
