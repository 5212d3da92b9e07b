/* Rows of tables to which looking them up passes no gradient, as padding_idx of torch.nn.Embedding has it: ONNX does
 * not say that a table had one. Other uses of the table, as a decoder for instance, pass their gradients to all
 * rows. */
#ifndef GRAPH_PASSES_GRADIENT_ROWS_H
#define GRAPH_PASSES_GRADIENT_ROWS_H

#include "graph/graph.h"

/* Marks every Gather from the parameter `table` along an axis of `rows` elements, before differentiation. Returns how
 * many there are, or -1 if one has as many such rows as it may. `row` is in 0 ... rows - 1; further ones may follow. */
int gradient_rows_leave_out(Graph *graph, ValueId table, int64_t rows, int64_t row);
/* Whether a Gather from the parameter is marked so; -1: of any row. */
bool gradient_rows_left_out(const Graph *graph, ValueId table, int64_t row);

#endif
