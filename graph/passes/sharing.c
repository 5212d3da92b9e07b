#include "graph/passes/sharing.h"

#include <stdlib.h>

#include "graph/ops/add_node.h"

/* A layer's own value for a parameter, or its own copy of a carried value. */
typedef struct Use {
    ValueId value;
    int layer, highest; /* the layer's number, and the highest so far */
    size_t before;      /* 1 + the use of the same original before this one; 0: none */
    size_t number;      /* among them, from 1 */
} Use;

typedef struct Sharer {
    Graph *graph;
    Diagnostics *diagnostics;
    int *home; /* per value of a parameter: 1 + the first layer that uses it */
    Use *uses; /* by later layers */
    size_t count, capacity;
    size_t *newest;      /* per value: 1 + its last use; 0: none */
    const bool *carried; /* [value], of the carried_count values that there were at first */
    size_t carried_count;
} Sharer;

static bool is_carried(const Sharer *sharer, ValueId value)
{
    return value < sharer->carried_count && sharer->carried[value];
}

/* Whether the node belongs to one layer, rather than going with whatever reads it. */
static bool computes(const Sharer *sharer, const Node *node)
{
    if (node->op == OP_NONE || node->phase != PHASE_FORWARD || node->layer == LAYER_NONE) return false;
    return !is_carried(sharer, node->outputs[0]);
}

/* Notes that a layer reads the parameters that a value is made of, if it is one or carried. Returns whether another
 * layer is home to one of them. */
static bool read_parameters(const Sharer *sharer, ValueId value, int layer)
{
    const Value *read = graph_value(sharer->graph, value);
    if (read->role == ROLE_PARAMETER) {
        if (!sharer->home[value]) sharer->home[value] = 1 + layer;
        return sharer->home[value] != 1 + layer;
    }
    bool foreign = false;
    if (!is_carried(sharer, value)) return false;
    const Node *node = graph_node(sharer->graph, read->producer);
    for (int i = 0; i < node->input_count; i++) foreign |= read_parameters(sharer, node->inputs[i], layer);
    return foreign;
}

/* Finds where every parameter is read first. Returns whether some are read by several layers. */
static bool find_homes(Sharer *sharer)
{
    const Graph *graph = sharer->graph;
    bool any = false;
    for (NodeId n = 1; n < graph->node_count; n++) {
        const Node *node = graph_node(graph, n);
        for (int i = 0; computes(sharer, node) && i < node->input_count; i++)
            any |= read_parameters(sharer, node->inputs[i], node->layer);
    }
    return any;
}

/* Layers come in their order, mostly, so that few uses are looked at. */
static ValueId find_use(const Sharer *sharer, ValueId original, int layer)
{
    for (size_t i = sharer->newest[original]; i && layer <= sharer->uses[i - 1].highest; i = sharer->uses[i - 1].before)
        if (sharer->uses[i - 1].layer == layer) return sharer->uses[i - 1].value;
    return 0;
}

static void add_use(Sharer *sharer, ValueId original, ValueId value, int layer)
{
    size_t before = sharer->newest[original];
    Use use = {value, layer, layer, before, 1};
    if (before) {
        const Use *last = &sharer->uses[before - 1];
        use.number = last->number + 1;
        if (last->highest > layer) use.highest = last->highest;
    }
    array_push(sharer->uses, sharer->count, sharer->capacity, use);
    sharer->newest[original] = sharer->count;
}

static ValueId value_in(Sharer *sharer, ValueId parameter, int layer)
{
    Graph *graph = sharer->graph;
    if (sharer->home[parameter] == 1 + layer) return parameter;
    ValueId known = find_use(sharer, parameter, layer);
    if (known) return known;
    size_t newest = sharer->newest[parameter], number = newest ? sharer->uses[newest - 1].number + 2 : 2;
    const Value shared = *graph_value(graph, parameter);
    const char *name = arena_format(&graph->arena, "%s (use %zu)", shared.name, number);
    ValueId value = graph_add_parameter(graph, name, shared.dtype, &shared.shape, shared.data);
    graph_value(graph, value)->parameter = parameter;
    graph_value(graph, value)->frozen = shared.frozen;
    add_use(sharer, parameter, value, layer);
    return value;
}

static ValueId copy_in(Sharer *sharer, ValueId value, int layer);

static void copy_node(Sharer *sharer, const Node *node, int layer)
{
    ValueId *inputs = arena_new_array(&sharer->graph->arena, ValueId, (size_t)node->input_count);
    ValueId *outputs = arena_new_array(&sharer->graph->arena, ValueId, (size_t)node->output_count);
    for (int i = 0; i < node->input_count; i++) inputs[i] = copy_in(sharer, node->inputs[i], layer);
    NodeOrigin origin = {.name = node->name, .phase = PHASE_FORWARD, .layer = layer};
    if (!graph_add_node(sharer->graph, node->op, origin, inputs, node->input_count, node->attributes,
                        node->attribute_count, outputs, node->output_count, sharer->diagnostics))
        bug("'%s' cannot be computed twice", node->name);
    for (int i = 0; i < node->output_count; i++) add_use(sharer, node->outputs[i], outputs[i], layer);
}

/* What the layer reads for a value: itself, the layer's own value for a parameter, or a copy made of such. */
static ValueId copy_in(Sharer *sharer, ValueId value, int layer)
{
    if (graph_value(sharer->graph, value)->role == ROLE_PARAMETER) return value_in(sharer, value, layer);
    if (!is_carried(sharer, value)) return value;
    ValueId known = find_use(sharer, value, layer);
    if (known) return known;
    const Node node = *graph_producer(sharer->graph, value);
    copy_node(sharer, &node, layer);
    return copy_in(sharer, value, layer);
}

/* Builds the node list again, with the copies in front of what reads them. */
static void rebuild(Sharer *sharer)
{
    Graph *graph = sharer->graph;
    size_t node_count;
    FREED Node *nodes = graph_take_nodes(graph, &node_count);
    for (NodeId n = 1; n < node_count; n++) {
        Node node = nodes[n];
        if (node.op == OP_NONE) continue;
        for (int i = 0; computes(sharer, &node) && i < node.input_count; i++)
            if (read_parameters(sharer, node.inputs[i], node.layer))
                node.inputs[i] = copy_in(sharer, node.inputs[i], node.layer);
        graph_push_node(graph, node);
    }
    graph_remove_dead(graph); /* what only later layers read */
}

void parameters_share(Graph *graph, const bool *carried, Diagnostics *diagnostics)
{
    Sharer sharer = {.graph = graph,
                     .diagnostics = diagnostics,
                     .home = memory_allocate(graph->value_count * sizeof(int)),
                     .newest = memory_allocate(graph->value_count * sizeof(size_t)),
                     .carried = carried,
                     .carried_count = graph->value_count};
    if (find_homes(&sharer)) rebuild(&sharer);
    free(sharer.home);
    free(sharer.uses);
    free(sharer.newest);
}
