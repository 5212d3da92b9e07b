/* A training run, as train.c, train_open.c and train_say.c share it. */
#ifndef RUNTIME_TRAIN_TRAINING_H
#define RUNTIME_TRAIN_TRAINING_H

#include <math.h>

#include "runtime/storage/row_lengths.h"
#include "runtime/train/checkpoint.h"
#include "runtime/train/evaluate.h"
#include "runtime/train/gradients.h"
#include "runtime/train/interrupts.h"
#include "runtime/train/labelled_rows.h"
#include "runtime/train/progress.h"
#include "runtime/train/proximal.h"
#include "runtime/train/step_cause.h"
#include "runtime/train/training_options.h"
#include "runtime/train/watch.h"

typedef struct Training {
    World *world;
    const SkyProgram *program;
    const TrainingOptions *options;
    Dataset data, evaluation_data;
    Hash data_hash, evaluation_hash;
    RowLengths lengths, evaluation_lengths;
    LabelledRows labelled;
    PackedBatch packed;            /* where rows share lines */
    int64_t rows, evaluation_rows; /* as all ranks agree */
    Execution execution;
    Pipeline pipeline;
    Gradients gradients;
    Proximal proximal;
    Interrupts interrupts;
    CheckpointWriter writer;
    Trace trace;
    Progress progress; /* rank 0 */
    StepParts parts;
    DataOrder order;
    DataCursor cursor;
    uint64_t seed;
    bool shuffled;
    uint32_t *batch_rows;
    int64_t batch, row_count; /* rows of a whole batch; of this one */
    LearningRateSchedule schedule;
    double rate;  /* of the step under way */
    double rates; /* with control variates: the sum over the round's steps, of a checkpoint that is resumed too */
    double weight_decay;
    int64_t step, last_step;   /* steps that were made; are to be made, INT64_MAX: no limit */
    int64_t stop_after;        /* of the round in a federation; 0: there is none */
    bool round_is_over;        /* and the next one may follow */
    int64_t skipped_before;    /* of those before this run, that updated nothing */
    int64_t unlabelled;        /* of this run's, that had no label */
    int64_t failed_evaluation; /* the step after the first evaluation that was not finite; 0: none was. Rank 0 */
    int64_t saved_step;        /* of the newest checkpoint; -1: none */
    MetricChoice metrics;
    Watch watch;         /* where --keep-best or --patience is given; all ranks agree */
    bool evaluation_due; /* of the step that was made last: a signal came before it */
    bool best_saved;     /* by this run */
    char *best_directory;
    LossRanks losses;
    int ended_by;   /* the signal that ended training early; 0: none */
    int ended_site; /* to which it came; -1: there is one site, or nobody knows */
    bool speaks;    /* this rank shows the progress of its site */
} Training;

static inline bool training_watches(const Training *t)
{
    return t->options->keep_best != METRIC_COUNT || t->options->patience;
}

/* What --clip says, or else the program. */
static inline double training_clip(const Training *t)
{
    return isnan(t->options->clip) ? t->program->clip : t->options->clip;
}

/* train_open.c, collective: everything until the first step. Whether this rank speaks is known then, and all outputs
 * can be written. False, on every rank, after one has said why. */
bool training_open(Training *t, const char *directory, Diagnostics *diagnostics, int *exit_code);
void training_close(Training *t);

/* train_say.c: the lines before the first step and after the last one. An evaluation that was not finite is an error.
 */
void training_say_begin(Training *t);
void training_say_end(Training *t, Diagnostics *diagnostics);

/* A training run of one rank, from options to the last checkpoint, after the handshake. `directory` is where the
 * program lies: initial values are relative to it. Returns the exit code, the same on every rank; what failed has been
 * printed. */
int train(World *world, const SkyProgram *program, const TrainingOptions *options, const char *directory);

#endif
