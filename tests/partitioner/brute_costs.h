/* What a stage costs, straight from the format's words: for tests that enumerate all plans. Shares nothing with the
 * planner. */
#ifndef TESTS_PARTITIONER_BRUTE_COSTS_H
#define TESTS_PARTITIONER_BRUTE_COSTS_H

#include <math.h>

#include "partitioner/plan.h"

static inline int64_t brute_nanoseconds(double seconds) { return (int64_t)ceil(seconds * 1e9); }

static inline int64_t brute_larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* What all micro-batches but the first take: on average, where steps have different numbers of them. */
static inline int64_t brute_rounds(const Costs *costs, int64_t period)
{
    int64_t all = 0, steps = 0;
    for (int i = 0; i < costs->rows.microbatch_kinds; i++)
        for (int k = 0; k < costs->rows.microbatches[i].times; k++, steps++)
            all += (costs->rows.microbatches[i].value - 1) * period;
    return steps == 0 ? (costs->microbatches - 1) * period : (all + steps - 1) / steps;
}

/* Of the layers start ... end-1, with `to_end` stages from here to the end; `again`: the stage recomputes. */
static inline int64_t brute_stage_bytes(const Costs *costs, PlanSchedule schedule, int start, int end, int to_end,
                                        bool again)
{
    const LayerCost *layers = costs->layers;
    int n = costs->microbatches, in_flight = schedule == PLAN_GPIPE || n < to_end ? n : to_end;
    int64_t bytes = 0, scratch = 0, buffers = again ? 4 + 2 * in_flight : 4;
    for (int l = start; l < end; l++) {
        int64_t stash = layers[l].stash_bytes - (l + 1 < end ? layers[l].shared_bytes : 0);
        bytes += layers[l].memory_bytes + layers[l].state_bytes;
        bytes += again ? stash + in_flight * layers[l].kept_bytes : in_flight * stash;
        if (layers[l].scratch_bytes > scratch) scratch = layers[l].scratch_bytes;
    }
    if (start > 0 && !layers[start].resident) bytes += buffers * layers[start - 1].output_bytes;
    if (end < costs->layer_count && !layers[end - 1].resident) bytes += buffers * layers[end - 1].output_bytes;
    return bytes + scratch;
}

#endif
