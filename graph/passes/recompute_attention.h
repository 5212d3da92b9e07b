/* Attention's probabilities in backward: kept from forward, or computed again. */
#ifndef GRAPH_PASSES_RECOMPUTE_ATTENTION_H
#define GRAPH_PASSES_RECOMPUTE_ATTENTION_H

#include "graph/graph.h"

/* Has backward compute again what it reads of a softmax over a matrix product, dropout included, from the factors of
 * the product, where these take less than half the room: in attention, where the sequence is at least four times as
 * long as a head is wide. Otherwise the probabilities are kept, which is faster, and only what dropout leaves of them
 * is drawn again. The bits are the same. Run after differentiate. */
bool attention_recompute(Graph *graph, Diagnostics *diagnostics);

#endif
