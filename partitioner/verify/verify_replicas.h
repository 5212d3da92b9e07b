/* Checks what a plan with several pipelines says of all of them together. */
#ifndef PARTITIONER_VERIFY_VERIFY_REPLICAS_H
#define PARTITIONER_VERIFY_VERIFY_REPLICAS_H

#include "partitioner/plan.h"

/* That no device is in two groups, that pipelines answer the same question, and the numbers of the whole. `group_of`
 * [device] gets the groups (partitioner/replicas.h). False after reporting (EXIT_BAD_INPUT). */
bool verify_replicas(const Plan *plan, const Costs *costs, int *group_of, Diagnostics *diagnostics);
/* That the rows of a step are those of the costs. */
bool verify_rows(const Plan *plan, const Costs *costs, Diagnostics *diagnostics);
/* The bounds of the groupings that were compared. */
bool verify_groupings(const Plan *plan, const Costs *costs, Diagnostics *diagnostics);

#endif
