/* Gradients between the last backward and the update: sums over the layers that share a parameter (tied weights,
 * perhaps in different stages), and clipping by the norm of the whole gradient. */
#ifndef RUNTIME_TRAIN_GRADIENTS_H
#define RUNTIME_TRAIN_GRADIENTS_H

#include "runtime/train/pipeline.h"

/* One layer's part of the gradient of a shared parameter. */
typedef struct SharedUse {
    uint32_t number; /* SkyUse.number */
    int rank;
    float *gradient; /* NULL if it is another rank's */
} SharedUse;

typedef struct SharedParameter {
    uint32_t global_index;
    SharedUse *uses; /* of all ranks, in order */
    float **terms;   /* where each of them is while they are added up */
    int use_count;
    size_t elements;
} SharedParameter;

typedef struct Gradients {
    World *world;
    Execution *execution;
    Trace *trace;
    MessageTags tags;
    double clip;          /* 0: none */
    int64_t most_skipped; /* steps in a row that may be skipped */
    int64_t skipped;      /* in a row, until now */
    int64_t skipped_in_all;
    uint32_t *owner;         /* per parameter of the model: the rank that counts it */
    SharedParameter *shared; /* those held here */
    int shared_count;
    const SkyNormRound *emulated; /* the agreement on the norm, which takes the planned time; NULL: not emulated */
    int64_t *begun, *known;       /* per rank: when it began that round, and when it would know; ns */
    MemoryRegion received;        /* other ranks' uses of one parameter, one after another */
    double *squares;              /* per parameter of the model; and when each rank began, where that is emulated */
} Gradients;

/* Collective: ranks find out who holds what. */
bool gradients_open(Gradients *gradients, const Pipeline *pipeline, double clip, int64_t most_skipped,
                    Diagnostics *diagnostics);
void gradients_close(Gradients *gradients);

/* Whether anything is to be done between backward and update. */
bool gradients_need_work(const Gradients *gradients);
/* Sums the uses of every shared parameter in their order: all holders update their copies alike, as if one stage had
 * all layers. */
void gradients_reduce(Gradients *gradients);
/* Collective. Sets SKY_STEP_GRADIENT_SCALE so that the norm of the whole gradient is at most `clip`. The norm is summed
 * parameter by parameter in the model's order. If it is not finite: returns false on every rank, sets all gradients to
 * zero and names the parameter in a warning; after `most_skipped` such steps in a row it ends the run. */
bool gradients_clip(Gradients *gradients);

#endif
