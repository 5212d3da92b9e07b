/* Constant folding: a node whose inputs are all constants is interpreted once, here, and disappears. */
#ifndef GRAPH_PASSES_FOLD_H
#define GRAPH_PASSES_FOLD_H

#include "graph/graph.h"

/* What folding may make and compute in one graph: a small file that asks for more is hostile. Beyond that, nodes are
 * not folded but computed at run time. */
#define FOLD_LIMIT_BYTES ((size_t)128 << 20)
#define FOLD_LIMIT_ITERATIONS 0x1p26 /* of all kernels' axes */

/* What was made and computed so far in a graph; all 0 before. */
typedef struct Folding {
    size_t bytes;
    double iterations;
} Folding;

/* Whether constants of so many further bytes may be made; if so, they count from now on. */
bool fold_claim_bytes(Folding *folding, size_t bytes);

/* Turns the outputs of `node` into constants if it has inputs and all of them are constants, or if the outputs have no
 * elements, and marks it dead. Returns false if an index is out of range, which is the caller's to report. */
bool fold_node(Graph *graph, NodeId node, Folding *folding);

/* All nodes; false after reporting those whose index is out of range. */
bool fold_constants(Graph *graph, Folding *folding, Diagnostics *diagnostics);

#endif
