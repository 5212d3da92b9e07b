/* From an allocation to a plan: ranks, links, instruction lists. */
#ifndef PARTITIONER_SCHEDULE_SCHEDULE_H
#define PARTITIONER_SCHEDULE_SCHEDULE_H

#include "partitioner/allocation.h"

/* Fills everything of `plan` that follows from the allocation: stages, ranks, links, instructions, period, step,
 * simulated step and bubble. Bound, certificate and comparison are left alone (zero). The plan gets an arena of its
 * own. */
void plan_build_candidate(Plan *plan, const Problem *problem, const Allocation *allocation);
/* The same with its names: of the model and the allocator. Hashing costs takes longer than a simulation, so the planner
 * does that for plans it gives out. */
void plan_build(Plan *plan, const Problem *problem, const Allocation *allocation, PlanAllocator allocator);

#endif
