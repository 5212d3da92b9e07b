/* What it takes to sum the gradients of replicas before an update.
 *
 * A parameter lives on one rank of every replica (on several, where several stages share it). Each of these holders
 * sums an equal part of it, of which the others send it theirs, and sends the sum back to them: reduce-scatter and
 * all-gather (Thakur, Rabenseifner and Gropp 2005). A rank sends one message after another, to each holder over its own
 * link.
 *
 * Of an embedding table only the rows that occur are summed: each holder sends those that its own micro-batches read,
 * and the sums of those that any read. How many these are is expected by Zipf's law: the i-th most frequent of n rows
 * is 1 / (i (1 + 1/2 + ... + 1/n)) of all that are read.
 *
 * Layers are summed in one order on all ranks, each as soon as all its holders have ended it in their last backward
 * (runtime/train/gradient_sums.h): the last layer first or, where that makes the simulated step shorter, as they become
 * ready in simulation (Plan.sum_order), since split backwards end some later layers after earlier ones. So sums overlap
 * with the last backward, and with the backwards of earlier stages: partitioner/schedule/replica_steps.h counts that in
 * the simulated step. The objective, and the estimates that groupings are compared by, count sums as if they began
 * after the last backward. */
#ifndef PARTITIONER_REPLICA_SUMS_H
#define PARTITIONER_REPLICA_SUMS_H

#include "base/json.h"
#include "partitioner/plan.h"

/* Bytes of a layer's gradients as sums count them: a replica sends 2 (replicas - 1) / replicas of them. Of
 * `microbatches` of a step one replica has `most`. With a codec all rows are summed. */
int64_t replica_sums_bytes(const LayerCost *layer, int replicas, int microbatches, int most, unsigned codecs);

/* Of one layer's gradients, on a rank that has the layer: how long its links are occupied, for terms and for sums; ns.
 * *latency_ns becomes that of the slowest link if it is longer. `regions`: per rank. 0 where the costs do not know how
 * large gradients are (LayerCost.gradient_bytes). */
int64_t replica_sums_layer_ns(const Plan *plan, const Costs *costs, const int *regions, int rank, int layer,
                              int64_t *latency_ns);
/* Per rank of the plan: the region of its device. In the arena. */
const int *replica_sums_regions(const Plan *plan, const Costs *costs, Arena *arena);
bool replica_sums_has(const Plan *plan, int rank, int layer);

/* Sets the sums of ranks, and of the plan: from when all ranks begin to when the last knows its sums. 0 for one
 * replica. */
void replica_sums_set(Plan *plan, const Costs *costs);

/* The member "sum_order" of plan.json, which is absent where the last layer is first: adds it, and reads it if it is
 * there and lists each layer once. */
void replica_sums_print_order(const Plan *plan, JsonWriter *json);
bool replica_sums_read_order(Plan *plan, JsonReader json, const json_t *root);

#endif
