/* What leaves a site: the plan's list of every tensor that crosses between sites. */
#ifndef PARTITIONER_SITE_CROSSINGS_H
#define PARTITIONER_SITE_CROSSINGS_H

#include "base/json.h"
#include "partitioner/plan.h"

/* Fills plan->site_crossings from its stages, in this order: per cut between two sites the activations and then their
 * gradients; per shared parameter, what sites with a use of it send each other; per stage, raw inputs and labels that
 * another site is the home of. Nothing where the costs know no sites. */
void site_crossings_fill(Plan *plan, const Costs *costs);

const char *site_crossing_kind_name(PlanCrossingKind kind);

/* The member "crossings_between_sites" of plan.json; nothing where the plan knows no sites. */
void site_crossings_print(const Plan *plan, JsonWriter *json);
bool site_crossings_read(Plan *plan, JsonReader reader, const json_t *root);

#endif
