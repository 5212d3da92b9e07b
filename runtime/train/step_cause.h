/* Why steps took another time than planned: the part, on one rank, that differs most. */
#ifndef RUNTIME_TRAIN_STEP_CAUSE_H
#define RUNTIME_TRAIN_STEP_CAUSE_H

#include "runtime/train/progress.h"
#include "runtime/train/world.h"

/* Seconds of parts, of all steps but the first, unless that is the only one. */
typedef struct StepParts {
    double seconds[PART_COUNT];
    int64_t seen, steps, microbatches;
} StepParts;

/* A step of so many micro-batches has ended: the clock's parts are complete. */
void step_parts_add(StepParts *parts, const StepClock *clock, int64_t microbatches);
/* Collective, at the end of a run: rank 0 says in one sentence what differs most from the plan, if steps differ
 * from it by more than 5%. */
void step_cause_say(World *world, const SkyProgram *program, const StepParts *mine, Progress *progress);

#endif
