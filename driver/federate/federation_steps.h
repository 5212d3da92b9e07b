/* What of a federation follows from the sites' devices: rows of a step, and local_steps: auto, decided by how the sites' steps are planned and the links that federation.yaml gives. */
#ifndef DRIVER_FEDERATE_FEDERATION_STEPS_H
#define DRIVER_FEDERATE_FEDERATION_STEPS_H

#include "federation/federation.h"
#include "federation/planning/meeting_time.h"

#define MEETING_SHARE 0.05 /* of a round, at most */

/* What meetings of all sites, each a replica, are calculated with. */
MeetingRules federation_meeting_rules(const Federation *federation, int64_t elements, int64_t states);

/* Files that federation.yaml names lie beside it. */
const char *federation_cluster(Arena *arena, const char *file, const char *cluster);
/* Rows of a step are whole micro-batches of `rows`; `microbatches` (< 1: not given) says how many where a site does not
 * say its rows. */
bool federation_settle_rows(Federation *federation, const char *file, int64_t rows, int microbatches,
                            Diagnostics *diagnostics);

/* Sets local_steps and compiled.why_steps of a federation whose sites' plans lie in DIRECTORY/SITE/plan.json, if they are
 * to be decided. Every site has a link with the coordinator. */
bool federation_settle_steps(Federation *federation, int64_t elements, const char *directory, Diagnostics *diagnostics);

#endif
