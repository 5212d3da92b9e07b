/* The whole of planning: costs and wishes in, a plan with its bound and its comparisons out. */
#ifndef PARTITIONER_PLANNER_H
#define PARTITIONER_PLANNER_H

#include "partitioner/plan.h"

enum { PLAN_MICROBATCHES_AUTO = -1 };

typedef struct PlanRequest {
    PlanAllocator allocate;
    PlanObjective objective;
    PlanSchedule schedule;
    PlanRecompute recompute;
    int microbatches;    /* 0: those of the costs; PLAN_MICROBATCHES_AUTO: chosen as microbatches.h says */
    double time_limit_s; /* for the optimal allocator */
    /* Names of devices that must not be used, and layers that must be on a device. */
    const char *const *without;
    int without_count;
    const PlanPin *pins;
    int pin_count;
} PlanRequest;

#define PLAN_REQUEST_DEFAULT                                                                                           \
    ((PlanRequest){                                                                                                    \
        .allocate = PLAN_OPTIMAL, .objective = PLAN_OBJECTIVE_STEP, .schedule = PLAN_AUTO, .time_limit_s = 30})

/* Fills *plan (free with plan_free, in any case). Where nothing fits, plan->infeasible tells, and the plan holds the
 * proof. Fails with EXIT_NO_PLAN when nothing fits - the message then names the smallest
 * memory on one device, and the smallest number of further devices, that would do - or when the chosen allocator's
 * allocation does not fit; with EXIT_USAGE when a wish names an unknown device. */
bool plan_make(Plan *plan, const Costs *costs, const PlanRequest *request, Diagnostics *diagnostics);

#endif
