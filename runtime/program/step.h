/* What changes from step to step: the learning rate and the scalars that kernels read. */
#ifndef RUNTIME_PROGRAM_STEP_H
#define RUNTIME_PROGRAM_STEP_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/program/labels.h"

typedef enum ScheduleKind { SCHEDULE_CONSTANT, SCHEDULE_LINEAR, SCHEDULE_COSINE, SCHEDULE_COUNT } ScheduleKind;

typedef struct LearningRateSchedule {
    double base;
    ScheduleKind kind;
    int64_t warmup; /* steps before the first at the full rate: 0, base / warmup, 2 base / warmup ... */
    int64_t total;  /* steps of the whole training; linear and cosine reach 0 just after the last */
} LearningRateSchedule;

const char *schedule_name(ScheduleKind kind); /* "constant", "linear", "cosine" */
/* As the Hugging Face Trainer has it. `step` counts from 0. */
double learning_rate_at(const LearningRateSchedule *schedule, int64_t step);

/* Fills both groups of the step space, but for the scales of losses. The second group's weight decay is 0. Bias
 * correction counts the updates that were made before: skipped steps made none. */
void step_scalars(float scalars[SKY_STEP_SCALARS], const SkyOptimizer *optimizer, double learning_rate,
                  double weight_decay, int64_t updates_before);
/* The scales of losses: labels[i] is what the batch has of the program's labels number i, where this rank reads them;
 * `rows`: how many rows the batch has. */
void step_scalars_losses(float scalars[SKY_STEP_SCALARS], const SkyProgram *program,
                         const LabelCount labels[SKY_MOST_LABELS], int64_t rows);
/* Turns dropout on for the `step`-th update (from 0) of a run with this seed. */
void step_scalars_drop(float scalars[SKY_STEP_SCALARS], uint64_t seed, int64_t step);
/* Of the micro-batch that is computed next: the row of the batch with which it begins, and how many rows it has. */
void step_scalars_rows(float scalars[SKY_STEP_SCALARS], int64_t first, int64_t rows);
void step_scalars_set(float scalars[SKY_STEP_SCALARS], int element, double value); /* in both groups */

#endif
