#include "graph/ops/autodiff.h"

#include <stdlib.h>
#include <string.h>

#include "graph/ops/add_node.h"
#include "graph/ops/operator.h"

struct Differentiation {
    Graph *graph;
    Diagnostics *diagnostics;
    NodeId node;       /* being differentiated */
    ValueId *gradient; /* per forward value: the sum of the contributions so far */
    bool *wanted;      /* per forward value: depends on a parameter */
    int *pending;      /* per forward value: uses whose contribution is still to come */
    size_t forward_values;
};

Graph *differentiation_graph(Differentiation *differentiation) { return differentiation->graph; }

bool gradient_wanted(const Differentiation *differentiation, ValueId value)
{
    return value && value < differentiation->forward_values && differentiation->wanted[value];
}

ValueId gradient_of(const Differentiation *differentiation, ValueId value)
{
    return value < differentiation->forward_values ? differentiation->gradient[value] : 0;
}

ValueId gradient_node(Differentiation *differentiation, Opcode op, const ValueId *inputs, int input_count,
                      const Attribute *attributes, int attribute_count)
{
    const Node *node = graph_node(differentiation->graph, differentiation->node);
    NodeOrigin origin = {
        .name = node->name, .phase = PHASE_BACKWARD, .differentiates = differentiation->node, .layer = node->layer};
    Builder b = {.graph = differentiation->graph, .origin = origin};
    return build_node(&b, op, inputs, input_count, attributes, attribute_count);
}

ValueId gradient_unary(Differentiation *differentiation, Opcode op, ValueId a)
{
    return gradient_node(differentiation, op, &a, 1, NULL, 0);
}

ValueId gradient_binary(Differentiation *differentiation, Opcode op, ValueId a, ValueId b)
{
    return gradient_node(differentiation, op, (ValueId[]){a, b}, 2, NULL, 0);
}

ValueId gradient_scalar(Differentiation *differentiation, DType dtype, double value)
{
    return graph_constant_scalar(differentiation->graph, dtype, value);
}

ValueId gradient_reshape(Differentiation *differentiation, ValueId a, const Shape *shape)
{
    if (shape_equal(&graph_value(differentiation->graph, a)->shape, shape)) return a;
    Attribute attribute = attribute_integers("shape", shape->dim, shape->rank);
    return gradient_node(differentiation, OP_Reshape, &a, 1, &attribute, 1);
}

ValueId gradient_transpose(Differentiation *differentiation, ValueId a, const int64_t *perm)
{
    Attribute attribute = attribute_integers("perm", perm, graph_value(differentiation->graph, a)->shape.rank);
    return gradient_node(differentiation, OP_Transpose, &a, 1, &attribute, 1);
}

ValueId gradient_unbroadcast(Differentiation *differentiation, ValueId contribution, const Shape *shape)
{
    Shape from = graph_value(differentiation->graph, contribution)->shape;
    if (shape_equal(&from, shape)) return contribution;
    int64_t axes[MAX_RANK];
    int count = 0, lead = from.rank - shape->rank;
    for (int i = 0; i < from.rank; i++)
        if (i < lead || (shape->dim[i - lead] == 1 && from.dim[i] != 1)) axes[count++] = i;
    if (count > 0)
        contribution =
            gradient_node(differentiation, OP_ReduceSum, &contribution, 1,
                          (Attribute[]){attribute_integers("axes", axes, count), attribute_integer("keepdims", 1)}, 2);
    return gradient_reshape(differentiation, contribution, shape);
}

void gradient_add(Differentiation *differentiation, ValueId value, ValueId contribution)
{
    if (!gradient_wanted(differentiation, value)) return;
    Shape shape = graph_value(differentiation->graph, value)->shape;
    contribution = gradient_unbroadcast(differentiation, contribution, &shape);
    Value *made = graph_value(differentiation->graph, contribution);
    if (!made->line_axis) made->line_axis = graph_value(differentiation->graph, value)->line_axis;
    ValueId *gradient = &differentiation->gradient[value];
    *gradient = *gradient ? gradient_binary(differentiation, OP_Add, *gradient, contribution) : contribution;
}

/* All contributions to `parameter` are in: add their sum into its accumulated gradient. */
static void accumulate(Differentiation *differentiation, ValueId parameter)
{
    Graph *graph = differentiation->graph;
    ValueId sum = differentiation->gradient[parameter];
    if (!sum) return;
    ValueId accumulated = gradient_node(differentiation, OP_AccumulateGradient, &sum, 1, NULL, 0);
    Value *value = graph_value(graph, accumulated);
    /* Its parts are one a line (updates.c). */
    graph_value(graph, graph_node(graph, value->producer)->outputs[1])->line_axis = graph->packing.lines > 1;
    value->parameter = parameter;
    value->name = arena_format(&graph->arena, "grad/%s", graph_value(graph, parameter)->name);
    graph->gradients[parameter] = accumulated;
}

