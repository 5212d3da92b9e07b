/* Computes only what is read. A classifier reads one token of the last encoder block, so everything in that block but
 * keys and values need be computed for that token only: a selection (Gather of one known index, Slice along one axis)
 * is moved up through the operators that treat the positions of its axis independently, until it meets a value that
 * somebody reads as a whole. The results are the same. Nodes are renumbered; dead ones
 * disappear. */
#include <stdlib.h>

#include "graph/ops/add_node.h"
#include "graph/ops/operator.h"
#include "graph/passes/passes.h"

typedef enum Need { UNREAD, PART, WHOLE } Need;

/* What is read of a value. */
typedef struct Demand {
    Need need;
    AxisPart part;
} Demand;

typedef struct CutValue {
    ValueId whole, cut;
    AxisPart part;
} CutValue;

typedef struct Pruner {
    Graph *graph;
    Diagnostics *diagnostics;
    Demand *demand; /* per value */
    CutValue *cuts; /* values that were cut already */
    size_t cut_count, cut_capacity;
} Pruner;

static bool same_part(const AxisPart *a, const AxisPart *b)
{
    return a->axis == b->axis && a->start == b->start && a->count == b->count;
}

/* The same indices of another axis. */
static AxisPart along(AxisPart part, int axis)
{
    part.axis = axis;
    return part;
}

static void add_demand(Pruner *pruner, ValueId value, Demand demand)
{
    Demand *present = &pruner->demand[value];
    if (present->need == UNREAD)
        *present = demand;
    else if (present->need == WHOLE || demand.need == WHOLE || !same_part(&present->part, &demand.part))
        *present = (Demand){.need = WHOLE};
}

static const Shape *shape_of(const Graph *graph, ValueId value) { return &graph_value(graph, value)->shape; }

/* ---- Demands, from the outputs up ---- */

static void demand_inputs(Pruner *pruner, const Node *node)
{
    Graph *graph = pruner->graph;
    Demand *demand = &pruner->demand[node->outputs[0]];
    AxisPart selected = {0};
    for (int i = 1; i < node->output_count; i++)
        if (pruner->demand[node->outputs[i]].need != UNREAD) *demand = (Demand){.need = WHOLE};
    if (demand->need == UNREAD) return;
    FREED int *axes = memory_allocate((size_t)node->input_count * sizeof *axes);
    if (demand->need == PART && !axes_of_inputs(graph, node, demand->part.axis, axes))
        *demand = (Demand){.need = WHOLE};
    bool selecting = demand->need == WHOLE && operator_selects(graph, node, &selected);
    for (int i = 0; i < node->input_count; i++) {
        if (!node->inputs[i]) continue;
        Demand wanted = {.need = WHOLE};
        if (selecting && i == 0) wanted = (Demand){PART, selected};
        if (demand->need == PART && axes[i] >= 0) wanted = (Demand){PART, along(demand->part, axes[i])};
        add_demand(pruner, node->inputs[i], wanted);
    }
}

/* ---- The graph again, with less in it ---- */

/* The part of a value that is there as a whole. */
static ValueId cut(Pruner *pruner, ValueId whole, AxisPart part, const char *name)
{
    for (size_t i = 0; i < pruner->cut_count; i++)
        if (pruner->cuts[i].whole == whole && same_part(&pruner->cuts[i].part, &part)) return pruner->cuts[i].cut;
    Shape shape = *shape_of(pruner->graph, whole);
    int64_t starts[MAX_RANK] = {0}, steps[MAX_RANK] = {1, 1, 1, 1, 1, 1, 1, 1};
    starts[part.axis] = part.start;
    shape.dim[part.axis] = part.count;
    Attribute attributes[3] = {attribute_integers("starts", starts, shape.rank),
                               attribute_integers("steps", steps, shape.rank),
                               attribute_integers("shape", shape.dim, shape.rank)};
    NodeOrigin origin = {.name = name, .phase = PHASE_FORWARD, .layer = LAYER_NONE};
    ValueId result;
    if (!graph_add_node(pruner->graph, OP_Slice, origin, &whole, 1, attributes, 3, &result, 1, pruner->diagnostics))
        bug("a part of value %u cannot be cut out", whole);
    CutValue cut_value = {whole, result, part};
    array_push(pruner->cuts, pruner->cut_count, pruner->cut_capacity, cut_value);
    return result;
}

