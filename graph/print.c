/* The readable text of a graph: one line for every input, parameter and node. */
#include <string.h>

#include "base/buffer.h"
#include "graph/operator.h"

static void print_value(const Graph *graph, ValueId id, Buffer *buffer)
{
    if (!id) {
        buffer_print(buffer, "_");
        return;
    }
    const Value *value = graph_value(graph, id);
    if (value->role == ROLE_CONSTANT && shape_elements(&value->shape) == 1) {
        if (dtype_is_float(value->dtype))
            buffer_print(buffer, "%.9g", element_as_double(value->dtype, value->data, 0));
        else
            buffer_print(buffer, "%lld", (long long)element_as_integer(value->dtype, value->data, 0));
    } else {
        buffer_print(buffer, "%%%u", id);
    }
}

static void print_type(const Value *value, Buffer *buffer)
{
    char text[256];
    buffer_print(buffer, " : %s%s", dtype_name(value->dtype), shape_format(&value->shape, text));
}

static void print_attribute(const Attribute *attribute, Buffer *buffer)
{
    buffer_print(buffer, "%s=", attribute->name);
    switch (attribute->kind) {
    case ATTRIBUTE_INTEGER: buffer_print(buffer, "%lld", (long long)attribute->integer); break;
    case ATTRIBUTE_FLOAT: buffer_print(buffer, "%.9g", attribute->number); break;
    case ATTRIBUTE_STRING: buffer_print(buffer, "\"%s\"", attribute->string); break;
    case ATTRIBUTE_INTEGERS:
        buffer_print(buffer, "[");
        for (int i = 0; i < attribute->count; i++)
            buffer_print(buffer, i ? ",%lld" : "%lld", (long long)attribute->integers[i]);
        buffer_print(buffer, "]");
    }
}

static void print_node(const Graph *graph, const Node *node, Buffer *buffer)
{
    for (int i = 0; i < node->output_count; i++) buffer_print(buffer, i ? ", %%%u" : "%%%u", node->outputs[i]);
    buffer_print(buffer, "%s%s(", node->output_count ? " = " : "", operators[node->op].name);
    for (int i = 0; i < node->input_count; i++) {
        if (i) buffer_print(buffer, ", ");
        print_value(graph, node->inputs[i], buffer);
    }
    buffer_print(buffer, ")");
    for (int i = 0; i < node->attribute_count; i++) {
        buffer_print(buffer, i ? ", " : " {");
        print_attribute(&node->attributes[i], buffer);
    }
    if (node->attribute_count) buffer_print(buffer, "}");
    for (int i = 0; i < node->output_count; i++) print_type(graph_value(graph, node->outputs[i]), buffer);
    if (node->layer != LAYER_NONE && graph->layer_names) buffer_print(buffer, "  @%s", graph->layer_names[node->layer]);
    buffer_print(buffer, "  # %s\n", node->name);
}

void graph_print(const Graph *graph, Buffer *buffer)
{
    static const char *const role_names[] = {"", "input", "parameter", "constant", "state", "scalars"};
    static const char *const phase_names[] = {"forward", "backward", "update"};
    for (ValueId v = 1; v < graph->value_count; v++) {
        const Value *value = graph_value(graph, v);
        if (value->role == ROLE_ACTIVATION || (value->role == ROLE_CONSTANT && !value->name)) continue;
        buffer_print(buffer, "%s %%%u", role_names[value->role], v);
        print_type(value, buffer);
        buffer_print(buffer, "  # %s\n", value->name ? value->name : "");
    }
    int phase = -1;
    for (NodeId n = 1; n < graph->node_count; n++) {
        const Node *node = graph_node(graph, n);
        if (node->op == OP_NONE) continue;
        if ((int)node->phase != phase) buffer_print(buffer, "%s:\n", phase_names[phase = (int)node->phase]);
        buffer_print(buffer, "  ");
        print_node(graph, node, buffer);
    }
    for (size_t i = 0; i < graph->output_count; i++)
        buffer_print(buffer, "output %%%u  # %s\n", graph->outputs[i].value, graph->outputs[i].name);
    if (graph->loss) buffer_print(buffer, "loss %%%u\n", graph->loss);
}
