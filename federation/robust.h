/* What a coordinator that sees every update takes instead of their weighted mean, so that one of them
 * cannot do harm. */
#ifndef FEDERATION_ROBUST_H
#define FEDERATION_ROBUST_H

#include "federation/aggregate/sum_round.h"
#include "federation/federation.h"

/* Of elements first ... first + count - 1 of the updates in the sum, each as its site sent it, whatever its weight.
 * `round` keeps its words (sum_round_keep). */
void robust_combine(float *result, const SumRound *round, RobustRule rule, size_t first, size_t count);

#endif
