/* Rows of several lengths that share lines of tokens (runtime/program/packing.h): what sampled steps over them came
 * to. A step has as many micro-batches as its rows need, at most one per `lines` rows, as if all were padded.
 *
 * In costs.json and plan.json the member "rows": {"batch", "lines", "length", "slots", "longest", "lines_computed",
 * "tokens_computed", "microbatches": [[number, steps], ...], "lengths": [[tokens, rows], ...]}, ascending; of steps
 * there are 1, 2, 4 ... 1024, so that their mean is exact in doubles. Absent where all steps are alike.
 *
 * "lines_computed" are those of all sampled steps, where the last micro-batch of a step has only the lines that are
 * needed; absent where it has as many as the others. "tokens_computed" are those of these lines, where the last line of
 * a micro-batch is computed up to its last row only; absent where all of it is. Costs are those of a micro-batch with
 * as many tokens as they have on average then. */
#ifndef PROFILER_COSTS_ROW_SAMPLES_H
#define PROFILER_COSTS_ROW_SAMPLES_H

#include "base/arena.h"
#include "base/json.h"
#include "runtime/program/packing.h"

typedef struct SampleCount {
    int value, times;
} SampleCount;

typedef struct RowSamples {
    SkyPacking packing; /* of a micro-batch; rows of a step */
    /* Of the sampled steps and their rows: ascending values, no times 0. No steps: rows are not packed. */
    SampleCount *microbatches, *lengths;
    int microbatch_kinds, length_kinds;
    int64_t lines_computed;  /* of all sampled steps together; 0: each micro-batch has packing.lines */
    int64_t tokens_computed; /* likewise; 0: all tokens of these lines */
} RowSamples;

/* Counts equal values, which are sorted. The counts are the arena's. */
SampleCount *sample_counts(const int32_t *sorted, size_t count, int *kinds, Arena *arena);

int row_samples_steps(const RowSamples *samples);
int64_t row_samples_microbatches(const RowSamples *samples); /* of all sampled steps together */
int row_samples_worst(const RowSamples *samples);            /* of any sampled step; 0 without samples */
double row_samples_mean(const RowSamples *samples);          /* of a step */
/* Share of the tokens computed that belong to no row, in all; and if every row were padded to the longest. */
double row_samples_padding(const RowSamples *samples);
double row_samples_padded(const RowSamples *samples);

/* The share of the tokens of packing.lines lines that micro-batches compute on average; and what takes `expected` with
 * so many takes with all of them, rounded up. */
double row_samples_share(const RowSamples *samples);
int64_t row_samples_whole(const RowSamples *samples, int64_t expected);

/* What the micro-batches after the first of a step take on average where each takes `period`, rounded up; without
 * samples: where there are `microbatches`. */
int64_t row_samples_rounds(const RowSamples *samples, int microbatches, int64_t period);

bool row_samples_equal(const RowSamples *a, const RowSamples *b);
RowSamples row_samples_copy(const RowSamples *samples, Arena *arena);
/* NULL, or what is impossible about them where a step has room for so many micro-batches. */
const char *row_samples_fault(const RowSamples *samples, int microbatches);
/* Adds the member "rows", if there are samples. */
void row_samples_add(const RowSamples *samples, JsonWriter *json);
/* Reads the member of `root`, if it is there, and checks it. */
bool row_samples_read(RowSamples *samples, JsonReader reader, const json_t *root, int microbatches, Arena *arena);

#endif
