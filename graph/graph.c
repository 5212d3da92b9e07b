#include "graph/graph.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/program/step_scalars.h"

void graph_init(Graph *graph, const char *file)
{
    *graph = (Graph){.file = file};
    array_push(graph->values, graph->value_count, graph->value_capacity, (Value){0});
    array_push(graph->nodes, graph->node_count, graph->node_capacity, (Node){0});
}

static void *copied(const void *array, size_t count, size_t size)
{
    void *copy = memory_allocate(count * size);
    if (count) memcpy(copy, array, count * size);
    return copy;
}

void graph_copy(Graph *to, const Graph *from)
{
    *to = *from;
    to->arena = (Arena){0};
    to->values = copied(from->values, from->value_count, sizeof *from->values);
    to->nodes = copied(from->nodes, from->node_count, sizeof *from->nodes);
    to->inputs = copied(from->inputs, from->input_count, sizeof *from->inputs);
    to->outputs = copied(from->outputs, from->output_count, sizeof *from->outputs);
    to->value_capacity = to->value_count;
    to->node_capacity = to->node_count;
    to->input_capacity = to->input_count;
    to->output_capacity = to->output_count;
    for (NodeId n = 1; n < to->node_count; n++) {
        Node *node = graph_node(to, n);
        node->inputs = arena_copy(&to->arena, node->inputs, (size_t)node->input_count * sizeof *node->inputs);
        node->outputs = arena_copy(&to->arena, node->outputs, (size_t)node->output_count * sizeof *node->outputs);
        node->attributes =
            arena_copy(&to->arena, node->attributes, (size_t)node->attribute_count * sizeof *node->attributes);
    }
}

void graph_push_node(Graph *graph, Node node)
{
    for (int i = 0; node.op != OP_NONE && i < node.output_count; i++)
        if (node.outputs[i]) graph_value(graph, node.outputs[i])->producer = (NodeId)graph->node_count;
    array_push(graph->nodes, graph->node_count, graph->node_capacity, node);
}

void graph_mark_dependent(const Graph *graph, bool *marked)
{
    for (NodeId n = 1; n < graph->node_count; n++) {
        const Node *node = graph_node(graph, n);
        bool any = false;
        for (int i = 0; node->op != OP_NONE && i < node->input_count; i++) any |= marked[node->inputs[i]];
        for (int i = 0; any && i < node->output_count; i++) marked[node->outputs[i]] = true;
        marked[0] = false; /* outputs that nobody reads */
    }
}

Node *graph_take_nodes(Graph *graph, size_t *count)
{
    Node *nodes = graph->nodes;
    *count = graph->node_count;
    graph->nodes = NULL;
    graph->node_count = graph->node_capacity = 0;
    array_push(graph->nodes, graph->node_count, graph->node_capacity, (Node){0});
    return nodes;
}

void graph_free(Graph *graph)
{
    arena_free(&graph->arena);
    free(graph->values);
    free(graph->nodes);
    free(graph->inputs);
    free(graph->outputs);
    *graph = (Graph){0};
}

static ValueId add_value(Graph *graph, const char *name, ValueRole role, DType dtype, const Shape *shape)
{
    if (graph->value_count >= UINT32_MAX) memory_exhausted();
    Value value = {
        .name = name ? arena_string(&graph->arena, name) : NULL, .dtype = dtype, .role = role, .shape = *shape};
    array_push(graph->values, graph->value_count, graph->value_capacity, value);
    return (ValueId)(graph->value_count - 1);
}

ValueId graph_add_input(Graph *graph, const char *name, DType dtype, const Shape *shape)
{
    ValueId id = add_value(graph, name, ROLE_INPUT, dtype, shape);
    array_push(graph->inputs, graph->input_count, graph->input_capacity, id);
    return id;
}

ValueId graph_add_parameter(Graph *graph, const char *name, DType dtype, const Shape *shape, const void *data)
{
    ValueId id = add_value(graph, name, ROLE_PARAMETER, dtype, shape);
    graph_value(graph, id)->data = data;
    return id;
}

ValueId graph_add_state(Graph *graph, const char *name, ValueId parameter)
{
    Value model = *graph_value(graph, parameter);
    ValueId id = add_value(graph, name, ROLE_STATE, model.dtype, &model.shape);
    graph_value(graph, id)->parameter = parameter;
    return id;
}

