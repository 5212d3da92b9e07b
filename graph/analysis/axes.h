/* Which axes of its inputs an axis of a node's result comes from. */
#ifndef GRAPH_ANALYSIS_AXES_H
#define GRAPH_ANALYSIS_AXES_H

#include "graph/graph.h"

/* The axis of `input` that broadcasting brings to `axis` of a result of rank `rank`; -1 if it does not move there. */
int axis_broadcast(const Shape *input, int rank, int axis);

/* If every index of `axis` of the node's result depends on the same index of its inputs only: writes their axes, or -1
 * for inputs that do not move along it, to axes[0 ... input_count - 1]. Of random numbers it says the same. */
bool axes_of_inputs(const Graph *graph, const Node *node, int axis, int *axes);

#endif
