/* Computes only what is read. A classifier reads one token of the last encoder block, so everything in that block but
 * keys and values need be computed for that token only: a selection (Gather of one known index, Slice along one axis)
 * is moved up through the operators that treat the positions of its axis independently, until it meets a value that
 * somebody reads as a whole. The results are the same. */
#ifndef GRAPH_PASSES_PRUNE_H
#define GRAPH_PASSES_PRUNE_H

#include "graph/graph.h"

/* For the forward graph, before layers are assigned. Nodes are renumbered; dead ones disappear. */
void prune_unread(Graph *graph, Diagnostics *diagnostics);

#endif
