/* What follows from the sites' devices: rows per step, and local_steps: auto, by planned step times and the links in
 * federation.yaml. */
#ifndef DRIVER_FEDERATE_FEDERATION_STEPS_H
#define DRIVER_FEDERATE_FEDERATION_STEPS_H

#include "federation/federation.h"
#include "federation/planning/meeting_time.h"

#define MEETING_SHARE 0.05 /* the largest share of a round */

/* The rules for calculating exchanges with every site as a replica. */
MeetingRules federation_meeting_rules(const Federation *federation, int64_t elements, int64_t states);

/* Cluster files are named relative to federation.yaml. */
const char *federation_cluster(Arena *arena, const char *file, const char *cluster);
/* Sets the rows per step: whole micro-batches of `rows`. `microbatches` (< 1: not given) applies to sites that do
 * not say. */
bool federation_settle_rows(Federation *federation, const char *file, int64_t rows, int microbatches,
                            Diagnostics *diagnostics);

/* Sets local_steps and compiled.why_steps if local_steps is auto. The sites' plans are in DIRECTORY/SITE/plan.json.
 * Every site has a link to the coordinator. */
bool federation_settle_steps(Federation *federation, int64_t elements, const char *directory, Diagnostics *diagnostics);

#endif
