/* Local search over groupings of devices into replicas, by simulation: the estimate by which the first groupings are
 * compared (replica_groups.h) takes pipelines as filled, and sums of gradients as if they began at the end. */
#ifndef PARTITIONER_PLANNER_REPLICA_SEARCH_H
#define PARTITIONER_PLANNER_REPLICA_SEARCH_H

#include "partitioner/planner/replica_groups.h"

typedef struct ReplicaSearch ReplicaSearch;

/* Of `wanted` groups; 0: of any number. `costs` and `request` are those of replica_groups_choose, and outlive the
 * search. */
ReplicaSearch *replica_search_open(const Costs *costs, const PlanRequest *request, int wanted);
void replica_search_close(ReplicaSearch *search);
/* Simulates the groups, each as the pipeline with the least objective, and with micro-batches dealt so that they end
 * together; ns, INT64_MAX: they do not fit, or were offered before. */
int64_t replica_search_offer(ReplicaSearch *search, const ReplicaGroups *groups);
/* The same of groups of which the first has the fastest devices, with this share of the speed of all; the next fastest
 * are in the second, and so on. */
void replica_search_offer_unequal(ReplicaSearch *search, int count, double share, int microbatches);
/* Moves and swaps devices of the fastest groups offered, and leaves devices out, as long as that makes them faster and
 * a fixed amount of work is not done. */
void replica_search_improve(ReplicaSearch *search);
/* The fastest of all groups tried, with the simulated step, where pipelines of the best of them are searched for
 * shortly; in the arena. count 0: there is none. */
ReplicaGroups replica_search_best(ReplicaSearch *search, Arena *arena);

#endif
