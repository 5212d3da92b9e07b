/* Which devices work together in a replica, and how many of a step's micro-batches each replica gets.
 *
 * A grouping is compared with others by an estimate: each group has the pipeline that the heuristic allocation finds
 * (small clusters: the optimum of the objective), micro-batches go where they are done first, and the step is the
 * slowest group's with the sums of gradients. With up to GROUPS_TRY_ALL devices every grouping is tried. With more, the
 * search starts from groups by site, region and speed for several numbers of replicas, moves and swaps devices between
 * groups, and merges and splits groups, as long as that helps. */
#ifndef PARTITIONER_PLANNER_REPLICA_GROUPS_H
#define PARTITIONER_PLANNER_REPLICA_GROUPS_H

#include "partitioner/planner/planner.h"

enum { GROUPS_TRY_ALL = 8 };

typedef struct ReplicaGroups {
    int count;          /* groups; 0: none was found that fits */
    int *group_of;      /* [device of the costs]; -1: in none */
    int *microbatches;  /* [group] */
    int64_t step_ns;    /* estimated */
    int tried;          /* groupings */
    PlanGrouping *best; /* in the arena: the best that was tried for each number of groups, ascending */
    int best_count;
    bool all; /* every grouping of all devices was tried, and every pipeline was the optimum */
} ReplicaGroups;

/* The best with `count` groups, in the arena; `count` 0: with any number of them. */
ReplicaGroups replica_groups_choose(const Costs *costs, const PlanRequest *request, int count, Arena *arena);

#endif
