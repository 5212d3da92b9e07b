/* Of the allocations that a problem allows, the one whose schedule takes least in simulation.
 *
 * The objective is a formula for a full pipeline, so that its optimum can be proven. The simulated step also sees links
 * that make stages wait, memory that keeps a pipeline from filling, and work that overlaps with filling and draining
 * it. It is what a run takes, so it decides. */
#ifndef PARTITIONER_PLANNER_FASTEST_H
#define PARTITIONER_PLANNER_FASTEST_H

#include "partitioner/allocation.h"

typedef struct Fastest {
    const Problem *problem;
    int keeper;      /* device with the first stage and the last; -1: none */
    int64_t most_ns; /* of the objective: allocations above it do not count */
    /* Searched orders may also keep fewer micro-batches in flight than 1F1B does, where allocations fit that do not
     * otherwise, or recompute less. The objective says nothing about these. */
    bool limits;
    bool restricts;         /* what a device or a region less would bring is looked at, too */
    double deadline;        /* on the problem's watch; 0: none */
    Allocation *allocation; /* the fastest so far, the caller's */
    int64_t step_ns;        /* its simulated step; INT64_MAX: none was offered that fits */
    int in_flight_limit;    /* with which it fits, and is this fast */
    int simulated;          /* allocations */
    bool complete;          /* every allocation that counts was looked at: none is faster */
} Fastest;

Fastest fastest_create(const Problem *problem, int keeper, double deadline, Allocation *allocation);
/* Takes a copy of the allocation if it fits and is faster than what was offered before. */
void fastest_offer(Fastest *fastest, const Allocation *allocation);
/* Looks at all allocations where there are few, else at those near the fastest so far, which there must be then. With
 * few devices also at those that look fastest, of all devices and where a device or a region is left out, and at those
 * near these. */
void fastest_search(Fastest *fastest);

#endif
