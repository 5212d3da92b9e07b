/* Plans with several pipelines that share the micro-batches of a step. */
#ifndef PARTITIONER_REPLICAS_H
#define PARTITIONER_REPLICAS_H

#include "partitioner/plan.h"

/* The pipeline of a replica as a plan of its own: the plan itself where it has one. */
const Plan *plan_pipeline(const Plan *plan, int replica);

/* Makes `plan` the one replica of itself, with so many rows (-1: not known). */
void plan_set_alone(Plan *plan, int64_t rows);

/* Why several pipelines cannot be had; NULL: they can. */
const char *replicas_refused(const Costs *costs, unsigned codecs);
/* Of one pipeline and several, the first unless the step of the others is so much shorter. */
enum { REPLICAS_GAIN_PERCENT = 3 };
/* Why one pipeline is planned where nobody says how many; NULL: as many as are fastest. */
const char *replicas_excluded(const Costs *costs, unsigned codecs, PlanAllocator allocate, PlanObjective objective,
                              bool pinned);

/* The costs that the pipeline of a group is planned by: those asked, with what summing gradients with the other groups
 * takes its devices at least, and with the number of micro-batches that it was dealt, also where rows are packed.
 * `group_of` [device]: its group, or -1. `microbatches` [group]. `codecs`: what links may use. In the arena. */
Costs replica_costs(const Costs *asked, const int *group_of, const int *microbatches, int count, int group,
                    unsigned codecs, Arena *arena);
/* The costs' layers with their `summed_bytes`, of so many replicas (replica_sums_bytes). In the arena. */
LayerCost *replica_layers(const Costs *costs, int replicas, int microbatches, int most, unsigned codecs, Arena *arena);

/* Joins `count` pipelines, at least two and each planned on its own for a part of the micro-batches of a step, into one
 * plan that takes them over: stages, ranks, links, crossings and schedule of all, the norm over all ranks, the time of
 * the gradient sums, and the step: the slowest replica's, and the sums. It has no bound yet. `rows` of a whole step are
 * split in proportion to the micro-batches (-1: not known). */
void plan_join(Plan *plan, Plan *pipelines, int count, int64_t rows, const Costs *costs);

/* The numbers of a joined plan: norm, sums, period, step, simulated step, idle share, bound. The step ends when the
 * slowest replica has and gradients are summed; the period is what a micro-batch of the whole step adds to it. */
void plan_join_times(Plan *plan, const Costs *costs);

/* The replica that each device of the costs was given to, idle or not; -1: none. */
void replica_groups_of(const Plan *plan, const Costs *costs, int *group_of);
/* No plan with these groups has a shorter step of so many micro-batches, however these are dealt; ns. */
int64_t replica_groups_bound_ns(const Costs *costs, const int *group_of, int count, int microbatches);

/* Which of the `total` micro-batches of a step are those of replica `replica`, ascending: [microbatches[replica]]. They
 * are dealt so that the first n of a step, for any n, are divided nearly in proportion: partial batches, and packed
 * rows that need fewer micro-batches than planned, leave no replica idle. `microbatches`: of each of `count`
 * replicas. */
void plan_deal(const int *microbatches, int count, int replica, uint32_t *dealt);

/* Moves micro-batches [replica] of a joined plan from the replica that ends last in simulation to the one that ends
 * first, so that they should end together. False: none. */
bool plan_deal_again(const Plan *plan, int *microbatches);

/* Fills the pipeline of a replica, whose ranges are known, from the stages, ranks, links and crossings of the plan. Its
 * other members are not touched. False: a stage has more micro-batches in flight than there are, or an instruction is
 * about one that the replica does not have. */
bool plan_slice(const Plan *plan, const PlanReplica *replica, Plan *pipeline);

#endif
