#include "graph/passes/prune.h"

#include <stdlib.h>
#include <string.h>

#include "graph/ops/add_node.h"
#include "graph/ops/operator.h"
#include "graph/analysis/axes.h"

typedef enum Need { UNREAD, PART, WHOLE } Need;

/* What is read of a value: indices start ... start + count - 1 of one axis, if only a part. */
typedef struct Demand {
    Need need;
    int axis;
    int64_t start, count;
} Demand;

typedef struct CutValue {
    ValueId whole, part;
    Demand demand;
} CutValue;

typedef struct Pruner {
    Graph *graph;
    Diagnostics *diagnostics;
    Demand *demand; /* per value */
    size_t value_count;
    CutValue *cuts; /* values that were cut already */
    size_t cut_count, cut_capacity;
} Pruner;

static bool same_part(const Demand *a, const Demand *b)
{
    return a->axis == b->axis && a->start == b->start && a->count == b->count;
}

static void add_demand(Pruner *pruner, ValueId value, Demand demand)
{
    Demand *present = &pruner->demand[value];
    if (present->need == UNREAD)
        *present = demand;
    else if (present->need == WHOLE || demand.need == WHOLE || !same_part(present, &demand))
        *present = (Demand){.need = WHOLE};
}

/* ---- What operators do to an axis ---- */

static const Shape *shape_of(const Graph *graph, ValueId value) { return &graph_value(graph, value)->shape; }

/* Whether the node reads one part of its first input along one axis. */
static bool selects(const Graph *graph, const Node *node, Demand *part)
{
    const Shape *shape = shape_of(graph, node->inputs[0]);
    if (node->op == OP_Gather) {
        const Value *index = graph_value(graph, node->inputs[1]);
        int64_t axis = node_integer(node, "axis", 0);
        if (index->role != ROLE_CONSTANT || shape_elements(&index->shape) != 1) return false;
        normalize_axis(&axis, shape->rank, false);
        int64_t start = element_as_integer(index->dtype, index->data, 0);
        if (!normalize_axis(&start, (int)shape->dim[axis], false)) return false;
        *part = (Demand){PART, (int)axis, start, 1};
        return shape->dim[axis] > 1;
    }
    Shape starts, steps, result;
    if (node->op != OP_Slice || !node_shape(node, "starts", &starts) || !node_shape(node, "steps", &steps) ||
        !node_shape(node, "shape", &result))
        return false;
    int cut = -1;
    for (int i = 0; i < shape->rank; i++) {
        if (result.dim[i] == shape->dim[i] && steps.dim[i] == 1) continue;
        if (cut >= 0 || (steps.dim[i] != 1 && result.dim[i] != 1) || result.dim[i] == 0) return false;
        cut = i;
    }
    if (cut < 0) return false;
    *part = (Demand){PART, cut, starts.dim[cut], result.dim[cut]};
    return true;
}

/* ---- Demands, from the outputs up ---- */

static void demand_inputs(Pruner *pruner, const Node *node)
{
    Graph *graph = pruner->graph;
    Demand *demand = &pruner->demand[node->outputs[0]], part = {0};
    for (int i = 1; i < node->output_count; i++)
        if (pruner->demand[node->outputs[i]].need != UNREAD) *demand = (Demand){.need = WHOLE};
    if (demand->need == UNREAD) return;
    int *axes = memory_allocate((size_t)node->input_count * sizeof *axes);
    if (demand->need == PART && !axes_of_inputs(graph, node, demand->axis, axes)) *demand = (Demand){.need = WHOLE};
    bool selecting = demand->need == WHOLE && selects(graph, node, &part);
    for (int i = 0; i < node->input_count; i++) {
        if (!node->inputs[i]) continue;
        Demand wanted = {.need = WHOLE};
        if (selecting && i == 0) wanted = part;
        if (demand->need == PART && axes[i] >= 0) wanted = (Demand){PART, axes[i], demand->start, demand->count};
        add_demand(pruner, node->inputs[i], wanted);
    }
    free(axes);
}

/* ---- The graph again, with less in it ---- */

