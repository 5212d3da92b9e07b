/* Layers: the forward graph cut into the atoms that a stage is made of.
 *
 * A cut is a place in the node order that one tensor crosses, besides a few side tensors: those that reach further than
 * any tensor inside a block, as what all blocks read does. Of these places, those before a matrix product (and after
 * the embeddings) are taken, so that an atom is the embeddings, the attention or the feed-forward part of an encoder
 * block, the pooler, or the head. What depends on inputs and constants alone (the attention mask) belongs to no layer
 * and is computed again in every stage that needs it; a side tensor that is cheaply made of small parameters (a bias of
 * relative positions) is made again by every layer that reads it, which then share those parameters. */
#ifndef GRAPH_PASSES_LAYERS_H
#define GRAPH_PASSES_LAYERS_H

#include "graph/graph.h"

/* Sets Node.layer of every forward node, graph->layer_names and layer_count. Run it when the forward graph (loss
 * included) is final and before differentiation, which passes layers on to backward nodes. Parameters that several
 * layers use get values of their own in each: see sharing.h. */
void layers_assign(Graph *graph, Diagnostics *diagnostics);

#endif
