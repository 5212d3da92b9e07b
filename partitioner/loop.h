/* Plans in which one device keeps the raw inputs and the labels: it owns the first stage and the last one, two stages
 * of one rank.
 *
 * Solved by branching on where the first stage ends. A node fixes a range for that cut and for the micro-batches that
 * the first stage has in flight, and asks the ordinary solver about a chain between two devices: the first takes at
 * least the layers that the range begins with, for nothing; the last starts with their time, and without the memory
 * they take. That is a relaxation, and exact where the range is one cut and one count. */
#ifndef PARTITIONER_LOOP_H
#define PARTITIONER_LOOP_H

#include "partitioner/loop_node.h"
#include "partitioner/optimal.h"
#include "partitioner/replan.h"

typedef struct LoopResult {
    OptimalResult optimal;
    bool known[PLAN_ALLOCATOR_COUNT]; /* which allocators found an allocation */
} LoopResult;

/* `problem` pins its first and last layer to `device`. Fills one allocation per allocator (made by allocation_create
 * for the problem); the first and the last stage of each are on `device`. `trail` (NULL: not wanted) gets what
 * loop_certify needs. */
LoopResult loop_solve(const Problem *problem, int device, double seconds, Allocation *allocations, LoopTrail *trail);

/* replan around a loop: the same start, the same answers on every machine. Tiny problems are solved to the optimum; in
 * others the first stage's end is moved as long as that helps, and the chain behind it planned again. */
Replanned loop_replan(const Problem *problem, int device, Allocation *allocation, int neighbourhoods, double deadline);

/* The memory that `device` needs at least for any plan to fit, to a millionth, as far as half a second each can tell.
 */
int64_t loop_least_memory(const Problem *problem, int device);

#endif
