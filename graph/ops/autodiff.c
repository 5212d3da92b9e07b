#include "graph/ops/autodiff.h"

#include <stdlib.h>

#include "graph/ops/add_node.h"
#include "graph/ops/operator.h"

/* Nodes are made for this one from now on, and in its layer. */
static void begin_node(Differentiation *d, NodeId id)
{
    const Node *node = graph_node(d->graph, id);
    d->b->origin.name = node->name;
    d->b->origin.differentiates = id;
    d->b->origin.layer = node->layer;
}

bool gradient_wanted(const Differentiation *d, ValueId value)
{
    return value && value < d->forward_values && d->wanted[value];
}

ValueId gradient_of(const Differentiation *d, ValueId value)
{
    return value < d->forward_values ? d->gradient[value] : 0;
}

ValueId gradient_unbroadcast(Differentiation *d, ValueId contribution, const Shape *shape)
{
    Shape from = graph_value(d->graph, contribution)->shape;
    if (shape_equal(&from, shape)) return contribution;
    int64_t axes[MAX_RANK];
    int count = 0, lead = from.rank - shape->rank;
    for (int i = 0; i < from.rank; i++)
        if (i < lead || (shape->dim[i - lead] == 1 && from.dim[i] != 1)) axes[count++] = i;
    if (count > 0)
        contribution =
            build_node(d->b, OP_ReduceSum, &contribution, 1,
                       (Attribute[]){attribute_integers("axes", axes, count), attribute_integer("keepdims", 1)}, 2);
    return build_reshape(d->b, contribution, shape);
}

void gradient_add(Differentiation *d, ValueId value, ValueId contribution)
{
    if (!gradient_wanted(d, value)) return;
    Shape shape = graph_value(d->graph, value)->shape;
    contribution = gradient_unbroadcast(d, contribution, &shape);
    Value *made = graph_value(d->graph, contribution);
    const Value *of = graph_value(d->graph, value);
    if (!made->line_axis) made->line_axis = of->line_axis;
    if (made->line_axis == of->line_axis) made->by_token |= of->by_token;
    ValueId *gradient = &d->gradient[value];
    *gradient = *gradient ? build_binary(d->b, OP_Add, *gradient, contribution) : contribution;
}

/* All contributions to `parameter` are in: add their sum into its accumulated gradient. */
static void accumulate(Differentiation *d, ValueId parameter)
{
    Graph *graph = d->graph;
    ValueId sum = d->gradient[parameter];
    if (!sum) return;
    const Node *maker = graph_producer(graph, sum);
    bool in_place = operator_has(maker->op, HAS_MEMORY) && node_integer(maker, "accumulate", 0);
    ValueId accumulated = in_place ? sum : build_node(d->b, OP_AccumulateGradient, &sum, 1, NULL, 0);
    Value *value = graph_value(graph, accumulated);
    /* Its parts are one a line (updates.c). */
    if (!in_place)
        graph_value(graph, graph_node(graph, value->producer)->outputs[1])->line_axis = graph->packing.lines > 1;
    value->parameter = parameter;
    value->name = arena_format(&graph->arena, "grad/%s", graph_value(graph, parameter)->name);
    graph->gradients[parameter] = accumulated;
}

/* What depends on a parameter, and how many of those uses lie on the way to the loss. */
static void find_wanted(Differentiation *d)
{
    Graph *graph = d->graph;
    for (ValueId v = 1; v < d->forward_values; v++)
        d->wanted[v] = graph_value(graph, v)->role == ROLE_PARAMETER && !graph_value(graph, v)->frozen &&
                       dtype_is_float(graph_value(graph, v)->dtype);
    for (NodeId n = 1; n < graph->node_count; n++) {
        const Node *node = graph_node(graph, n);
        if (node->op == OP_NONE) continue;
        bool wanted = false;
        for (int i = 0; i < node->input_count; i++) wanted |= d->wanted[node->inputs[i]];
        for (int i = 0; i < node->output_count; i++)
            d->wanted[node->outputs[i]] = wanted && dtype_is_float(graph_value(graph, node->outputs[i])->dtype);
        if (wanted)
            for (int i = 0; i < node->input_count; i++) d->pending[node->inputs[i]]++;
    }
}