/* What depends on a parameter, and how many of those uses lie on the way to the loss. */
static void find_wanted(Differentiation *differentiation)
{
    Graph *graph = differentiation->graph;
    for (ValueId v = 1; v < differentiation->forward_values; v++)
        differentiation->wanted[v] = graph_value(graph, v)->role == ROLE_PARAMETER && !graph_value(graph, v)->frozen &&
                                     dtype_is_float(graph_value(graph, v)->dtype);
    for (NodeId n = 1; n < graph->node_count; n++) {
        const Node *node = graph_node(graph, n);
        if (node->op == OP_NONE) continue;
        bool wanted = false;
        for (int i = 0; i < node->input_count; i++) wanted |= differentiation->wanted[node->inputs[i]];
        for (int i = 0; i < node->output_count; i++)
            differentiation->wanted[node->outputs[i]] =
                wanted && dtype_is_float(graph_value(graph, node->outputs[i])->dtype);
        if (wanted)
            for (int i = 0; i < node->input_count; i++) differentiation->pending[node->inputs[i]]++;
    }
}

static bool differentiate_node(Differentiation *differentiation, NodeId id)
{
    Graph *graph = differentiation->graph;
    const Node node = *graph_node(graph, id); /* a copy: the array moves while nodes are appended */
    bool reached = false, wanted = false;
    for (int i = 0; i < node.output_count; i++) reached |= differentiation->gradient[node.outputs[i]] != 0;
    for (int i = 0; i < node.input_count; i++) wanted |= differentiation->wanted[node.inputs[i]];
    if (!wanted) return true;

    bool ok = true;
    differentiation->node = id;
    if (reached && !operators[node.op].gradient(differentiation, &node)) {
        char text[512];
        ok = diagnostics_error(differentiation->diagnostics, EXIT_UNSUPPORTED_OPERATOR, node_place(graph, &node, text),
                               "it stands between a parameter and the loss", "has no gradient");
    }
    for (int i = 0; i < node.input_count; i++) {
        ValueId input = node.inputs[i];
        if (input && --differentiation->pending[input] == 0 && graph_value(graph, input)->role == ROLE_PARAMETER)
            accumulate(differentiation, input);
    }
    return ok;
}

/* Where one use of a shared parameter has a gradient, all have: those that the loss does not depend on have zeros, so
 * that every holder updates its copy alike. */
static void complete_shared(Differentiation *differentiation)
{
    Graph *graph = differentiation->graph;
    bool *trained = memory_allocate(differentiation->forward_values);
    for (ValueId v = 1; v < differentiation->forward_values; v++)
        if (graph->gradients[v]) trained[shared_parameter(graph, v)] = true;
    for (NodeId n = 1; n < graph->node_count; n++)
        for (int i = 0; graph_node(graph, n)->phase == PHASE_FORWARD && i < graph_node(graph, n)->input_count; i++) {
            ValueId v = graph_node(graph, n)->inputs[i];
            if (graph_node(graph, n)->op == OP_NONE || v >= differentiation->forward_values || graph->gradients[v] ||
                graph_value(graph, v)->role != ROLE_PARAMETER || !trained[shared_parameter(graph, v)])
                continue;
            const Shape shape = graph_value(graph, v)->shape;
            ValueId zero = gradient_scalar(differentiation, graph_value(graph, v)->dtype, 0);
            Attribute attribute = attribute_integers("shape", shape.dim, shape.rank);
            differentiation->node = n;
            differentiation->gradient[v] = gradient_node(differentiation, OP_Expand, &zero, 1, &attribute, 1);
            accumulate(differentiation, v);
        }
    free(trained);
}

bool differentiate(Graph *graph, Diagnostics *diagnostics)
{
    size_t values = graph->value_count, nodes = graph->node_count;
    Differentiation differentiation = {.graph = graph,
                                       .diagnostics = diagnostics,
                                       .gradient = memory_allocate(values * sizeof(ValueId)),
                                       .wanted = memory_allocate(values * sizeof(bool)),
                                       .pending = memory_allocate(values * sizeof(int)),
                                       .forward_values = values};
    graph->gradients = arena_new_array(&graph->arena, ValueId, values);
    graph->gradient_count = values;
    find_wanted(&differentiation);

    bool ok = true;
    if (!differentiation.wanted[graph->loss]) {
        ok = input_error(diagnostics, graph->file, "the model must hold its weights as float initializers",
                         "the loss depends on no parameter, so there is nothing to train");
    } else {
        differentiation.gradient[graph->loss] =
            graph_constant_scalar(graph, graph_value(graph, graph->loss)->dtype, 1.0);
        for (NodeId n = (NodeId)nodes - 1; n > 0; n--)
            if (graph_node(graph, n)->op != OP_NONE) ok &= differentiate_node(&differentiation, n);
        complete_shared(&differentiation);
    }
    free(differentiation.gradient);
    free(differentiation.wanted);
    free(differentiation.pending);
    return ok;
}
