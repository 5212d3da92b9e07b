/* What values depend on along their axes. */
#ifndef GRAPH_ANALYSIS_AXES_H
#define GRAPH_ANALYSIS_AXES_H

#include "graph/graph.h"

/* Whether the value is the same at all indices of the axis. */
bool value_is_uniform(const Graph *graph, ValueId value, int axis);
/* Whether it depends, of its indices along the two axes, on their difference alone. */
bool value_is_toeplitz(const Graph *graph, ValueId value, int axis_a, int axis_b);

#endif
