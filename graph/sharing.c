#include "graph/sharing.h"

#include <stdlib.h>

#include "graph/layers.h"
#include "graph/operator.h"

/* A layer's own value for a parameter. */
typedef struct Use {
    ValueId parameter, value;
    int layer;
} Use;

typedef struct Sharer {
    Graph *graph;
    Diagnostics *diagnostics;
    int *home; /* per value of a parameter: 1 + the first layer that uses it */
    Use *uses; /* by later layers */
    size_t count, capacity;
} Sharer;

/* Whether the node computes with parameters, rather than being a view of one. */
static bool computes(const Graph *graph, const Node *node)
{
    if (node->op == OP_NONE || node->phase != PHASE_FORWARD || node->layer == LAYER_NONE) return false;
    return !operator_is_movement(node->op) || !parameter_behind(graph, node->inputs[0]);
}

/* Notes where every parameter is used first. Returns whether some are used by several layers. */
static bool find_homes(Sharer *sharer)
{
    const Graph *graph = sharer->graph;
    bool any = false;
    for (NodeId n = 1; n < graph->node_count; n++) {
        const Node *node = graph_node(graph, n);
        if (!computes(graph, node)) continue;
        for (int i = 0; i < node->input_count; i++) {
            int *home = &sharer->home[parameter_behind(graph, node->inputs[i])];
            if (!*home) *home = 1 + node->layer;
            any |= *home != 1 + node->layer;
        }
        sharer->home[0] = 0; /* of what is no parameter */
    }
    return any;
}

static ValueId value_in(Sharer *sharer, ValueId parameter, int layer)
{
    Graph *graph = sharer->graph;
    if (sharer->home[parameter] == 1 + layer) return parameter;
    int number = 2;
    for (size_t i = 0; i < sharer->count; i++) {
        const Use *use = &sharer->uses[i];
        if (use->parameter != parameter) continue;
        if (use->layer == layer) return use->value;
        number++;
    }
    const Value shared = *graph_value(graph, parameter);
    const char *name = arena_format(&graph->arena, "%s (use %d)", shared.name, number);
    ValueId value = graph_add_parameter(graph, name, shared.dtype, &shared.shape, shared.data);
    graph_value(graph, value)->parameter = parameter;
    Use use = {parameter, value, layer};
    array_push(sharer->uses, sharer->count, sharer->capacity, use);
    return value;
}

/* The view `value` of a parameter, made again of the layer's own value for it. */
static ValueId view_in(Sharer *sharer, ValueId value, int layer)
{
    Graph *graph = sharer->graph;
    NodeId producer = graph_value(graph, value)->producer;
    if (!producer) return value_in(sharer, value, layer);
    ValueId source = view_in(sharer, graph_node(graph, producer)->inputs[0], layer), view = 0;
    const Node node = *graph_node(graph, producer);
    NodeOrigin origin = {node.name, PHASE_FORWARD, 0, layer};
    if (!graph_add_node(graph, node.op, origin, &source, 1, node.attributes, node.attribute_count, &view, 1,
                        sharer->diagnostics))
        bug("a view of '%s' cannot be made twice", graph_value(graph, source)->name);
    return view;
}

/* Builds the node list again, with the further views in front of what reads them. */
static void rebuild(Sharer *sharer)
{
    Graph *graph = sharer->graph;
    size_t node_count;
    Node *nodes = graph_take_nodes(graph, &node_count);
    for (NodeId n = 1; n < node_count; n++) {
        Node node = nodes[n];
        if (node.op == OP_NONE) continue;
        bool reads = computes(graph, &node);
        for (int i = 0; reads && i < node.input_count; i++) {
            ValueId parameter = parameter_behind(graph, node.inputs[i]);
            if (parameter && sharer->home[parameter] != 1 + node.layer)
                node.inputs[i] = view_in(sharer, node.inputs[i], node.layer);
        }
        for (int i = 0; i < node.output_count; i++)
            graph_value(graph, node.outputs[i])->producer = (NodeId)graph->node_count;
        array_push(graph->nodes, graph->node_count, graph->node_capacity, node);
    }
    free(nodes);
    graph_remove_dead(graph); /* views that only later layers read */
}

void parameters_share(Graph *graph, Diagnostics *diagnostics)
{
    Sharer sharer = {
        .graph = graph, .diagnostics = diagnostics, .home = memory_allocate(graph->value_count * sizeof(int))};
    if (find_homes(&sharer)) rebuild(&sharer);
    free(sharer.home);
    free(sharer.uses);
}

/* The weights whose product `value` is, perhaps with a bias added; 0 if it is something else. */
static ValueId product_weights(const Graph *graph, ValueId value)
{
    for (;;) {
        const Node *node = graph_node(graph, graph_value(graph, value)->producer); /* 0 has no operator */
        if (node->op == OP_MatMul) return parameter_behind(graph, node->inputs[1]);
        if (operator_is_movement(node->op))
            value = node->inputs[0];
        else if (node->op == OP_Add)
            value = node->inputs[parameter_behind(graph, node->inputs[0]) != 0];
        else
            return 0;
    }
}

void warn_of_untied_decoders(const Graph *graph, Diagnostics *diagnostics)
{
    enum { LEAST_ROWS = 32 }; /* fewer may be classes as well */
    for (NodeId n = 1; n < graph->node_count; n++) {
        const Node *node = graph_node(graph, n);
        ValueId table = node->op == OP_Gather ? parameter_behind(graph, node->inputs[0]) : 0;
        const Shape *shape = &graph_value(graph, table)->shape;
        for (size_t i = 0; table && shape->rank == 2 && shape->dim[0] >= LEAST_ROWS && i < graph->output_count; i++) {
            const Shape *output = &graph_value(graph, graph->outputs[i].value)->shape;
            ValueId weights = product_weights(graph, graph->outputs[i].value);
            if (!weights || weights == table || output->rank < 3 || output->dim[output->rank - 1] != shape->dim[0])
                continue;
            diagnostics_warning(
                diagnostics, PLACE_FILE(graph->file), "if both are meant to be one, export the model with them equal",
                "the output '%s' is decoded with '%s', which is trained apart from the embeddings '%s'",
                graph->outputs[i].name, graph_value(graph, weights)->name, graph_value(graph, table)->name);
        }
    }
}
