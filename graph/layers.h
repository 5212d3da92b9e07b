/* Layers: the forward graph cut into the atoms that a stage is made of.
 *
 * A cut is a place in the node order that exactly one tensor crosses. Of these, those before a matrix product (and
 * after the embeddings) are taken, so that an atom is the embeddings, the attention or the feed-forward part of an
 * encoder block, the pooler, or the head. What depends on inputs and constants alone (the attention mask) belongs to no
 * layer and is computed again in every stage that needs it. */
#ifndef GRAPH_LAYERS_H
#define GRAPH_LAYERS_H

#include "graph/graph.h"

/* Sets Node.layer of every forward node, graph->layer_names and layer_count. Run it when the forward graph (loss
 * included) is final and before differentiation, which passes layers on to backward nodes. Layers may
 * share parameters: see sharing.h. */
void layers_assign(Graph *graph, Diagnostics *diagnostics);

/* The parameter that `value` is, or is a mere view of; 0 if it is something else. */
ValueId parameter_behind(const Graph *graph, ValueId value);

#endif
