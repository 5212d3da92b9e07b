/* What a run's evaluations have come to: which was the best, and how long none has been better. */
#ifndef RUNTIME_TRAIN_WATCH_H
#define RUNTIME_TRAIN_WATCH_H

#include "runtime/storage/checkpoint_manifest.h"
#include "runtime/train/metrics.h"

typedef struct Watch {
    Metric metric;
    int64_t patience;    /* evaluations without improvement that end the run; 0: none do */
    CheckpointBest best; /* of `metric` */
} Watch;

/* `data`: the hash of what is read of the evaluation data. */
void watch_open(Watch *watch, Metric metric, int64_t patience, Hash data);
/* Goes on where a checkpoint stands; false if that one's best is of another metric, or of other data, and so not
 * comparable. */
bool watch_continue(Watch *watch, const CheckpointBest *best);
/* Takes the value after a step in; whether it is the best so far. One that is not finite never is. */
bool watch_take(Watch *watch, int64_t step, double value);
/* Whether there have been as many evaluations without improvement as --patience allows. */
bool watch_is_over(const Watch *watch);

#endif
