/* Which block of a model a parameter belongs to, by the names that modules give: rates may differ from block to
 * block. */
#ifndef GRAPH_ANALYSIS_BLOCKS_H
#define GRAPH_ANALYSIS_BLOCKS_H

#include "graph/graph.h"

/* Fills blocks[value] of every parameter that the forward graph reads, once layers are assigned: 0 below the first
 * block, 1 in the first ... L in the last, L + 1 after it. Blocks are the numbers after the prefix that most names
 * have, as "encoder.layer."; a name without one goes by its layer. Returns L; 0 if no name has a number. */
uint32_t blocks_number(const Graph *graph, uint32_t *blocks);

#endif
