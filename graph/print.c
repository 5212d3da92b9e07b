/* The readable text of a graph; parse.h says how it reads. */
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/text.h"
#include "graph/graph.h"

/* Names are whatever a file says: what would end them early, or steer a terminal, is written \xHH byte by byte, and so
 * is the backslash itself. */
static void print_name(const char *name, const char *stops, Buffer *buffer)
{
    size_t used, left = strlen(name);
    for (; left; name += used, left -= used) {
        int32_t c = text_character(name, left, &used);
        if (c >= 0 && !text_is_control(c) && c != '\\' && (c >= 0x80 || !strchr(stops, c)))
            buffer_append(buffer, name, used);
        else
            for (size_t i = 0; i < used; i++) buffer_print(buffer, "\\x%02x", (unsigned char)name[i]);
    }
}

/* As few digits as give the number back. */
static void print_double(double number, Buffer *buffer)
{
    char text[40];
    snprintf(text, sizeof text, "%.9g", number);
    if (strtod(text, NULL) != number) snprintf(text, sizeof text, "%.17g", number);
    buffer_print(buffer, "%s", text);
}

static void print_element(const Value *value, int64_t i, Buffer *buffer)
{
    if (value->dtype == DTYPE_F64)
        print_double(element_as_double(value->dtype, value->data, i), buffer);
    else if (dtype_is_float(value->dtype))
        buffer_print(buffer, "%.9g", element_as_double(value->dtype, value->data, i));
    else
        buffer_print(buffer, "%lld", (long long)element_as_integer(value->dtype, value->data, i));
}

static void print_type(const Value *value, Buffer *buffer)
{
    char text[256];
    buffer_print(buffer, "%s%s", dtype_name(value->dtype), shape_format(&value->shape, text));
}

/* Whether a constant is written where it is read, having no name and one element. */
static bool stands_inline(const Value *value)
{
    return value->role == ROLE_CONSTANT && !value->name && shape_elements(&value->shape) == 1;
}

static void print_value(const Graph *graph, ValueId id, Buffer *buffer)
{
    const Value *value = graph_value(graph, id);
    if (!id) {
        buffer_print(buffer, "_");
    } else if (stands_inline(value)) {
        buffer_print(buffer, "%s", dtype_name(value->dtype));
        char text[256];
        if (value->shape.rank) buffer_print(buffer, "%s", shape_format(&value->shape, text));
        buffer_print(buffer, " ");
        print_element(value, 0, buffer);
    } else {
        buffer_print(buffer, "%%%u", id);
    }
}

/* All elements, equal ones that follow each other once, with their number. */
static void print_elements(const Value *value, Buffer *buffer)
{
    size_t size = dtype_size(value->dtype);
    const char *data = value->data;
    int64_t count = shape_elements(&value->shape);
    buffer_print(buffer, " = [");
    for (int64_t i = 0, next; i < count; i = next) {
        for (next = i + 1; next < count && memcmp(data + (size_t)i * size, data + (size_t)next * size, size) == 0;)
            next++;
        if (i) buffer_print(buffer, ", ");
        print_element(value, i, buffer);
        if (next - i > 1) buffer_print(buffer, "*%lld", (long long)(next - i));
    }
    buffer_print(buffer, "]");
}

static void print_attribute(const Attribute *attribute, Buffer *buffer)
{
    buffer_print(buffer, "%s=", attribute->name);
    switch (attribute->kind) {
    case ATTRIBUTE_INTEGER: buffer_print(buffer, "%lld", (long long)attribute->integer); break;
    case ATTRIBUTE_FLOAT: {
        size_t before = buffer->size;
        print_double(attribute->number, buffer);
        if (!strpbrk(buffer->bytes + before, ".ein")) buffer_print(buffer, ".0");
        break;
    }
    case ATTRIBUTE_STRING:
        buffer_print(buffer, "\"");
        print_name(attribute->string, "\"", buffer);
        buffer_print(buffer, "\"");
        break;
    case ATTRIBUTE_INTEGERS:
        buffer_print(buffer, "[");
        for (int i = 0; i < attribute->count; i++)
            buffer_print(buffer, i ? ",%lld" : "%lld", (long long)attribute->integers[i]);
        buffer_print(buffer, "]");
    }
}

/* Of layers that share a name, all but the first say which they are. */
static void print_layer(const Graph *graph, int layer, Buffer *buffer)
{
    const char *name = graph->layer_names[layer];
    buffer_print(buffer, "  @");
    print_name(name, " :", buffer);
    for (int i = 0; i < layer; i++)
        if (strcmp(graph->layer_names[i], name) == 0) {
            buffer_print(buffer, ":%d", layer);
            break;
        }
}