static bool differentiate_node(Differentiation *d, NodeId id)
{
    Graph *graph = d->graph;
    const Node node = *graph_node(graph, id); /* a copy: the array moves while nodes are appended */
    bool reached = false, wanted = false;
    for (int i = 0; i < node.output_count; i++) reached |= d->gradient[node.outputs[i]] != 0;
    for (int i = 0; i < node.input_count; i++) wanted |= d->wanted[node.inputs[i]];
    if (!wanted) return true;

    bool ok = true;
    begin_node(d, id);
    if (reached && !operators[node.op].gradient(d, &node)) {
        char text[512];
        ok = diagnostics_error(d->diagnostics, EXIT_UNSUPPORTED_OPERATOR, node_place(graph, &node, text),
                               "it stands between a parameter and the loss", "has no gradient");
    }
    for (int i = 0; i < node.input_count; i++) {
        ValueId input = node.inputs[i];
        if (input && --d->pending[input] == 0 && graph_value(graph, input)->role == ROLE_PARAMETER)
            accumulate(d, input);
    }
    return ok;
}

/* Where one use of a shared parameter has a gradient, all have: those that the loss does not depend on have zeros, so
 * that every holder updates its copy alike. */
static void complete_shared(Differentiation *d)
{
    Graph *graph = d->graph;
    FREED bool *trained = memory_allocate(d->forward_values);
    for (ValueId v = 1; v < d->forward_values; v++)
        if (graph->gradients[v]) trained[shared_parameter(graph, v)] = true;
    for (NodeId n = 1; n < graph->node_count; n++)
        for (int i = 0; graph_node(graph, n)->phase == PHASE_FORWARD && i < graph_node(graph, n)->input_count; i++) {
            ValueId v = graph_node(graph, n)->inputs[i];
            if (graph_node(graph, n)->op == OP_NONE || v >= d->forward_values || graph->gradients[v] ||
                graph_value(graph, v)->role != ROLE_PARAMETER || !trained[shared_parameter(graph, v)])
                continue;
            const Shape shape = graph_value(graph, v)->shape;
            ValueId zero = graph_constant_scalar(d->graph, graph_value(graph, v)->dtype, 0);
            begin_node(d, n);
            d->gradient[v] = build_expand(d->b, zero, &shape);
            accumulate(d, v);
        }
}

bool differentiate(Graph *graph, Diagnostics *diagnostics)
{
    size_t values = graph->value_count, nodes = graph->node_count;
    Builder b = {.graph = graph, .origin = {.phase = PHASE_BACKWARD}};
    Differentiation d = {.graph = graph,
                         .b = &b,
                         .diagnostics = diagnostics,
                         .gradient = memory_allocate(values * sizeof(ValueId)),
                         .wanted = memory_allocate(values * sizeof(bool)),
                         .pending = memory_allocate(values * sizeof(int)),
                         .forward_values = values};
    graph->gradients = arena_new_array(&graph->arena, ValueId, values);
    graph->gradient_count = values;
    find_wanted(&d);

    bool ok = true;
    if (!d.wanted[graph->loss]) {
        ok = input_error(diagnostics, graph->file, "the model must hold its weights as float initializers",
                         "the loss depends on no parameter, so there is nothing to train");
    } else {
        d.gradient[graph->loss] = graph_constant_scalar(graph, graph_value(graph, graph->loss)->dtype, 1.0);
        for (NodeId n = (NodeId)nodes - 1; n > 0; n--)
            if (graph_node(graph, n)->op != OP_NONE) ok &= differentiate_node(&d, n);
        complete_shared(&d);
    }
    free(d.gradient);
    free(d.wanted);
    free(d.pending);
    return ok;
}
