/* Dropout nodes: making them, and finding the places where BERT has them. */
#ifndef GRAPH_PASSES_INSERT_DROPOUT_H
#define GRAPH_PASSES_INSERT_DROPOUT_H

#include "graph/ops/add_node.h"

/* Appends a Dropout of `x`. Which elements it drops depends on the origin's name, so that it is the same wherever the
 * node stands; a name that a Dropout has already gets random numbers of its own. Elements belong to rows of the batch
 * in the order in which they stand: the batch, the first dimension of the first graph input, is the leading one.
 * Returns the output; 0 after reporting. */
ValueId dropout_add(Graph *graph, ValueId x, double ratio, NodeOrigin origin, Diagnostics *diagnostics);

/* Puts dropout where BERT has it (Devlin et al., NAACL 2019, and its released code): behind the embeddings'
 * normalisation, on attention probabilities, on what a block's two parts add to their input, and before a classifier.
 * Warns about kinds of places that were not found. Run after fuse_composites, before layers are assigned. A graph that
 * has Dropout already is left as it is. */
bool dropout_insert(Graph *graph, double ratio, Diagnostics *diagnostics);

#endif
