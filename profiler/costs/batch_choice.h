/* How the rows of an optimiser step were cut into micro-batches, where the user left that open (--batch ROWS).
 *
 * In costs.json and plan.json the member "batch": {"rows", "microbatches", "tried": [{"microbatches", "step_s"}, ...]}.
 * A micro-batch of rows of one length has rows / microbatches rows. Where rows are packed, `microbatches` is the least
 * number that forms were asked to have on average. Absent where the user said how many rows a micro-batch has. */
#ifndef PROFILER_COSTS_BATCH_CHOICE_H
#define PROFILER_COSTS_BATCH_CHOICE_H

#include "base/arena.h"
#include "base/json.h"

typedef struct BatchTrial {
    int microbatches;
    int64_t step_ns; /* of the allocation that the search used; 0: nothing was found that fits */
} BatchTrial;

typedef struct BatchChoice {
    int64_t rows; /* of a step; 0: there was no choice */
    int microbatches;
    BatchTrial *tried; /* micro-batches descending; none where the model or its loss leaves one form */
    int tried_count;
} BatchChoice;

enum { BATCH_CHOICE_LINE = 512 };

bool batch_choice_equal(const BatchChoice *a, const BatchChoice *b);
BatchChoice batch_choice_copy(const BatchChoice *choice, Arena *arena);
/* "Micro-batches: 4 of 8 rows (tried 1, 2, 4, 8, 16, 32)"; `mean`: micro-batches of a step where rows are packed; 0:
 * they are not. Empty where there was no choice. */
const char *batch_choice_line(const BatchChoice *choice, double mean, char text[static BATCH_CHOICE_LINE]);
/* Adds the member, if there was a choice. */
void batch_choice_add(const BatchChoice *choice, JsonWriter *json);
/* Reads the member of `root`, if it is there, and checks it. `packed`: its rows are. */
bool batch_choice_read(BatchChoice *choice, JsonReader reader, const json_t *root, bool packed, Arena *arena);

#endif
