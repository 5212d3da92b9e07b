/* From an allocation to a plan: ranks, links, instruction lists; and the simulator of one step of a plan. */
#ifndef PARTITIONER_SCHEDULE_H
#define PARTITIONER_SCHEDULE_H

#include "partitioner/problem.h"

/* Fills everything of `plan` that follows from the allocation: stages, ranks, links, instructions, period, step,
 * simulated step and bubble. Bound, certificate and comparison are left alone (zero). The plan gets an arena of its
 * own. */
void plan_build(Plan *plan, const Problem *problem, const Allocation *allocation, PlanAllocator allocator);

/* When each instruction of a rank started and ended in a simulated step; ns. */
typedef struct SimulatedSpan {
    int64_t start, end;
} SimulatedSpan;

typedef struct Simulation {
    Arena arena;
    int64_t step_ns;
    double bubble;         /* idle share of the ranks until the last one is done */
    SimulatedSpan **spans; /* [rank][instruction] */
} Simulation;

/* Runs the plan's instruction lists: a rank does one instruction after the other; sends do not block, a link carries
 * one message at a time per direction and delivers it a latency after it left; a receive waits for its message. Refuses
 * (false, reporting what and where) lists that deadlock, use a stash slot twice or out of range, run a backward without
 * its forward, or leave work undone. Needs only the plan. */
bool plan_simulate(Simulation *simulation, const Plan *plan, Diagnostics *diagnostics);
void simulation_free(Simulation *simulation);

#endif
