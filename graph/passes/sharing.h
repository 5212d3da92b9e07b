/* Parameters that several layers use, as a masked language model's decoder and embeddings do, or all blocks of an
 * ALBERT.
 *
 * Every such layer but the first gets a value of its own for the parameter (Value.parameter says of which), so that any
 * run of layers can become a stage that holds what it reads, and the gradient accumulates per layer. The runtime sums
 * these, in the order of the layers, before the update: the same sum however the layers are divided among stages. */
#ifndef GRAPH_PASSES_SHARING_H
#define GRAPH_PASSES_SHARING_H

#include "graph/graph.h"

/* The parameter that `value` is, or is a mere view of; 0 if it is something else. */
ValueId parameter_behind(const Graph *graph, ValueId value);

/* Warns where an output has a value for every row of an embedding table, but comes from other weights of that size: a
 * decoder that was tied to the embeddings before the export, perhaps. Of a forward graph. */
void warn_of_untied_decoders(const Graph *graph, Diagnostics *diagnostics);

/* After layers were assigned, before differentiation. `carried` [value]: views and cheap functions of parameters, which
 * are computed anew in each layer that reads them. */
void parameters_share(Graph *graph, const bool *carried, Diagnostics *diagnostics);

#endif
