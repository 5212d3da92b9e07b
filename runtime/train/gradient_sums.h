/* Sums of gradients over everything that has a part of them, before the update: the layers that share a parameter (tied
 * weights, perhaps in different stages), and the replicas that share a step.
 *
 * Terms are added in a fixed order: replica by replica, and the layers' uses in their order within each. So bits depend
 * on the dealing of rows to replicas alone. All holders end up with the sum, and update their copies alike, as if one
 * stage had all layers.
 *
 * Two ranks that hold a parameter send each other all of it. Three or more sum an equal part each, and send it to the
 * others: reduce-scatter and all-gather. Parameters go in pieces, and pieces in rounds, so that little memory is
 * needed.
 *
 * Rounds are in the order in which the last backward finishes gradients, the last layer first. A round begins as soon
 * as its gradients are final here, while kernels compute the others. All ranks have the same order, so the earliest
 * round that is not done can always go on. */
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
    float **parts;         /* per term: where this rank's part of it is while it is added up */
    uint32_t stage, calls; /* final when so many calls of the last list of that stage of this rank are done */
    uint32_t round;
} GradientPiece;

/* The pieces that this rank has of a round. */
typedef struct GradientRound {
    GradientPiece *pieces;
    int count, after; /* the round whose place in `received` it takes; -1: none's */
    size_t first;     /* element of `received` */
    size_t elements;  /* of its pieces */
    int terms, sums;  /* messages under way */
    double when;      /* emulated: its gradients were final */
} GradientRound;

typedef struct GradientSums {
    Arena arena;
    World *world;
    Execution *execution;
    MessageTags tags;
    GradientPiece *pieces; /* of parameters held here, by global index */
    int piece_count;
    GradientRound *rounds;
    int round_count;            /* of this rank */
    uint32_t whole_rounds;      /* of all ranks: pieces know their numbers */
    int begun, added, finished; /* rounds of this step */
    uint32_t *calls;            /* per stage of this rank: done of the list that ends its gradients */
    uint32_t *owner;            /* per parameter of the model: the rank that has it in the earliest stage */
    MemoryRegion received;      /* other ranks' parts of the pieces of rounds that are under way */
    bool emulated;              /* what sums take is as planned */
    double *when;               /* [rank][round], and one rank more for this one's */
} GradientSums;

/* Collective: ranks find out who holds what. */
bool gradient_sums_open(GradientSums *sums, const Pipeline *pipeline, Diagnostics *diagnostics);
void gradient_sums_close(GradientSums *sums);
/* So many calls of the last list that adds to the gradients of a stage of this rank are done at `when`: begins and goes
 * on with what can be summed. `threads` add. Does not wait. */
void gradient_sums_advance(GradientSums *sums, uint32_t local_stage, uint32_t calls, double when);
/* After the last backward. Collective among those that hold the same parameters. */
void gradient_sums_make(GradientSums *sums);
/* Collective among them. Gives the other replicas the values and states that the first one has: checkpoints are its. */
void gradient_sums_spread_values(GradientSums *sums);
/* The next parameter of this rank with that global index, starting at stage *stage; NULL after the last. */
const SkyParameter *gradient_sums_held(const Execution *execution, uint32_t global_index, uint32_t *stage);

#endif
