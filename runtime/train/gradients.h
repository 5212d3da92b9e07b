/* Gradients between the last backward and the update: sums over everything that has a part of them, and clipping by the
 * norm of the whole gradient. */
#ifndef RUNTIME_TRAIN_GRADIENTS_H
#define RUNTIME_TRAIN_GRADIENTS_H

#include "runtime/train/gradient_sums.h"

typedef struct Gradients {
    World *world;
    Pipeline *pipeline;
    Execution *execution;
    Trace *trace;
    double clip;          /* 0: none */
    int64_t most_skipped; /* steps in a row that may be skipped */
    int64_t skipped;      /* in a row, until now */
    int64_t skipped_in_all;
    GradientSums sums;
    const SkyNormRound *emulated; /* the agreement on the norm, which takes the planned time; NULL: not emulated */
    int64_t *begun, *known;       /* per rank: when it began that round, and when it would know; ns */
    double *squares;              /* per parameter of the model; and when each rank began, where that is emulated */
} Gradients;

/* Collective: ranks find out who holds what. */
bool gradients_open(Gradients *gradients, Pipeline *pipeline, double clip, int64_t most_skipped,
                    Diagnostics *diagnostics);
void gradients_close(Gradients *gradients);

/* Whether anything is to be done between backward and update. */
bool gradients_need_work(const Gradients *gradients);
/* gradient_sums_make, with a trace. */
void gradients_reduce(Gradients *gradients);
/* Collective. Sets SKY_STEP_GRADIENT_SCALE so that the norm of the whole gradient is at most `clip`. The norm is summed
 * parameter by parameter in the model's order. If it is not finite: returns false on every rank, sets all gradients to
 * zero and names the parameter in a warning; after `most_skipped` such steps in a row it ends the run. */
bool gradients_clip(Gradients *gradients);

#endif
