#include "graph/loss.h"

#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "graph/operator.h"

static ValueId find_output(const Graph *graph, const char *name)
{
    for (size_t i = 0; i < graph->output_count; i++)
        if (strcmp(graph->outputs[i].name, name) == 0) return graph->outputs[i].value;
    return 0;
}

static bool is_scalar_float(const Graph *graph, ValueId id)
{
    const Value *value = graph_value(graph, id);
    return id && dtype_is_float(value->dtype) && shape_elements(&value->shape) == 1;
}

static bool report(Graph *graph, Diagnostics *diagnostics, const char *what)
{
    Buffer hint = {0};
    buffer_print(&hint, "give --loss cross-entropy:OUTPUT:LABELS or output:NAME, several joined by +; the outputs are");
    for (size_t i = 0; i < graph->output_count; i++) {
        const Value *value = graph_value(graph, graph->outputs[i].value);
        char shape[256];
        buffer_print(&hint, " %s %s%s", graph->outputs[i].name, dtype_name(value->dtype),
                     shape_format(&value->shape, shape));
    }
    diagnostics_error(diagnostics, EXIT_BAD_INPUT, PLACE_FILE(graph->file), buffer_text(&hint), "%s", what);
    buffer_free(&hint);
    return false;
}

/* The output that holds the logits when the user did not say. */
static ValueId default_logits(const Graph *graph)
{
    ValueId logits = find_output(graph, "logits"), only = 0;
    if (logits) return logits;
    int count = 0;
    for (size_t i = 0; i < graph->output_count; i++) {
        ValueId output = graph->outputs[i].value;
        if (dtype_is_float(graph_value(graph, output)->dtype) && !is_scalar_float(graph, output))
            only = output, count++;
    }
    return count == 1 ? only : 0;
}

static ValueId append(Graph *graph, Opcode op, const ValueId *inputs, int count, const Attribute *attributes,
                      int attribute_count, Diagnostics *diagnostics)
{
    NodeOrigin origin = {"loss", PHASE_FORWARD, 0, LAYER_NONE};
    ValueId output = 0;
    graph_add_node(graph, op, origin, inputs, count, attributes, attribute_count, &output, 1, diagnostics);
    return output;
}

static ValueId cross_entropy(Graph *graph, const char *output, const char *labels_name, Diagnostics *diagnostics)
{
    ValueId logits = *output ? find_output(graph, output) : default_logits(graph);
    if (!logits) {
        report(graph, diagnostics,
               *output ? "the loss names an output that does not exist" : "which output holds the logits?");
        return 0;
    }
    Shape shape = graph_value(graph, logits)->shape;
    if (shape.rank < 2 || !dtype_is_float(graph_value(graph, logits)->dtype)) {
        report(graph, diagnostics, "cross-entropy needs a float output of shape [..., classes]");
        return 0;
    }
    Shape label_shape = shape;
    label_shape.rank--;
    ValueId labels = 0;
    for (size_t i = 0; i < graph->input_count; i++)
        if (strcmp(graph_value(graph, graph->inputs[i])->name, labels_name) == 0) labels = graph->inputs[i];
    if (!labels) labels = graph_add_input(graph, labels_name, DTYPE_I64, &label_shape);
    if (!shape_equal(&graph_value(graph, labels)->shape, &label_shape)) {
        report(graph, diagnostics,
               "the labels input does not have the shape of the logits without their last dimension");
        return 0;
    }
    enum { IGNORED = -100 };
    int number = graph_label_number(graph, labels, IGNORED);
    if (number < 0) {
        report(graph, diagnostics,
               "there are more label inputs than are supported, or one is read with another ignore index");
        return 0;
    }
    int64_t classes = shape.dim[shape.rank - 1], rows = shape_elements(&label_shape);
    Attribute flat = attribute_integers("shape", (int64_t[]){rows, classes}, 2);
    Attribute flat_rows = attribute_integers("shape", &rows, 1);
    if (shape.rank > 2) {
        logits = append(graph, OP_Reshape, &logits, 1, &flat, 1, diagnostics);
        labels = append(graph, OP_Reshape, &labels, 1, &flat_rows, 1, diagnostics);
    }
    Attribute attributes[] = {attribute_integer("ignore_index", IGNORED), attribute_integer("labels", number)};
    return append(graph, OP_CrossEntropy, (ValueId[]){logits, labels, graph_step_scalars(graph)}, 3, attributes, 2,
                  diagnostics);
}

/* Whether `value` is computed from a cross-entropy. */
static bool has_cross_entropy_behind(const Graph *graph, ValueId value)
{
    bool *above = memory_allocate(graph->value_count), found = false;
    above[value] = true;
    for (NodeId n = (NodeId)graph->node_count - 1; n > 0 && !found; n--) {
        const Node *node = graph_node(graph, n);
        bool reached = false;
        for (int i = 0; node->op != OP_NONE && i < node->output_count; i++) reached |= above[node->outputs[i]];
        found = reached && node->op == OP_CrossEntropy;
        for (int i = 0; reached && i < node->input_count; i++) above[node->inputs[i]] = true;
    }
    free(above);
    return found;
}

static ValueId model_loss(Graph *graph, const char *name, Diagnostics *diagnostics)
{
    ValueId value = find_output(graph, name);
    if (!is_scalar_float(graph, value)) {
        report(graph, diagnostics,
               value ? "the loss is not a float scalar" : "the loss names an output that does not exist");
        return 0;
    }
    if (graph_value(graph, value)->shape.rank > 0) {
        Attribute scalar = attribute_integers("shape", NULL, 0);
        value = append(graph, OP_Reshape, &value, 1, &scalar, 1, diagnostics);
    }
    /* The importer has turned a SoftmaxCrossEntropyLoss into an operator that applies the scale itself, also where the
     * loss is computed on from there. */
    if (has_cross_entropy_behind(graph, value)) return value;
    graph->loss_is_summed = false;
    return append(graph, OP_ScaleLoss, (ValueId[]){value, graph_step_scalars(graph)}, 2, NULL, 0, diagnostics);
}

bool loss_attach(Graph *graph, const char *spec, Diagnostics *diagnostics)
{
    if (!spec || !*spec) spec = is_scalar_float(graph, find_output(graph, "loss")) ? "output:loss" : "cross-entropy";
    char *text = arena_string(&graph->arena, spec), *rest = text;
    ValueId total = 0;
    graph->loss_is_summed = true; /* unless a term is not */
    for (char *term; (term = strsep(&rest, "+"));) {
        char *kind = strsep(&term, ":"), *output = strsep(&term, ":"), *labels = term;
        ValueId loss = 0;
        if (strcmp(kind, "cross-entropy") == 0)
            loss = cross_entropy(graph, output ? output : "", labels ? labels : "labels", diagnostics);
        else if (strcmp(kind, "output") == 0 && output && !labels)
            loss = model_loss(graph, output, diagnostics);
        else
            return diagnostics_error(diagnostics, EXIT_USAGE, PLACE_NONE,
                                     "write cross-entropy[:OUTPUT[:LABELS]] or output:NAME, joined by +",
                                     "malformed loss '%s'", spec);
        if (!loss) return false;
        total = total ? append(graph, OP_Add, (ValueId[]){total, loss}, 2, NULL, 0, diagnostics) : loss;
    }
    graph->loss = total;
    return total != 0;
}
