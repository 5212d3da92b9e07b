/* Constant folding: a node whose inputs are all constants is interpreted once, here, and disappears. */
#ifndef GRAPH_FOLD_H
#define GRAPH_FOLD_H

#include "graph/graph.h"

/* Results larger than this are not folded but computed at run time (a hostile Expand must not fill the memory). */
enum { FOLD_LIMIT_BYTES = 64 << 20 };

/* Turns the outputs of `node` into constants if it has inputs and all of them are constants, and marks it dead. Returns
 * false after reporting an index out of range. */
bool fold_node(Graph *graph, NodeId node, Diagnostics *diagnostics);

#endif
