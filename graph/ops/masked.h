/* Masks of attention, which hide keys: of the shares that come out of the softmax, long stretches are 0. */
#ifndef GRAPH_OPS_MASKED_H
#define GRAPH_OPS_MASKED_H

#include "graph/graph.h"

/* Whether the node replaces scores by next to nothing where a condition does not hold. */
bool node_hides(const Graph *graph, const Node *node);
/* Whether the value is attention's shares of masked keys, or is 0 where those are: KernelOperand.often_zero. */
bool value_is_often_zero(const Graph *graph, ValueId value);

#endif
