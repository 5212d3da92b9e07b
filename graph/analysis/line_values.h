/* Which values of a packed graph grow with the lines of a micro-batch. A step's last micro-batch has fewer lines than the
 * others: nothing is computed of those it lacks, where this is known (codegen/stage/stage_lines.c). */
#ifndef GRAPH_ANALYSIS_LINE_VALUES_H
#define GRAPH_ANALYSIS_LINE_VALUES_H

#include "graph/graph.h"

/* Sets Value.lines, and lines_known, by comparing with `other`, the same model with another number of lines; neither if the
 * two differ in more than shapes. */
void line_values_mark(Graph *graph, const Graph *other);

#endif