/* The part of a value that is there as a whole. */
static ValueId cut(Pruner *pruner, ValueId whole, Demand part, const char *name)
{
    for (size_t i = 0; i < pruner->cut_count; i++)
        if (pruner->cuts[i].whole == whole && same_part(&pruner->cuts[i].demand, &part)) return pruner->cuts[i].part;
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

/* Changes one number of an attribute that is a list; the node gets attributes of its own. */
static void change_attribute(Graph *graph, Node *node, const char *name, int at, int64_t number)
{
    node->attributes =
        arena_copy(&graph->arena, node->attributes, (size_t)node->attribute_count * sizeof *node->attributes);
    for (int i = 0; i < node->attribute_count; i++) {
        Attribute *attribute = &node->attributes[i];
        if (strcmp(attribute->name, name) != 0) continue;
        int64_t *list = arena_copy(&graph->arena, attribute->integers, (size_t)attribute->count * sizeof *list);
        list[at] = number;
        attribute->integers = list;
    }
}

/* A node of whose result only a part is read computes that part. */
static void shrink(Pruner *pruner, Node *node, const Demand *demand)
{
    Graph *graph = pruner->graph;
    int *axes = memory_allocate((size_t)node->input_count * sizeof *axes);
    axes_of_inputs(graph, node, demand->axis, axes);
    for (int i = 0; i < node->input_count; i++) {
        ValueId input = node->inputs[i];
        if (!input || axes[i] < 0) continue;
        Demand part = {PART, axes[i], demand->start, demand->count};
        if (!is_shrunk(pruner, input)) node->inputs[i] = cut(pruner, input, part, node->name);
    }
    free(axes);
    if (node->op == OP_Reshape || node->op == OP_Slice)
        change_attribute(graph, node, "shape", demand->axis, demand->count);
    if (node->op == OP_Dropout) { /* elements keep the positions that they have in the whole tensor */
        const int64_t *positions = node_attribute(node, "positions")->integers;
        change_attribute(graph, node, "positions", 0, positions[0] + demand->start * positions[1 + demand->axis]);
    }
    if (node->op == OP_Expand) {
        Shape target = *shape_of(graph, node->outputs[0]), given;
        node_shape(node, "shape", &given);
        int at = demand->axis - (target.rank - given.rank);
        if (at >= 0 && given.dim[at] != 1) change_attribute(graph, node, "shape", at, demand->count);
    }
    for (int i = 0; i < node->output_count; i++)
        graph_value(graph, node->outputs[i])->shape.dim[demand->axis] = demand->count;
}

/* A selection whose input is that selection already takes all of it. */
static void select_all(Pruner *pruner, Node *node, const Demand *part)
{
    Graph *graph = pruner->graph;
    if (node->op == OP_Slice) {
        change_attribute(graph, node, "starts", part->axis, 0);
        change_attribute(graph, node, "steps", part->axis, 1);
        return;
    }
    /* A Gather takes its dimension away as well: where one index is left, that is all that it does. */
    Shape shape = *shape_of(graph, node->outputs[0]);
    Attribute attribute = attribute_integers("shape", NULL, shape.rank);
    attribute.integers = arena_copy(&graph->arena, shape.dim, (size_t)shape.rank * sizeof shape.dim[0]);
    node->op = OP_Reshape;
    node->input_count = node->attribute_count = 1;
    node->attributes = arena_copy(&graph->arena, &attribute, sizeof attribute);
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
    Demand demand = pruner->demand[node.outputs[0]], part = {0};
    if (demand.need == UNREAD) {
        for (int i = 0; i < node.output_count; i++) graph_value(graph, node.outputs[i])->producer = 0;
        return;
    }
    node.inputs = arena_copy(&graph->arena, node.inputs, (size_t)node.input_count * sizeof *node.inputs);
    /* Only a selection reads a part of its input and is itself read as a whole. */
    bool selecting = demand.need == WHOLE && is_shrunk(pruner, node.inputs[0]);
    if (selecting) part = pruner->demand[node.inputs[0]];
    if (demand.need == PART) shrink(pruner, &node, &demand);
    if (selecting) select_all(pruner, &node, &part);
    if (demand.need == PART || selecting) check_shapes(pruner, &node);
    NodeId id = (NodeId)graph->node_count;
    for (int i = 0; i < node.output_count; i++) graph_value(graph, node.outputs[i])->producer = id;
    array_push(graph->nodes, graph->node_count, graph->node_capacity, node);
}

void prune_unread(Graph *graph, Diagnostics *diagnostics)
{
    Pruner pruner = {.graph = graph, .diagnostics = diagnostics, .value_count = graph->value_count};
    pruner.demand = memory_allocate(graph->value_count * sizeof *pruner.demand);
    for (size_t i = 0; i < graph->output_count; i++)
        add_demand(&pruner, graph->outputs[i].value, (Demand){.need = WHOLE});
    if (graph->loss) add_demand(&pruner, graph->loss, (Demand){.need = WHOLE});
    for (NodeId n = (NodeId)graph->node_count - 1; n > 0; n--)
        if (graph_node(graph, n)->op != OP_NONE) demand_inputs(&pruner, graph_node(graph, n));

    size_t node_count;
    Node *nodes = graph_take_nodes(graph, &node_count);
    for (size_t n = 1; n < node_count; n++)
        if (nodes[n].op != OP_NONE) rebuild_node(&pruner, nodes[n]);
    free(nodes);
    free(pruner.cuts);
    free(pruner.demand);
}
