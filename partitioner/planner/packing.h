/* Rows of several lengths (--dim seq=auto:128 --lengths DATA): what a micro-batch of packed rows looks like. */
#ifndef PARTITIONER_PLANNER_PACKING_H
#define PARTITIONER_PLANNER_PACKING_H

#include "profiler/costs/row_samples.h"

typedef struct PackingWish {
    const int32_t *lengths; /* of `count` rows, from which those of batches are drawn */
    int64_t count;
    uint32_t longest;
    int64_t rows; /* of a step */
} PackingWish;

/* Decides how long lines are, how many a micro-batch has, and how many rows a line has room for: the form that costs
 * the least, weighing padding, attention over longer lines and what every micro-batch costs anew, of those by which a
 * step takes at least `microbatches` on average, if there are any; room for rows such that it hardly ever makes a
 * further line necessary. `whole`: all lines of a micro-batch are computed, though the last one of a step may need
 * fewer. With the form comes what 64 steps of such rows, drawn by a fixed seed and packed as the runtime does, come
 * to. */
RowSamples packing_choose(const PackingWish *wish, int microbatches, bool whole, Arena *arena);

#endif
