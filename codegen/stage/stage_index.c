#include "codegen/stage/stage_index.h"

#include <stdlib.h>

#include "graph/analysis/blocks.h"
#include "graph/analysis/cuts.h"

static void sort_nodes(StageIndex *index)
{
    const Graph *graph = index->graph;
    size_t layers = (size_t)graph->layer_count;
    index->nodes = arena_new_array(&index->arena, NodeId, graph->node_count);
    index->layerless = arena_new_array(&index->arena, NodeId, graph->node_count);
    index->first_node = arena_new_array(&index->arena, size_t, layers + 1);
    size_t *next = arena_new_array(&index->arena, size_t, layers + 1);
    for (NodeId n = 1; n < graph->node_count; n++) {
        const Node *node = graph_node(graph, n);
        if (node->op != OP_NONE && node->layer != LAYER_NONE) index->first_node[node->layer + 1]++;
    }
    for (size_t layer = 0; layer < layers; layer++) {
        index->first_node[layer + 1] += index->first_node[layer];
        next[layer] = index->first_node[layer];
    }
    for (NodeId n = 1; n < graph->node_count; n++) {
        const Node *node = graph_node(graph, n);
        if (node->op == OP_NONE) continue;
        if (node->layer == LAYER_NONE)
            index->layerless[index->layerless_count++] = n;
        else
            index->nodes[next[node->layer]++] = n;
    }
}

static void find_crossings(StageIndex *index)
{
    const Graph *graph = index->graph;
    index->reach = values_reach(graph);
    for (ValueId v = 1; v < graph->value_count; v++) {
        if (index->reach[v] == LAYER_NONE) continue;
        const Node *from = graph_node(graph, graph_value(graph, v)->producer);
        Crossings *crossings = value_direction(graph, v) ? &index->backward : &index->forward;
        if (index->reach[v] != from->layer) array_push(crossings->values, crossings->count, crossings->capacity, v);
    }
}

/* 1: a bias; 2: gain or bias of a normalisation; 0: everything else. */
static void find_exempt(StageIndex *index)
{
    const Graph *graph = index->graph;
    for (ValueId v = 1; v < graph->value_count; v++) index->exempt[v] = graph_value(graph, v)->shape.rank == 1;
    for (NodeId n = 1; n < graph->node_count; n++) {
        const Node *node = graph_node(graph, n);
        for (int i = 1; operator_has(node->op, HAS_GAIN) && i < node->input_count; i++)
            index->exempt[shared_parameter(graph, node->inputs[i])] = 2;
    }
}

static void number_parameters(StageIndex *index)
{
    const Graph *graph = index->graph;
    ParameterNumber *numbers = index->numbers;
    uint32_t count = 0;
    for (ValueId v = 1; v < graph->value_count; v++) {
        if (graph_value(graph, v)->role != ROLE_PARAMETER) continue;
        ValueId parameter = shared_parameter(graph, v);
        if (parameter == v) numbers[v].index = count++;
        numbers[v].use = numbers[parameter].uses++;
    }
}

/* Directly, or reshaped or converted. */
static int64_t index_limit(const Graph *graph, ValueId input)
{
    int64_t limit = 0;
    for (NodeId n = 1; n < graph->node_count; n++) {
        const Node *node = graph_node(graph, n);
        if (node->op != OP_Gather) continue;
        ValueId source = node->inputs[1];
        while (graph_value(graph, source)->producer) {
            const Node *producer = graph_node(graph, graph_value(graph, source)->producer);
            if (producer->input_count != 1) break;
            source = producer->inputs[0];
        }
        const Shape *shape = &graph_value(graph, node->inputs[0])->shape;
        int64_t axis = node_integer(node, "axis", 0);
        int64_t extent = shape->dim[axis < 0 ? axis + shape->rank : axis];
        if (source == input && (!limit || extent < limit)) limit = extent;
    }
    return limit;
}

StageIndex *stage_index_create(Graph *graph, ProductPrecision precision)
{
    StageIndex *index = memory_allocate(sizeof *index);
    *index = (StageIndex){.graph = graph, .precision = precision};
    size_t values = graph->value_count;
    index->exempt = arena_new_array(&index->arena, unsigned char, values);
    index->numbers = arena_new_array(&index->arena, ParameterNumber, values);
    index->index_limit = arena_new_array(&index->arena, int64_t, graph->input_count);
    sort_nodes(index);
    find_crossings(index);
    find_exempt(index);
    index->blocks = arena_new_array(&index->arena, uint32_t, values);
    blocks_number(graph, index->blocks);
    number_parameters(index);
    for (size_t i = 0; i < graph->input_count; i++) index->index_limit[i] = index_limit(graph, graph->inputs[i]);
    return index;
}

void stage_index_free(StageIndex *index)
{
    free(index->forward.values);
    free(index->backward.values);
    free(index->reach);
    arena_free(&index->arena);
    free(index);
}
