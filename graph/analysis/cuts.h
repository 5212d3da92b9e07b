/* What crosses the cuts between layers. Cut c is before layer c. */
#ifndef GRAPH_ANALYSIS_CUTS_H
#define GRAPH_ANALYSIS_CUTS_H

#include "base/codec.h"
#include "graph/graph.h"

/* Per value: the layer farthest from its maker's that reads it in its own phase; the maker's if no other does;
 * LAYER_NONE for values that no layer makes, and for updates. To be freed. */
int *values_reach(const Graph *graph);

/* 0: made in forward; 1: in backward. */
int value_direction(const Graph *graph, ValueId value);

/* The one cut that the value crosses, if a codec may be put on it there; else 0. */
int codable_cut(const Graph *graph, const int *reach, ValueId value);

/* The bytes that cross a cut, forward and backward, with every codec. */
typedef struct CutBytes {
    int64_t bytes[2][CODEC_COUNT];
    int64_t coded[2]; /* float32 bytes of them that codecs apply to */
} CutBytes;

/* Of all cuts, [layer_count]; 0 is no cut. To be freed. */
CutBytes *cuts_measure(const Graph *graph);

#endif
