/* What it takes to sum the gradients of replicas before an update.
 *
 * A parameter lives on one rank of every replica (on several, where several stages share it). Each of these holders
 * sums an equal part of it, of which the others send it theirs, and sends the sum back to them: reduce-scatter and
 * all-gather (Thakur, Rabenseifner and Gropp 2005). A rank sends one message after another, to each holder over its own
 * link. */
#ifndef PARTITIONER_REPLICA_SUMS_H
#define PARTITIONER_REPLICA_SUMS_H

#include "partitioner/plan.h"

/* From when all ranks begin to when the last knows its sums; ns. 0 where the costs do not know how large gradients are
 * (LayerCost.gradient_bytes), and for one replica. */
int64_t replica_sums_ns(const Plan *plan, const Costs *costs);

#endif
