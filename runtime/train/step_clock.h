/* Where the wall-clock time of a rank's steps goes. At every moment one part is running, so parts add up to all of it;
 * what no part names is PART_REST. */
#ifndef RUNTIME_TRAIN_STEP_CLOCK_H
#define RUNTIME_TRAIN_STEP_CLOCK_H

#include "base/clock.h"

typedef enum StepPart {
    PART_REST,
    PART_DATA,    /* rows found, copied into inputs and checked */
    PART_PACKING, /* rows placed in packed sequences */
    PART_FORWARD,
    PART_BACKWARD,
    PART_NORM,     /* sums of shared gradients, the norm of all */
    PART_MESSAGES, /* posted, tested, copied */
    PART_WAITING,  /* for other ranks: the bubble too */
    PART_UPDATE,   /* with pipeline_update's spot check */
    PART_LOG,
    PART_CHECKPOINT, /* this and the next with everything in them */
    PART_EVALUATION,
    PART_COUNT
} StepPart;

typedef struct StepClock {
    StepPart part;
    double since, begin; /* monotonic_seconds(): of the part, of the step */
    double seconds[PART_COUNT];
} StepClock;

/* Ends the part that is running. */
static inline void step_clock_set(StepClock *clock, StepPart part)
{
    double now = monotonic_seconds();
    clock->seconds[clock->part] += now - clock->since;
    clock->since = now;
    clock->part = part;
}

/* Begins a part within another, which is returned for step_clock_leave. */
static inline StepPart step_clock_enter(StepClock *clock, StepPart part)
{
    StepPart before = clock->part;
    if (before != PART_CHECKPOINT && before != PART_EVALUATION) step_clock_set(clock, part);
    return before;
}

static inline void step_clock_leave(StepClock *clock, StepPart before) { step_clock_set(clock, before); }

/* A step begins. */
static inline void step_clock_start(StepClock *clock)
{
    double now = monotonic_seconds();
    *clock = (StepClock){.since = now, .begin = now};
}

#endif