ValueId graph_add_constant(Graph *graph, const char *name, DType dtype, const Shape *shape, const void *data)
{
    int64_t elements = shape_elements(shape);
    if (elements < 0) bug("constant of impossible shape");
    size_t bytes = (size_t)elements * dtype_size(dtype);
    void *copy = arena_allocate(&graph->arena, bytes);
    if (data && bytes) memcpy(copy, data, bytes);
    ValueId id = add_value(graph, name, ROLE_CONSTANT, dtype, shape);
    graph_value(graph, id)->data = copy;
    return id;
}

ValueId graph_constant_scalar(Graph *graph, DType dtype, double value)
{
    double element = 0;
    element_store_double(dtype, &element, 0, value);
    return graph_add_constant(graph, NULL, dtype, &(Shape){0}, &element);
}

ValueId graph_constant_integers(Graph *graph, const int64_t *values, int count)
{
    return graph_add_constant(graph, NULL, DTYPE_I64, &(Shape){1, {count}}, values);
}

ValueId graph_step_scalars(Graph *graph)
{
    if (!graph->scalars)
        graph->scalars = add_value(graph, "step-scalars", ROLE_SCALARS, DTYPE_F32, &(Shape){1, {SKY_STEP_SCALARS}});
    return graph->scalars;
}

int graph_label_number(Graph *graph, const Labels *labels)
{
    for (int i = 0; i < graph->label_count; i++) {
        const Labels *known = &graph->labels[i];
        if (known->input != labels->input) continue;
        if (known->kind != labels->kind || known->ignore_index != labels->ignore_index) return -1;
        if (known->weights == labels->weights && known->shifted == labels->shifted) return i;
    }
    if (graph->label_count == SKY_MOST_LABELS) return -1;
    graph->labels[graph->label_count] = *labels;
    return graph->label_count++;
}

void graph_add_output(Graph *graph, const char *name, ValueId value)
{
    NamedValue output = {arena_string(&graph->arena, name), value};
    array_push(graph->outputs, graph->output_count, graph->output_capacity, output);
}

static Attribute *copy_attributes(Arena *arena, const Attribute *attributes, int count)
{
    Attribute *copy = arena_copy(arena, attributes, (size_t)count * sizeof *attributes);
    for (int i = 0; i < count; i++) {
        copy[i].name = arena_string(arena, attributes[i].name);
        if (attributes[i].kind == ATTRIBUTE_INTEGERS)
            copy[i].integers = arena_copy(arena, attributes[i].integers, (size_t)attributes[i].count * sizeof(int64_t));
        if (attributes[i].kind == ATTRIBUTE_STRING) copy[i].string = arena_string(arena, attributes[i].string);
    }
    return copy;
}

NodeId graph_append(Graph *graph, const Node *node, const DType *dtypes, const Shape *shapes)
{
    Node copy = *node;
    NodeId id = (NodeId)graph->node_count;
    copy.inputs = arena_copy(&graph->arena, node->inputs, (size_t)node->input_count * sizeof *node->inputs);
    copy.attributes = copy_attributes(&graph->arena, node->attributes, node->attribute_count);
    copy.name = node->name ? arena_string(&graph->arena, node->name) : "";
    copy.outputs = arena_new_array(&graph->arena, ValueId, (size_t)node->output_count);
    for (int i = 0; i < node->output_count; i++) {
        copy.outputs[i] = add_value(graph, NULL, ROLE_ACTIVATION, dtypes[i], &shapes[i]);
        graph_value(graph, copy.outputs[i])->producer = id;
    }
    array_push(graph->nodes, graph->node_count, graph->node_capacity, copy);
    return id;
}

void graph_reorder(Graph *graph, const NodeId *order)
{
    size_t count = graph->node_count;
    FREED Node *nodes = memory_allocate(count * sizeof *nodes);
    FREED NodeId *fresh = memory_allocate(count * sizeof *fresh); /* per old id */
    memcpy(nodes, graph->nodes, count * sizeof *nodes);
    for (size_t i = 1; i < count; i++) fresh[order[i - 1]] = (NodeId)i;
    for (size_t i = 1; i < count; i++) {
        Node *node = &graph->nodes[i];
        *node = nodes[order[i - 1]];
        node->differentiates = fresh[node->differentiates];
        for (int k = 0; node->op != OP_NONE && k < node->output_count; k++) /* the dead may name what others make now */
            if (node->outputs[k]) graph_value(graph, node->outputs[k])->producer = (NodeId)i;
    }
}

