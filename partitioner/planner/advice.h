/* What a reviewer asks about a plan: could it do without one of its devices, and which change of the cluster would help
 * most? Answered by planning again, within a budget of work and not of time: the same plan gets the same answers. */
#ifndef PARTITIONER_PLANNER_ADVICE_H
#define PARTITIONER_PLANNER_ADVICE_H

#include "partitioner/plan.h"
#include "partitioner/solve/replan.h"

typedef struct AdviceWithout {
    const char *device; /* of its kind the one with the least to do */
    int alike;          /* used devices that this stands for, itself included */
    Replanned plan;
} AdviceWithout;

typedef enum AdviceKind {
    ADVICE_MEMORY,       /* more memory on a device */
    ADVICE_SPEED,        /* a device twice as fast */
    ADVICE_DEVICE,       /* one more device like one there is */
    ADVICE_BANDWIDTH,    /* a link twice as fast */
    ADVICE_LATENCY,      /* a link with half the latency */
    ADVICE_MICROBATCHES, /* smaller micro-batches */
    ADVICE_KIND_COUNT
} AdviceKind;

/* A cluster that differs from the plan's in one respect. */
typedef struct ClusterChange {
    AdviceKind kind;
    int device;   /* index into the plan's costs, devices left out not counted */
    int from, to; /* regions */
} ClusterChange;

typedef struct AdviceChange {
    AdviceKind kind;
    ClusterChange change;
    const char *device;    /* of the first three; else NULL */
    const char *from, *to; /* regions of the last two; else NULL */
    /* For ADVICE_MEMORY: what the new plan needs there, and the limit that it is over. */
    int64_t memory_bytes, limit_bytes;
    /* For ADVICE_MICROBATCHES: of a micro-batch, 0 where rows are packed; and of a step. */
    int64_t rows, batch;
    Replanned plan;
    int64_t gain_ns; /* against the plan as it is; positive */
} AdviceChange;

enum { ADVICE_CHANGES = 3 };

typedef struct Advice {
    Arena arena;
    bool given; /* false: the plan was not made by an allocator that seeks the best, or leaves nothing to ask */
    AdviceWithout *without; /* of every kind of device that is used, the least needed first; at most a dozen */
    int without_count;
    /* The most helpful first, at most one of a kind while there are others; and what advice_add_microbatches adds. */
    AdviceChange changes[ADVICE_CHANGES + 1];
    int change_count;
    int tried; /* changes that were examined */
} Advice;

/* `costs` are those the plan was made from. What is not asked by the deadline (on the monotonic clock; 0: before
 * a fixed amount of work is done) is left out, or answered less closely. */
void advice_make(Advice *advice, const Plan *plan, const Costs *costs, double deadline);
/* Smaller micro-batches, by which a step of the same rows takes at most what was found, less than the plan's. */
void advice_add_microbatches(Advice *advice, const Plan *plan, int64_t rows, int64_t batch, Replanned found);
void advice_free(Advice *advice);

#endif
