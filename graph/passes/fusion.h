/* Recognises composite operators in the forward graph, before differentiation, so that each gets its own kernel and
 * gradient: LayerNormalization spelled out in primitive operators (opsets before 17), Gelu with erf. */
#ifndef GRAPH_PASSES_FUSION_H
#define GRAPH_PASSES_FUSION_H

#include "graph/graph.h"

void fuse_composites(Graph *graph, Diagnostics *diagnostics);

#endif
