/* Packed sequences ("lines"): a micro-batch is a few lines that several rows share, each a run of neighbouring tokens,
 * instead of one padded row a line. Shapes stay static; where each row is changes from step to step, and kernels learn
 * it from inputs that the runtime fills. */
#ifndef RUNTIME_PROGRAM_PACKING_H
#define RUNTIME_PROGRAM_PACKING_H

#include <stdint.h>

/* What the runtime puts into a graph input. */
typedef enum SkyFill {
    SKY_FILL_ROWS,     /* [rows, ...]: rows of the data set, in their order: nothing is packed */
    SKY_FILL_TOKENS,   /* [lines, length, ...]: the tokens of packed rows, of the data set's [N, length, ...] */
    SKY_FILL_SLOTS,    /* [lines * slots, ...]: an element of the data set's [N, ...] per slot */
    SKY_FILL_SLOT,     /* int32 [lines, length]: per token the slot of its row, counted through the micro-batch;
                            lines * slots where there is no row */
    SKY_FILL_POSITION, /* int32 [lines, length]: per token its place in its row, from 0 */
    SKY_FILL_ROW,      /* int32 [lines, length]: per token the number of its row in the batch; 0 without one */
    SKY_FILL_FIRST,    /* int32 [lines, slots]: per slot the first token of its row, counted through the micro-batch;
                            of a slot without a row the first of its line */
    SKY_FILL_COUNT
} SkyFill;

/* The form of a micro-batch. slots == 0: rows are not packed. */
typedef struct SkyPacking {
    uint32_t lines;   /* of a micro-batch; where they vary, at most */
    uint32_t length;  /* tokens of a line: as many as the longest row has, or more */
    uint32_t slots;   /* rows that a line has room for */
    uint32_t rows;    /* of a batch: microbatch_count micro-batches hold as many, however long they are */
    uint32_t longest; /* tokens that a row may have */
} SkyPacking;

#endif
