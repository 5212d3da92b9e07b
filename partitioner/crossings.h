/* What leaves a region: the plan's list of every tensor that crosses between regions. */
#ifndef PARTITIONER_CROSSINGS_H
#define PARTITIONER_CROSSINGS_H

#include "partitioner/plan.h"

/* Fills plan->crossings from its stages: activations forward and their gradients back over every cut between two
 * regions, and, where `keep` names the home of raw inputs or labels, those that a stage in another region reads. */
void crossings_fill(Plan *plan, const Costs *costs);

/* A raw input or label that `keep` gives a home (a device or a site) and that others read as well: every stage reads
 * what its layers need from its own copy of the data. */
typedef struct StrayInput {
    const char *name, *home; /* the costs' */
    int devices;             /* that read it and are not its home, or not in it */
} StrayInput;

/* Lists up to `most` of them; returns how many. */
int crossings_strays(const Plan *plan, const Costs *costs, StrayInput *strays, int most);

#endif
