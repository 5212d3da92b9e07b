/* How the model's work is divided among its layers. */
#ifndef GRAPH_ANALYSIS_LAYER_WORK_H
#define GRAPH_ANALYSIS_LAYER_WORK_H

#include "graph/graph.h"

/* Warns of a layer that does more than a third of the model's work: plans cannot divide it among devices. */
void layers_warn_of_large(const Graph *graph, Diagnostics *diagnostics);

#endif
