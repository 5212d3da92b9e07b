/* Steps of replicas in simulation: with sums of gradients that overlap, and where rows are packed. */
#ifndef PARTITIONER_SCHEDULE_REPLICA_STEPS_H
#define PARTITIONER_SCHEDULE_REPLICA_STEPS_H

#include "partitioner/plan.h"

/* The simulated step of a joined plan: the gradients of a layer are summed from when the last rank that has it ends it
 * in its last backward, in proportion to the layers' times there, layer by layer in the plan's order; then all agree on
 * the norm, and update. `choose`: where that is sooner, the plan gets the order in which layers are ready. Reports a
 * pipeline that does not run. */
bool replica_steps_overlap(Plan *plan, const Costs *costs, bool choose, Diagnostics *diagnostics);

/* Where the rows of a joined plan are packed, its step is the one to expect: the mean over the sampled steps, of which
 * each replica simulates the micro-batches that it was dealt. What the objective has of a whole step is less by as
 * much. The replicas' bounds are about whole steps, so the plan has none. Does nothing where rows are not packed. */
void replica_steps_expect(Plan *plan);

#endif