static void print_node(const Graph *graph, const Node *node, Buffer *buffer)
{
    for (int i = 0; i < node->output_count; i++) buffer_print(buffer, i ? ", %%%u" : "%%%u", node->outputs[i]);
    buffer_print(buffer, "%s%s(", node->output_count ? " = " : "", opcodes[node->op].name);
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
    for (int i = 0; i < node->output_count; i++) {
        buffer_print(buffer, " : ");
        print_type(graph_value(graph, node->outputs[i]), buffer);
    }
    if (node->layer != LAYER_NONE && graph->layer_names) print_layer(graph, node->layer, buffer);
    const Node *differentiated = graph_node(graph, node->differentiates); /* 0 has no operator */
    if (differentiated->op != OP_NONE && differentiated->output_count)
        buffer_print(buffer, "  ^%%%u", differentiated->outputs[0]);
    buffer_print(buffer, "  # ");
    print_name(node->name, "", buffer);
    buffer_print(buffer, "\n");
}

/* A value that no node makes. */
static void print_source(const Value *value, ValueId id, Buffer *buffer)
{
    static const char *const role_names[] = {"", "input", "parameter", "constant", "state", "scalars"};
    buffer_print(buffer, "%s %%%u : ", role_names[value->role], id);
    print_type(value, buffer);
    if (value->role == ROLE_CONSTANT) print_elements(value, buffer);
    if (value->role == ROLE_PARAMETER && value->frozen) buffer_print(buffer, " frozen");
    if (value->parameter) buffer_print(buffer, " of %%%u", value->parameter);
    if (value->use) {
        buffer_print(buffer, " used as \"");
        print_name(value->use, "\"", buffer);
        buffer_print(buffer, "\"");
    }
    if (value->name) {
        buffer_print(buffer, "  # ");
        print_name(value->name, "", buffer);
    }
    buffer_print(buffer, "\n");
}

/* Parameters, inputs and the like are all printed; of constants without a name, those that somebody reads. */
static void print_sources(const Graph *graph, Buffer *buffer)
{
    FREED bool *read = memory_allocate(graph->value_count);
    for (NodeId n = 1; n < graph->node_count; n++)
        for (int i = 0; graph_node(graph, n)->op != OP_NONE && i < graph_node(graph, n)->input_count; i++)
            read[graph_node(graph, n)->inputs[i]] = true;
    for (size_t i = 0; i < graph->output_count; i++) read[graph->outputs[i].value] = true;
    read[graph->loss] = true;
    for (ValueId v = 1; v < graph->value_count; v++) {
        const Value *value = graph_value(graph, v);
        bool wanted = value->role == ROLE_CONSTANT ? value->name || (read[v] && !stands_inline(value))
                                                   : value->role != ROLE_ACTIVATION;
        if (wanted) print_source(value, v, buffer);
    }
}

static void print_labels(const Labels *labels, Buffer *buffer)
{
    buffer_print(buffer, "labels %%%u", labels->input);
    if (labels->kind != SKY_LABELS_NUMBERS) buffer_print(buffer, " ignoring %lld", (long long)labels->ignore_index);
    if (labels->kind == SKY_LABELS_NUMBERS) buffer_print(buffer, " numbers");
    if (labels->kind == SKY_LABELS_PROBABILITIES) buffer_print(buffer, " probabilities");
    if (labels->weights) buffer_print(buffer, " weighted %%%u", labels->weights);
    buffer_print(buffer, "%s\n", labels->shifted ? " shifted" : "");
}

static void print_ends(const Graph *graph, Buffer *buffer)
{
    for (size_t i = 0; i < graph->output_count; i++) {
        buffer_print(buffer, "output ");
        print_value(graph, graph->outputs[i].value, buffer);
        buffer_print(buffer, "  # ");
        print_name(graph->outputs[i].name, "", buffer);
        buffer_print(buffer, "\n");
    }
    for (int i = 0; i < graph->label_count; i++) print_labels(&graph->labels[i], buffer);
    if (graph->loss) {
        buffer_print(buffer, "loss ");
        print_value(graph, graph->loss, buffer);
        buffer_print(buffer, "%s%s\n", graph->loss_is_summed ? " summed" : "", graph->whole_batches ? " whole" : "");
    }
    for (ValueId p = 1; p < graph->gradient_count; p++)
        if (graph->gradients[p]) buffer_print(buffer, "gradient %%%u of %%%u\n", graph->gradients[p], p);
}

void graph_print(const Graph *graph, Buffer *buffer)
{
    static const char *const phase_names[] = {"forward", "backward", "update"};
    for (int l = 0; l < graph->layer_count && graph->layer_names; l++) {
        buffer_print(buffer, "layer ");
        print_name(graph->layer_names[l], " :", buffer);
        buffer_print(buffer, "\n");
    }
    print_sources(graph, buffer);
    int phase = -1;
    for (NodeId n = 1; n < graph->node_count; n++) {
        const Node *node = graph_node(graph, n);
        if (node->op == OP_NONE) continue;
        if ((int)node->phase != phase) buffer_print(buffer, "%s:\n", phase_names[phase = (int)node->phase]);
        buffer_print(buffer, "  ");
        print_node(graph, node, buffer);
    }
    print_ends(graph, buffer);
}