LineGrowth value_growth(const Value *value)
{
    if (!value->line_axis) return LINES_FIXED;
    for (int axis = 0; axis < value->line_axis - 1; axis++)
        if (value->shape.dim[axis] != 1) return LINES_MIXED;
    return value->line_axis > 0 ? LINES_FIRST : LINES_MIXED;
}

const Attribute *node_attribute(const Node *node, const char *name)
{
    for (int i = 0; i < node->attribute_count; i++)
        if (strcmp(node->attributes[i].name, name) == 0) return &node->attributes[i];
    return NULL;
}

int64_t node_integer(const Node *node, const char *name, int64_t absent)
{
    const Attribute *attribute = node_attribute(node, name);
    return attribute && attribute->kind == ATTRIBUTE_INTEGER ? attribute->integer : absent;
}

double node_float(const Node *node, const char *name, double absent)
{
    const Attribute *attribute = node_attribute(node, name);
    return attribute && attribute->kind == ATTRIBUTE_FLOAT ? attribute->number : absent;
}

const OpcodeForm opcodes[OP_COUNT] = {[OP_NONE] = {"(dead)", 0, 0, 0, 0},
#define OPERATOR(name, shape, gradient, lowering, axes, least, most, outputs, traits)                                  \
    [OP_##name] = {#name, least, most, outputs, traits},
                                      OPERATORS
#undef OPERATOR
};

Place node_place(const Graph *graph, const Node *node, char text[static 512])
{
    snprintf(text, 512, "node '%.400s' (%s)", node->name, opcodes[node->op].name);
    return (Place){.file = graph->file, .object = text};
}

void graph_remove_dead(Graph *graph)
{
    FREED bool *needed = memory_allocate(graph->value_count);
    for (size_t i = 0; i < graph->output_count; i++) needed[graph->outputs[i].value] = true;
    needed[graph->loss] = true;
    for (size_t i = 0; i < graph->gradient_count; i++) needed[graph->gradients[i]] = true;
    for (NodeId n = (NodeId)graph->node_count - 1; n > 0; n--) {
        Node *node = graph_node(graph, n);
        if (node->op == OP_NONE) continue;
        bool live = node->phase == PHASE_UPDATE; /* updates act by their effect */
        for (int i = 0; i < node->output_count; i++) live |= needed[node->outputs[i]];
        if (!live) {
            node->op = OP_NONE;
            continue;
        }
        for (int i = 0; i < node->input_count; i++) needed[node->inputs[i]] = true;
    }
}

void graph_verify(const Graph *graph)
{
    for (NodeId n = 1; n < graph->node_count; n++) {
        const Node *node = graph_node(graph, n);
        if (node->op == OP_NONE) continue;
        if (node->op >= OP_COUNT) bug("node %u has no operator", n);
        for (int i = 0; i < node->input_count; i++) {
            ValueId input = node->inputs[i];
            if (input >= graph->value_count) bug("node %u reads value %u, which does not exist", n, input);
            const Value *value = graph_value(graph, input);
            if (value->producer >= n)
                bug("node %u (%s) reads value %u before node %u makes it", n, opcodes[node->op].name, input,
                    value->producer);
            if (value->producer && graph_node(graph, value->producer)->op == OP_NONE)
                bug("node %u (%s '%s') reads value %u of dead node %u", n, opcodes[node->op].name, node->name, input,
                    value->producer);
            if (value->producer && graph_node(graph, value->producer)->phase > node->phase)
                bug("node %u looks upstream", n);
        }
        for (int i = 0; i < node->output_count; i++)
            if (graph_value(graph, node->outputs[i])->producer != n)
                bug("output %d of node %u has another producer", i, n);
    }
    for (ValueId v = 1; v < graph->value_count; v++) {
        const Value *value = graph_value(graph, v);
        if (value->role == ROLE_CONSTANT && !value->data && shape_elements(&value->shape) > 0)
            bug("constant %u has no data", v);
        if (shape_elements(&value->shape) < 0) bug("value %u has an impossible shape", v);
    }
}
