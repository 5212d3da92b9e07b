/* Reverse-mode differentiation: appends, to the same graph, the nodes that compute the gradient of the loss with
 * respect to every parameter. Nothing in the forward part changes, though it may be
 * added to: a derivative that shares work with its function is computed next to it.
 *
 * Gradients are built from the loss backwards, one forward node at a time; each backward node remembers the node it
 * differentiates and inherits its layer. The contributions to a value are added in that order (last use first), so that
 * the partial sum that crosses a stage boundary is itself one value. As soon as the last contribution to a parameter is
 * known it is added into the parameter's accumulated gradient, which lives across the micro-batches of a step. */
#ifndef GRAPH_OPS_AUTODIFF_H
#define GRAPH_OPS_AUTODIFF_H

#include "graph/graph.h"

/* Needs graph->loss (see loss.h). Sets graph->gradients. Reports every operator on a path from a parameter to the loss
 * that has no gradient rule. */
bool differentiate(Graph *graph, Diagnostics *diagnostics);

typedef struct OptimizerSpec {
    SkyOptimizer numbers;
    bool rate_given; /* the learning rate is no default */
} OptimizerSpec;

/* Parses NAME[:key=value,...], for instance "adamw:lr=1e-3,weight_decay=0.01"; EXIT_USAGE if it is malformed. Defaults
 * are PyTorch's. */
bool optimizer_parse(OptimizerSpec *spec, const char *text, Diagnostics *diagnostics);

#endif
