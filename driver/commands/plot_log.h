/* What skycc plot draws: columns of a CSV log by their meaning. A log is that of a run, a row a step, or that of a federation's
 * coordinator, a row a round. */
#ifndef DRIVER_COMMANDS_PLOT_LOG_H
#define DRIVER_COMMANDS_PLOT_LOG_H

#include <stddef.h>

#include "base/arena.h"
#include "base/diagnostics.h"

/* Series of a run. A federation's are LOSS, the mean, and behind it the losses of the sites. */
enum { LOSS, EVAL_LOSS, EVAL_ACCURACY, EVAL_F1, EVAL_MATTHEWS, EVAL_PEARSON, EVAL_SPEARMAN, RUN_SERIES };

typedef struct PlotSeries {
    const char *name; /* of its column; a site's: the site's name */
    int column;       /* of the file; -1: the log has none */
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

/* Reports what is wrong, with its line; there is a finite loss otherwise. Free it in any case. */
bool plot_log_read(PlotLog *log, const char *path, Diagnostics *diagnostics);
void plot_log_free(PlotLog *log);

static inline double plot_value(const PlotLog *log, size_t row, int series)
{
    return log->values[row * (size_t)log->series_count + (size_t)series];
}

#endif
