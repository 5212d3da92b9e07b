/* Parameters that several layers use, as a masked language model's decoder and embeddings do, or all blocks of an
 * ALBERT.
 *
 * Every such layer but the first gets a value of its own for the parameter (Value.parameter says of which), so that any
 * run of layers can become a stage that holds what it reads, and the gradient accumulates per layer. The runtime sums
 * these, in the order of the layers, before the update: the same sum however the layers are divided among stages. */
#ifndef GRAPH_PASSES_SHARING_H
#define GRAPH_PASSES_SHARING_H

#include "graph/graph.h"

/* After layers were assigned, before differentiation. `carried` [value]: views and cheap functions of parameters, which
 * are computed anew in each layer that reads them. */
void parameters_share(Graph *graph, const bool *carried, Diagnostics *diagnostics);

#endif
