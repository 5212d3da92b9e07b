/* What the user sees of a run: one live line, the log, the summary. On rank 0, and on the first rank of every other
 * site, which knows no loss and keeps no log. */
#ifndef RUNTIME_TRAIN_PROGRESS_H
#define RUNTIME_TRAIN_PROGRESS_H

#include "base/diagnostics.h"
#include "runtime/train/event_file.h"
#include "runtime/train/training_log.h"

/* What a step computed, padding included, and what of it was no padding; -1: the data does not say. */
typedef struct StepTokens {
    int64_t computed, valid;
} StepTokens;

typedef struct Progress {
    bool quiet, terminal; /* terminal: one line that is overwritten; else a line now and then */
    bool line_open;
    TrainingLog log;
    EventFile events;
    int64_t first_step, last_step; /* of this run, counted from 1; last 0: unknown */
    int64_t steps_done;
    double tokens; /* computed in all steps */
    double start, step_start, step_end, last_print;
    double trained; /* seconds in steps: without evaluations and checkpoints */
    double loss;
    const char *site; /* of a rank that knows no loss; NULL: it does */
    Metric watched;   /* what lines of progress tell of the last evaluation; METRIC_COUNT: the first that is measured */
    char evaluated[48]; /* "accuracy 81.25%  ", with the blanks that follow it; "": there was no evaluation yet */
} Progress;

/* `log_path` and `event_directory` may be NULL. The clock starts here. */
bool progress_open(Progress *progress, bool quiet, const char *log_path, const char *event_directory,
                   int64_t first_step, int64_t last_step, Diagnostics *diagnostics);
void progress_step(Progress *progress, int64_t step, double loss, double learning_rate, StepTokens tokens);
/* The next step starts now: what was done since the last one was no training. */
void progress_start_step(Progress *progress);
/* As that, and the log's time goes on where it was when the last step ended. */
void progress_go_on(Progress *progress);
/* Of the last step. NaN: not measured. `rows`: that were evaluated. */
void progress_evaluation(Progress *progress, int64_t step, const double values[METRIC_COUNT], int64_t rows);
/* A line of its own, unless quiet. */
void progress_say(Progress *progress, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Ends the live line, prints the summary (planned_step_s <= 0: without the plan's) and closes the log. */
bool progress_close(Progress *progress, double planned_step_s, Diagnostics *diagnostics);

#endif
