/* Allocators that prove nothing: the baselines every plan is compared with. All are deterministic and quick. */
#ifndef PARTITIONER_SOLVE_ALLOCATE_H
#define PARTITIONER_SOLVE_ALLOCATE_H

#include "partitioner/allocation.h"

/* Equal layer counts in the given device order, the first devices get the remainder; memory is ignored. Devices beyond
 * the number of layers get none. Always succeeds. */
void allocate_even(const Problem *problem, Allocation *allocation);

/* Sky Computing's released algorithm (arXiv 2202.11836), devices in the given order: start even; repair memory by
 * handing layers to and taking them from the next device; then balance slowdown x load by taking from the next device.
 * Returns false where the memory repair gets stuck; *allocation then holds where. */
bool allocate_sky(const Problem *problem, Allocation *allocation);

/* Sky's two stages with what they lack: layers move both ways, devices change places, stay unused or come back, and
 * links count. Local search from several device orders and from Sky's own result, so never worse than it where that
 * fits. Returns whether the result fits. */
bool allocate_heuristic(const Problem *problem, Allocation *allocation);

/* The same search from one given allocation, which need not fit, for at most `work` evaluations of a stage. */
bool allocate_improve(const Problem *problem, Allocation *allocation, int64_t work);

#endif
