/* What a group of devices makes of a number of micro-batches: found quickly, and remembered. Groupings are compared by
 * it. */
#ifndef PARTITIONER_PLANNER_REPLICA_ESTIMATE_H
#define PARTITIONER_PLANNER_REPLICA_ESTIMATE_H

#include "partitioner/planner/planner.h"

/* Of a pipeline of the group's devices; times are the objective's. */
typedef struct GroupEstimate {
    int *count; /* [kind]: devices of the group */
    int microbatches, replicas;
    bool fits;
    int64_t fill_ns, period_ns; /* n micro-batches take about fill + n periods; exactly where n is the estimate's */
    int stage_count;
    int *kind, *end;   /* [stage] */
    int64_t *slack_ns; /* [stage]: how long before the step's end it has ended its last backward, at least */
} GroupEstimate;

/* Devices that agree in everything are of one kind, numbered by site, region and speed. */
typedef struct ReplicaEstimator {
    Arena arena;
    Costs costs; /* the devices that may be used */
    const PlanRequest *request;
    int *kind_of;                 /* [device of `costs`] */
    int *kind_size, *kind_region; /* [kind] */
    double *kind_link_s;          /* [kind]: a byte over the fastest link from there; 0: links are free */
    double *kind_speed;           /* [kind]: micro-batches a ns, if it had all layers and nobody to wait for */
    int kind_count;
    bool exact; /* pipelines are the optimum of the objective, so that the best grouping can be found */
    struct ReplicaGradients {
        LayerCost *layers;
        int64_t *bytes; /* [cut]: that are summed, of the layers before it */
    } * gradients;      /* [replicas], made when asked for */
    int microbatches;   /* of a step */
    Watch *watch;
    GroupEstimate **known;
    int known_count, known_capacity;
} ReplicaEstimator;

/* Without the request's left-out devices. */
void replica_estimator_open(ReplicaEstimator *estimator, const Costs *costs, const PlanRequest *request, Watch *watch);
void replica_estimator_close(ReplicaEstimator *estimator);
/* Of a group with `count` [kind] devices and so many micro-batches, of about so many groups. */
const GroupEstimate *replica_estimate(ReplicaEstimator *estimator, const int *count, int microbatches, int replicas);
/* How much later than `groups` on their own a step ends for the sums of gradients, which take what replica_sums_ns
 * says from when a stage has ended its last backward. */
int64_t replica_estimate_sums(ReplicaEstimator *estimator, const GroupEstimate *const *groups, int group_count);

#endif
