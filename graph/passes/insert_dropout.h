/* Dropout where BERT has it. */
#ifndef GRAPH_PASSES_INSERT_DROPOUT_H
#define GRAPH_PASSES_INSERT_DROPOUT_H

#include "graph/graph.h"

/* Puts dropout where BERT has it (Devlin et al., NAACL 2019, and its released code): after the embeddings'
 * normalisation, on attention probabilities, on what a block's two parts add to their input, and before a classifier.
 * Warns about kinds of places that were not found. Run after fuse_composites, before layers are assigned. A graph that
 * has Dropout already is left as it is. */
bool dropout_insert(Graph *graph, double ratio, Diagnostics *diagnostics);

#endif