/* Whether the node that makes the value computes a part of it only. */
static bool is_shrunk(const Pruner *pruner, ValueId value)
{
    return graph_value(pruner->graph, value)->producer && pruner->demand[value].need == PART;
}

/* A node of whose result only a part is read computes that part. */
static void shrink(Pruner *pruner, Node *node, const AxisPart *part)
{
    Graph *graph = pruner->graph;
    FREED int *axes = memory_allocate((size_t)node->input_count * sizeof *axes);
    axes_of_inputs(graph, node, part->axis, axes);
    for (int i = 0; i < node->input_count; i++) {
        ValueId input = node->inputs[i];
        if (!input || axes[i] < 0 || is_shrunk(pruner, input)) continue;
        node->inputs[i] = cut(pruner, input, along(*part, axes[i]), node->name);
    }
    Shape given;
    const Attribute *positions = node_attribute(node, "positions");
    if (positions) /* elements keep the positions that they have in the whole tensor */
        node_change_attribute(graph, node, "positions", 0,
                              positions->integers[0] + part->start * positions->integers[1 + part->axis]);
    if (node_shape(node, "shape", &given)) {
        int at = part->axis - (shape_of(graph, node->outputs[0])->rank - given.rank);
        if (at >= 0 && given.dim[at] != 1) node_change_attribute(graph, node, "shape", at, part->count);
    }
    for (int i = 0; i < node->output_count; i++)
        graph_value(graph, node->outputs[i])->shape.dim[part->axis] = part->count;
}

static void check_shapes(Pruner *pruner, const Node *node)
{
    InferContext context = {.graph = pruner->graph, .node = node, .diagnostics = pruner->diagnostics};
    if (!operators[node->op].infer(&context)) bug("a pruned %s does not fit its inputs", opcodes[node->op].name);
    for (int i = 0; i < node->output_count; i++)
        if (!shape_equal(&context.shape[i], shape_of(pruner->graph, node->outputs[i])))
            bug("a pruned %s has another shape than expected", opcodes[node->op].name);
}

static void rebuild_node(Pruner *pruner, Node node)
{
    Graph *graph = pruner->graph;
    const Demand demand = pruner->demand[node.outputs[0]];
    if (demand.need == UNREAD) {
        for (int i = 0; i < node.output_count; i++) graph_value(graph, node.outputs[i])->producer = 0;
        return;
    }
    node.inputs = arena_copy(&graph->arena, node.inputs, (size_t)node.input_count * sizeof *node.inputs);
    /* Only a selection reads a part of its input and is itself read as a whole. */
    bool selecting = demand.need == WHOLE && is_shrunk(pruner, node.inputs[0]);
    if (demand.need == PART) shrink(pruner, &node, &demand.part);
    if (selecting) operator_select_all(graph, &node, &pruner->demand[node.inputs[0]].part);
    if (demand.need == PART || selecting) check_shapes(pruner, &node);
    graph_push_node(graph, node);
}

bool prune_unread(Graph *graph, const PassOptions *options, Diagnostics *diagnostics)
{
    if (options->no_pruning) return true;
    Pruner pruner = {.graph = graph, .diagnostics = diagnostics};
    pruner.demand = memory_allocate(graph->value_count * sizeof *pruner.demand);
    for (size_t i = 0; i < graph->output_count; i++)
        add_demand(&pruner, graph->outputs[i].value, (Demand){.need = WHOLE});
    if (graph->loss) add_demand(&pruner, graph->loss, (Demand){.need = WHOLE});
    for (NodeId n = (NodeId)graph->node_count - 1; n > 0; n--)
        if (graph_node(graph, n)->op != OP_NONE) demand_inputs(&pruner, graph_node(graph, n));

    size_t node_count;
    FREED Node *nodes = graph_take_nodes(graph, &node_count);
    for (size_t n = 1; n < node_count; n++)
        if (nodes[n].op != OP_NONE) rebuild_node(&pruner, nodes[n]);
    free(pruner.cuts);
    free(pruner.demand);
    return true;
}
