/* The text that graph_print writes, read back: printing what was read gives the same text. A line each, in this order:
 *
 *   layer NAME                                    layers by number; from the second of a name on, nodes write @NAME:3
 *   input %1 : i64[2,16]  # NAME                  what no node makes: parameter, constant, state and scalars likewise
 *   parameter %3 : f32[4] of %2 used as "NAME"    a further use of %2, as states are of parameters (Value in graph.h)
 *   constant %5 : i64[512] = [1, 2, 3*510]        all elements; 510 of them are 3. Without "# NAME": it has none
 *   forward:                                      or backward: or update: the phase of what follows
 *     %9, %10 = Op(%3, f32 1, _) {axis=1, epsilon=1e-05, how="text", perm=[1,0]} : f32[4] : f32[]  @LAYER  ^%7  # NAME
 *   output %9  # NAME
 *   labels %2 ignoring -100 weighted %4 shifted   Labels of graph.h; also: %2 ignoring -100 probabilities, %2 numbers
 *   loss %10 summed whole                         see Graph.loss_is_summed and whole_batches
 *   gradient %12 of %3
 *
 * Constants of one element without a name stand where they are read: `f32 1`, `i64[1] 3`. `_` is an absent input, ^%7
 * the node that is differentiated, named by its first output. An attribute is a float if it has a point, an exponent,
 * or is inf or nan. In names \xHH is the byte HH.
 *
 * Numbers of values are kept, those of nodes are not: the text has no dead ones. Parameters have no data. */
#ifndef TESTS_GRAPH_PARSE_H
#define TESTS_GRAPH_PARSE_H

#include "graph/graph.h"

/* Reads into an initialised graph, which is to be freed in any case; graph->file is for diagnostics. Reports the first
 * line that is not such a text, or that graph_verify or the numbers of graph/opcodes.h would not have (EXIT_BAD_INPUT);
 * shapes are graph_check_types' to judge (graph/ops/add_node.h). Memory is bounded whatever the text says. */
bool graph_parse(Graph *graph, const char *text, Diagnostics *diagnostics);

#endif
