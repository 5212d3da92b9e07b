/* The simulator of one step of a plan: what a schedule takes, and whether it runs at all. */
#ifndef PARTITIONER_SCHEDULE_SIMULATE_H
#define PARTITIONER_SCHEDULE_SIMULATE_H

#include "partitioner/plan.h"

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

/* Where ranks share the processors of a host (Plan.processors), time passes more slowly while those at work need more
 * than there are (host_load.h).
 *
 * Runs the plan's instruction lists: a rank does one instruction after the other; sends do not block, a link carries
 * one message at a time per direction (or in all, where they share it) and delivers it a latency after it left; a
 * receive waits for its message, and the first REDUCE of a rank for the norm of the gradient, where the plan has a
 * round for that. Sends begin with encoding and receives end with decoding, on the rank. Refuses (false, reporting
 * what and where) lists that deadlock, use a stash slot twice or out of range, run a backward without its forward, or
 * leave work undone. Needs only the plan. */
bool plan_simulate(Simulation *simulation, const Plan *plan, Diagnostics *diagnostics);
/* A step with the first `microbatches` only: what is about others is left out. */
bool plan_simulate_first(Simulation *simulation, const Plan *plan, int microbatches, Diagnostics *diagnostics);
/* The mean over the sampled steps (rounded up) and the idle share of all of them together; without samples those of the
 * whole step. The whole step has to run, too. */
bool plan_simulate_samples(const Plan *plan, int64_t *step_ns, double *bubble, Diagnostics *diagnostics);
void simulation_free(Simulation *simulation);

#endif
