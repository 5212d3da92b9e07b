#include "graph/analysis/cuts.h"

#include <stdlib.h>

/* The node that makes the value, if its readers may be in another layer; else NULL. Values that nothing reads any more
 * may name a node that is gone. */
static const Node *maker_of(const Graph *graph, ValueId value)
{
    const NodeId producer = graph_value(graph, value)->producer; /* node 0 has no operator */
    const Node *from = producer < graph->node_count ? graph_node(graph, producer) : graph_node(graph, 0);
    return from->op != OP_NONE && from->phase != PHASE_UPDATE && from->layer != LAYER_NONE ? from : NULL;
}

int *values_reach(const Graph *graph)
{
    int *reach = memory_allocate(graph->value_count * sizeof *reach);
    for (ValueId v = 0; v < graph->value_count; v++)
        reach[v] = maker_of(graph, v) ? maker_of(graph, v)->layer : LAYER_NONE;
    for (NodeId n = 1; n < graph->node_count; n++) {
        const Node *node = graph_node(graph, n);
        for (int i = 0; node->op != OP_NONE && node->layer != LAYER_NONE && i < node->input_count; i++) {
            const Node *from = maker_of(graph, node->inputs[i]);
            int *farthest = &reach[node->inputs[i]];
            if (!from || from->phase != node->phase) continue;
            if (from->phase == PHASE_FORWARD ? node->layer > *farthest : node->layer < *farthest)
                *farthest = node->layer;
        }
    }
    return reach;
}

int value_direction(const Graph *graph, ValueId value) { return graph_producer(graph, value)->phase == PHASE_BACKWARD; }

int codable_cut(const Graph *graph, const int *reach, ValueId value)
{
    const Value *tensor = graph_value(graph, value);
    if (reach[value] == LAYER_NONE || tensor->dtype != DTYPE_F32 || !tensor->shape.rank || tensor->parameter ||
        !shape_elements(&tensor->shape))
        return 0;
    int made = maker_of(graph, value)->layer, read = reach[value];
    return abs(read - made) != 1 ? 0 : made > read ? made : read;
}

CutBytes *cuts_measure(const Graph *graph)
{
    CutBytes *cuts = memory_allocate((size_t)(graph->layer_count + 1) * sizeof *cuts);
    FREED int *reach = values_reach(graph);
    for (ValueId v = 1; v < graph->value_count; v++) {
        if (reach[v] == LAYER_NONE || reach[v] == maker_of(graph, v)->layer) continue;
        const Value *value = graph_value(graph, v);
        int direction = value_direction(graph, v), made = maker_of(graph, v)->layer, read = reach[v];
        int64_t bytes = shape_elements(&value->shape) * (int64_t)dtype_size(value->dtype);
        bool codes = codable_cut(graph, reach, v);
        int64_t columns = codes ? value->shape.dim[value->shape.rank - 1] : 1, rows = bytes / (4 * columns);
        for (int cut = 1 + (made < read ? made : read); cut <= (made < read ? read : made); cut++) {
            for (int codec = 0; codec < CODEC_COUNT; codec++)
                cuts[cut].bytes[direction][codec] += codes ? rows * codec_row_bytes((Codec)codec, columns) : bytes;
            if (codes) cuts[cut].coded[direction] += bytes;
        }
    }
    return cuts;
}
