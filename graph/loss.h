/* The loss: what the user names is appended to the forward graph. */
#ifndef GRAPH_LOSS_H
#define GRAPH_LOSS_H

#include "graph/graph.h"

/* `spec` is several of these, joined by '+'; NULL or "" chooses (see docs): output:NAME when the graph has a scalar
 * float output named loss, else cross-entropy.
 *
 *   cross-entropy[:OUTPUT[:LABELS]]  softmax cross-entropy of an output [..., classes] (default: the one named logits,
 * or the only float output) against an integer input [...] that is added under the name LABELS (default: labels) unless
 * the graph has it; normalised by the valid labels of the batch output:NAME                      a scalar that the
 * model computes itself
 *
 * Sets graph->loss and what goes with it. Errors: no such output, not a scalar, not float: EXIT_BAD_INPUT with the
 * outputs that exist. */
bool loss_attach(Graph *graph, const char *spec, Diagnostics *diagnostics);

#endif
