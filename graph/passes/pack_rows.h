/* Packs rows into lines (runtime/program/packing.h): the graph that was imported for micro-batches of
 * PACKING_GRAPH_ROWS rows of `longest` tokens becomes one of `lines` lines of `length` tokens, in which every line
 * holds up to `slots` rows, one after the other.
 *
 * What is computed token by token stays as it is. Only where tokens meet does something change:
 *   - softmax and products over pairs of tokens see pairs of one row alone (tokens without a row: of those),
 *   - tables that depend on the position are read at the position in the row; what depends on the distance of two
 *     positions alone stays, since rows stand in one piece,
 *   - the first token of a line becomes the first tokens of its rows, a dimension of 1 one of `slots`,
 *   - a sum over the sequence becomes a sum for every row,
 *   - dropout numbers elements by row and position, so that what is dropped does not depend on the packing.
 * What else mixes tokens or rows is refused, by its node (EXIT_BAD_INPUT): then rows have to be padded.
 *
 * That padding has no influence on the result cannot be seen from the graph alone: sums over the sequence are taken to
 * be masked. driver/compile/packed_check.h compares packed and padded rows.
 *
 * Inputs of shape [rows, longest, ...] are taken for tokens, others for rows: they become [lines * slots, ...], and so
 * does what is computed of them. Sets graph->packing, what fills each input, and which dimension of each value counts
 * lines. Nodes are renumbered. */
#ifndef GRAPH_PASSES_PACK_ROWS_H
#define GRAPH_PASSES_PACK_ROWS_H

/* Rows of the graph that is to be packed, whatever the packing: a dimension of one could not be told from those that
 * broadcast. */
enum { PACKING_GRAPH_ROWS = 2 };

#endif
