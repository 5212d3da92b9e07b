/* What leaves a region: the plan's list of every tensor that crosses between regions. */
#ifndef PARTITIONER_CROSSINGS_H
#define PARTITIONER_CROSSINGS_H

#include "partitioner/plan.h"

/* Fills plan->crossings from its stages: activations forward and their gradients back over every cut between two
 * regions, and, where `keep` names the home of raw inputs or labels, those that a stage in another region reads. */
void crossings_fill(Plan *plan, const Costs *costs);
bool crossings_equal(const Plan *a, const Plan *b);

#endif
