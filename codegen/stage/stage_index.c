#include "codegen/stage/stage_index.h"

#include <stdlib.h>

#include "graph/analysis/blocks.h"
#include "graph/analysis/cuts.h"

static void sort_nodes(StageIndex *index)
{
    const Graph *graph = index->graph;
    size_t layers = (size_t)graph->layer_count;
    index->nodes = arena_new_array(&index->arena, NodeId, graph->node_count);
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
        if (node->op != OP_NONE && node->layer != LAYER_NONE) index->nodes[next[node->layer]++] = n;
    }
}

/* Counts the value at each cut that it crosses, or writes it to the cut's place in `values`. */
static void cross(const Graph *graph, ValueId value, int read, size_t *at, ValueId *values)
{
    int made = graph_node(graph, graph_value(graph, value)->producer)->layer;
    int last = made < read ? read : made;
    for (int cut = (made < read ? made : read) + 1; cut <= last; cut++) {
        if (values) values[at[cut]] = value;
        at[cut]++;
    }
}

static void find_crossings(StageIndex *index, const int *reach, int direction, Crossings *crossings)
{
    const Graph *graph = index->graph;
    size_t cuts = (size_t)graph->layer_count + 1, total = 0;
    FREED size_t *next = memory_allocate((cuts + 1) * sizeof *next);
    crossings->first = arena_new_array(&index->arena, size_t, cuts + 1);
    for (int writing = 0; writing < 2; writing++) {
        for (ValueId v = 1; v < graph->value_count; v++)
            if (reach[v] != LAYER_NONE && value_direction(graph, v) == direction)
                cross(graph, v, reach[v], next, crossings->values);
        for (size_t cut = 0; cut <= cuts && !writing; cut++) {
            crossings->first[cut] = total;
            total += next[cut];
            next[cut] = crossings->first[cut];
        }
        if (!writing) crossings->values = arena_new_array(&index->arena, ValueId, total + 1);
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

/* Tables are indexed directly, or by what is reshaped or converted. */
static void find_index_limits(StageIndex *index)
{
    const Graph *graph = index->graph;
    FREED ValueId *source = memory_allocate(graph->value_count * sizeof *source);
    FREED int64_t *limit = memory_allocate(graph->value_count * sizeof *limit);
    for (ValueId v = 1; v < graph->value_count; v++) source[v] = v;
    for (NodeId n = 1; n < graph->node_count; n++) {
        const Node *node = graph_node(graph, n);
        for (int i = 0; i < node->output_count && node->input_count == 1; i++)
            source[node->outputs[i]] = source[node->inputs[0]];
        if (node->op != OP_Gather) continue;
        const Shape *shape = &graph_value(graph, node->inputs[0])->shape;
        int64_t axis = node_integer(node, "axis", 0), extent = shape->dim[axis < 0 ? axis + shape->rank : axis];
        int64_t *least = &limit[source[node->inputs[1]]];
        if (!*least || extent < *least) *least = extent;
    }
    for (size_t i = 0; i < graph->input_count; i++) index->index_limit[i] = limit[graph->inputs[i]];
}

StageIndex *stage_index_create(Graph *graph, ProductPrecision precision)
{
    StageIndex *index = memory_allocate(sizeof *index);
    size_t values = graph->value_count;
    *index = (StageIndex){.graph = graph, .precision = precision, .arrays = value_arrays_create(values)};
    index->exempt = arena_new_array(&index->arena, unsigned char, values);
    index->numbers = arena_new_array(&index->arena, ParameterNumber, values);
    index->index_limit = arena_new_array(&index->arena, int64_t, graph->input_count);
    sort_nodes(index);
    FREED int *reach = values_reach(graph);
    find_crossings(index, reach, 0, &index->forward);
    find_crossings(index, reach, 1, &index->backward);
    find_exempt(index);
    index->blocks = arena_new_array(&index->arena, uint32_t, values);
    blocks_number(graph, index->blocks);
    number_parameters(index);
    find_index_limits(index);
    return index;
}

void stage_index_free(StageIndex *index)
{
    value_arrays_free(index->arrays);
    arena_free(&index->arena);
    free(index);
}
