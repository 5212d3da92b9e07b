/* The order in which ranks run the micro-batches of a step, made by simulating ranks that take up work as it becomes
 * possible, and the search for a good one.
 *
 * Every stage takes its micro-batches in order 0 ... N-1, forward and backward. A rule says how many may be in flight
 * in a stage (their stash is kept) and what the stage does next:
 *   strict   forwards until the depth is reached, then a backward and a forward in turn. Depth N is GPipe (arXiv
 *            1811.06965), depth = stages to the end 1F1B (PipeDream-flush, arXiv 2006.09503)
 *   eager    whatever can start first
 * Where backward is split (Zero Bubble Pipeline Parallelism, Qi et al. 2023, arXiv 2401.10241), the half that only
 * the stage itself needs waits until there is nothing else to do, or until the stash it holds is needed. */
#ifndef PARTITIONER_SCHEDULE_ORDER_H
#define PARTITIONER_SCHEDULE_ORDER_H

#include "partitioner/plan.h"

typedef struct OrderRule {
    const int *depth;   /* [stage]: micro-batches in flight at most, at least 1 */
    bool strict;        /* then depths must not grow from a stage to the next, or the order deadlocks */
    bool forward_first; /* eager: of a forward and a backward that can both start now */
} OrderRule;

typedef struct OrderStep {
    SkyInstructionOp op; /* SKY_FORWARD, SKY_BACKWARD or SKY_WEIGHT_GRADIENT */
    int stage, microbatch;
} OrderStep;

typedef struct Order {
    OrderStep **steps; /* [rank] */
    int *count;        /* [rank] */
    int *in_flight;    /* [stage]: the most there are at once */
    int64_t step_ns;   /* what plan_simulate will say; INT64_MAX: the rule deadlocks, or was given up */
    OrderRule rule;    /* that it follows */
} Order;

/* `plan` needs stages, ranks, links and the number of micro-batches. A stage whose weight_gradient_ns is not 0 splits
 * its backward. The order is allocated in the arena. */
void order_create(Order *order, const Plan *plan, Arena *arena);
/* Fills an order made by order_create for the same plan. One that takes more than most_ns is given up as soon as that
 * is certain: step_ns is INT64_MAX then. */
void order_follow(Order *order, const Plan *plan, const OrderRule *rule, int64_t most_ns);

/* Fills an order made by order_create with the quickest it finds that has at most most[stage] micro-batches in flight:
 * never slower than the strict one with depths min(least[stage], most[stage]). Deterministic; ends when no order can be
 * quicker, or after a bounded amount of work. What takes more than most_ns may be given up: step_ns is INT64_MAX then.
 */
void order_search(Order *order, const Plan *plan, const int *least, const int *most, int64_t most_ns, Arena *arena);

/* A time no order can beat that has at most most[stage] micro-batches in flight (NULL: any number): every rank's work
 * between the first forward's arrival and the last backward's way home, and the way there and back of the last
 * micro-batch, after those that links have to carry and slots to hold before it. */
int64_t order_bound(const Plan *plan, const int *most);

#endif
