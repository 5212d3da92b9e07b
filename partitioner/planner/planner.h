/* The whole of planning: costs and wishes in, a plan with its bound and its comparisons out. */
#ifndef PARTITIONER_PLANNER_PLANNER_H
#define PARTITIONER_PLANNER_PLANNER_H

#include <math.h>

#include "base/parts.h"
#include "partitioner/plan.h"
#include "partitioner/watch.h"

enum { PLAN_MICROBATCHES_AUTO = -1, PLAN_MICROBATCHES_DEFAULT = 8 };
enum { PLAN_REPLICAS_AUTO = -1, PLAN_MOST_REPLICAS = 256 };

typedef struct PlanRequest {
    PlanAllocator allocate;
    PlanObjective objective;
    PlanSchedule schedule;
    PlanRecompute recompute;
    bool quick;       /* an allocator that finds nothing that fits ends planning: nothing is searched for or proven */
    bool part;        /* one of several pipelines that are compared with others: their search is short */
    bool compared;    /* with other plans, by its step: nothing is proven, and the search is short */
    bool rough;       /* with many others: the optimum of the objective is the plan */
    int microbatches; /* 0: those of the costs; PLAN_MICROBATCHES_AUTO: chosen as microbatches.h says */
    int replicas; /* pipelines that share a step, or PLAN_REPLICAS_AUTO; 0: the same, unasked. plan_make ignores it */
    int64_t rows; /* of a step; 0: not known */
    /* For all of planning; what is found then depends on the machine, and plan->timed_out says whether it did.
     * INFINITY: no limit. A fixed amount of work decides (partitioner/watch.h), and the same request gives the same
     * plan anywhere. */
    double time_limit_s;
    Watch *watch; /* that the limit is on; NULL: the clock, without a limit one that counts */
    /* Names of devices that must not be used, and layers that must be on a device. */
    const char *const *without;
    int without_count;
    const PlanPin *pins;
    int pin_count;
    unsigned codecs; /* that links may use (base/codec.h); 0: lossless */
} PlanRequest;

static inline bool plan_request_without(const PlanRequest *request, const char *device)
{
    return word_index(device, request->without, (size_t)request->without_count) >= 0;
}

#define PLAN_REQUEST_DEFAULT                                                                                           \
    ((PlanRequest){                                                                                                    \
        .allocate = PLAN_OPTIMAL, .objective = PLAN_OBJECTIVE_STEP, .schedule = PLAN_AUTO, .time_limit_s = INFINITY})

/* One pipeline. Fills *plan (free with plan_free, in any case). Where nothing fits, plan->infeasible tells, and the
 * plan holds the proof. Fails with EXIT_NO_PLAN when nothing fits or the chosen allocator's allocation does not; where
 * nothing fits, the message names the least more memory on one device, and the fewest more devices, that would do.
 * Fails with EXIT_USAGE when a wish names an unknown device. */
bool plan_make(Plan *plan, const Costs *costs, const PlanRequest *request, Diagnostics *diagnostics);

#endif
