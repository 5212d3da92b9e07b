/* Sums of gradients over everything that has a part of them, before the update: the layers that share a parameter (tied
 * weights, perhaps in different stages), and the replicas that share a step.
 *
 * Terms are added in a fixed order: replica by replica, and the layers' uses in their order within each. So bits depend
 * on the dealing of rows to replicas alone. All holders end up with the sum, and update their copies alike, as if one
 * stage had all layers.
 *
 * Two ranks that hold a parameter send each other all of it. Three or more sum an equal part each, and send it to the
 * others: reduce-scatter and all-gather. Parameters go in pieces, and pieces in rounds, so that little memory is
 * needed. */
#ifndef RUNTIME_TRAIN_GRADIENT_SUMS_H
#define RUNTIME_TRAIN_GRADIENT_SUMS_H

#include "runtime/train/pipeline.h"

/* One layer's part of the gradient of a parameter, in one replica. */
typedef struct GradientTerm {
    uint32_t replica, number; /* SkyUse.number */
    int rank;
    float *gradient; /* of the whole parameter; NULL if it is another rank's */
} GradientTerm;

/* A run of elements of one parameter. */
typedef struct GradientPiece {
    uint32_t global_index;
    size_t first, elements;
    float *target;             /* where updates read the sum, of the whole parameter */
    const GradientTerm *terms; /* of all ranks, in order; pieces of a parameter share them */
    int term_count;
    const int *holders; /* ranks, ascending */
    int holder_count, own;
    float **parts; /* per term: where this rank's part of it is while it is added up */
    uint32_t round;
} GradientPiece;

typedef struct GradientSums {
    Arena arena;
    World *world;
    Execution *execution;
    MessageTags tags;
    GradientPiece *pieces; /* of parameters held here, by global index */
    int piece_count;
    uint32_t *owner;       /* per parameter of the model: the rank that has it in the earliest stage */
    MemoryRegion received; /* other ranks' parts of a round's pieces, one after another; for two rounds in turn */
    size_t half;           /* elements for one */
    double planned_s;      /* emulated; 0: not */
    double *begun;         /* per rank */
} GradientSums;

/* Collective: ranks find out who holds what. */
bool gradient_sums_open(GradientSums *sums, const Pipeline *pipeline, Diagnostics *diagnostics);
void gradient_sums_close(GradientSums *sums);
/* Collective among those that hold the same parameters. */
void gradient_sums_make(GradientSums *sums);
/* Collective among them. Gives the other replicas the values and states that the first one has: checkpoints are its. */
void gradient_sums_spread_values(GradientSums *sums);
/* The next parameter of this rank with that global index, starting at stage *stage; NULL after the last. */
const SkyParameter *gradient_sums_held(const Execution *execution, uint32_t global_index, uint32_t *stage);

#endif
