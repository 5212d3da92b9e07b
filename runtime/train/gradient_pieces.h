/* What gradients are summed in: who has which parameter, when its gradient is final, pieces and rounds. */
#ifndef RUNTIME_TRAIN_GRADIENT_PIECES_H
#define RUNTIME_TRAIN_GRADIENT_PIECES_H

#include "base/codec.h"
#include "runtime/train/pipeline.h"

/* One layer's part of the gradient of a parameter, in one replica. */
typedef struct GradientTerm {
    uint32_t replica, number; /* SkyUse.number */
    int rank;
    float *gradient; /* of the whole parameter; NULL if it is another rank's */
    /* Where terms are coded, also of the whole parameter: what coding has lost, and the coded term. */
    float *residual;
    uint8_t *coded;
} GradientTerm;

/* A run of elements of one parameter. */
typedef struct GradientPiece {
    uint32_t global_index;
    size_t first, elements;
    size_t row;          /* elements of a table's row, where only rows that are not 0 are sent; 0: all are */
    float *target;       /* where updates read the sum, of the whole parameter */
    float *sum_residual; /* where sums are coded, of the whole parameter */
    uint8_t *sum_coded;
    const GradientTerm *terms; /* of all ranks, in order; pieces of a parameter share them */
    int term_count;
    const int *holders; /* ranks, ascending */
    int holder_count, own;
    float **parts; /* per term: where this rank's part of it is while it is added up; of a table: what arrived */
    float *received, *packed; /* of a table: messages of other holders, and to them; gradient_part_room for each */
    size_t moved[2];          /* of a table: elements that the step's messages of terms and of sums had */
    uint32_t stage, calls;    /* final when so many calls of the last list of that stage of this rank are done */
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
    Codec codec; /* of terms; CODEC_NONE: they are not coded */
    bool codes_sums;
    GradientPiece *pieces; /* of parameters held here, by global index */
    int piece_count;
    GradientRound *rounds;
    int round_count;            /* of this rank */
    uint32_t whole_rounds;      /* of all ranks: pieces know their numbers */
    int begun, added, finished; /* rounds of this step */
    uint32_t *calls;            /* per stage of this rank: done of the list that ends its gradients */
    uint32_t *owner;            /* per parameter of the model: the rank that has it in the earliest stage */
    MemoryRegion received;      /* other ranks' parts of the pieces of rounds that are under way */
    MemoryRegion packed;        /* what is sent of tables; as many elements, if there are tables */
    MemoryRegion coded;         /* what `received` is decoded from: as many elements */
    bool emulated;              /* what sums take is as planned */
    double *when;               /* [rank][round], and one rank more for this one's */
} GradientSums;

/* Collective. Settles owners, pieces and rounds; returns the elements that rounds under way need room for. */
size_t gradient_pieces_settle(GradientSums *sums);

/* The elements of the piece that a holder sums: with two holders, each sums all. Parts begin with whole tiles, of
 * tables with whole rows. */
size_t gradient_part_begin(const GradientPiece *piece, int holder);
size_t gradient_part_elements(const GradientPiece *piece, int holder);
/* Of this rank's part, with room for whole tiles; of tables, of a message about the largest part. */
size_t gradient_part_room(const GradientPiece *piece);

/* How often the model uses a parameter, as sums count it: 0, it is not summed. */
uint32_t gradient_uses(const SkyProgram *program, const SkyParameter *parameter);

/* The next parameter of this rank with that global index, starting at stage *stage; NULL after the last. */
const SkyParameter *gradient_sums_held(const Execution *execution, uint32_t global_index, uint32_t *stage);

#endif
