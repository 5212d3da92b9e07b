/* Ranks that share the processors of a host. A step is simulated as if each had its own; then, wherever those at work
 * on a host need more processors than it has, that stretch of the step takes as many times as long. All ranks wait for
 * each other in a pipeline, so that what slows some down slows the step down. */
#ifndef PARTITIONER_SCHEDULE_HOST_LOAD_H
#define PARTITIONER_SCHEDULE_HOST_LOAD_H

#include "partitioner/plan.h"

/* From `at` on, so much more is at work on a host. */
typedef struct HostLoadChange {
    int64_t at;
    int host;
    double cores;
} HostLoadChange;

typedef struct HostLoad {
    HostLoadChange *changes;
    int count, capacity;
} HostLoad;

/* The rank works from `start` on. */
void host_load_add(HostLoad *load, int64_t start, int64_t duration, const PlanRank *rank);
/* Moments of the step as it was simulated, ascending, and when they really are. */
typedef struct HostStretch {
    int64_t *from, *to;
    int count;
} HostStretch;

/* In the arena. */
HostStretch host_load_stretch(HostLoad *load, const Plan *plan, Arena *arena);
int64_t host_stretch_moment(const HostStretch *s, int64_t at);
void host_load_free(HostLoad *load);

#endif
