#include "graph/analysis/parameters.h"

#include <stdlib.h>

#include "graph/ops/operator.h"

ValueId parameter_behind(const Graph *graph, ValueId value)
{
    while (graph_value(graph, value)->producer) {
        const Node *node = graph_producer(graph, value);
        if (!operator_has(node->op, IS_MOVEMENT)) return 0;
        value = node->inputs[0];
    }
    return graph_value(graph, value)->role == ROLE_PARAMETER ? value : 0;
}

ValueId *parameters_behind(const Graph *graph)
{
    ValueId *parameters = memory_allocate(graph->value_count * sizeof *parameters);
    for (ValueId v = 0; v < graph->value_count; v++)
        if (graph_value(graph, v)->role == ROLE_PARAMETER) parameters[v] = v;
    for (NodeId n = 1; n < graph->node_count; n++) {
        const Node *node = graph_node(graph, n);
        for (int i = 0; node->op != OP_NONE && i < node->output_count; i++)
            parameters[node->outputs[i]] = operator_has(node->op, IS_MOVEMENT) ? parameters[node->inputs[0]] : 0;
    }
    return parameters;
}

/* Whether the factor of a product, a matrix that shows nothing but a parameter, holds its elements in their order or
 * transposed; false if neither. */
static bool factor_order(const Graph *graph, ValueId factor, bool *transposed)
{
    int64_t elements = shape_elements(&graph_value(graph, factor)->shape);
    *transposed = false;
    for (const Node *node; (node = graph_producer(graph, factor))->op != OP_NONE; factor = node->inputs[0]) {
        const Shape *from = &graph_value(graph, node->inputs[0])->shape;
        int axes[1];
        if (!operator_has(node->op, IS_MOVEMENT) || shape_elements(from) != elements) return false;
        if (!operator_has(node->op, REORDERS)) continue;
        if (from->rank != 2 || !axes_of_inputs(graph, node, 0, axes)) return false;
        *transposed ^= axes[0] == 1;
    }
    return true;
}

static void use_in_product(const Graph *graph, const Node *node, ProductWeight *weight)
{
    const Shape *factor = &graph_value(graph, node->inputs[1])->shape;
    bool transposed = false;
    weight->in_product = true;
    if (parameter_behind(graph, node->inputs[0])) weight->problem = "is multiplied with other weights";
    if (factor->rank != 2 || !factor_order(graph, node->inputs[1], &transposed))
        weight->problem = "is a factor of products in parts";
    else if (weight->in && (transposed != weight->transposed || factor->dim[0] != weight->in))
        weight->problem = "is a factor of products once as it is and once transposed";
    if (weight->problem) return;
    weight->in = factor->dim[0];
    weight->out = factor->dim[1];
    weight->transposed = transposed;
}

/* Input `i` of the node shows the weight. */
static void use(const Graph *graph, NodeId number, int i, ProductWeight *weight)
{
    const Node *node = graph_node(graph, number);
    const char *known = weight->problem;
    if (operator_has(node->op, IS_PRODUCT) && i == 1)
        use_in_product(graph, node, weight);
    else
        weight->problem = operator_has(node->op, IS_LOOKUP) ? "is also a table that rows are looked up in"
                                                            : "is used otherwise than as the right factor of products";
    if (weight->problem && !known) weight->node = number;
}

ProductWeight *product_weights(const Graph *graph)
{
    ProductWeight *weights = memory_allocate(graph->value_count * sizeof *weights);
    FREED ValueId *parameters = parameters_behind(graph);
    for (NodeId n = 1; n < graph->node_count; n++) {
        const Node *node = graph_node(graph, n);
        if (node->op == OP_NONE || operator_has(node->op, IS_MOVEMENT)) continue;
        for (int i = 0; i < node->input_count; i++) {
            ValueId parameter = parameters[node->inputs[i]];
            if (parameter) use(graph, n, i, &weights[parameter]);
        }
    }
    for (ValueId v = 0; v < graph->value_count; v++)
        if (weights[v].problem) weights[v].in = weights[v].out = 0;
    return weights;
}

/* The weights whose product `value` is, perhaps with a bias added; 0 if it is something else. */
static ValueId weights_of_product(const Graph *graph, ValueId value)
{
    for (;;) {
        /* Of what no node makes: node 0, which has no operator. */
        const Node *node = graph_producer(graph, value);
        if (operator_has(node->op, IS_PRODUCT)) return parameter_behind(graph, node->inputs[1]);
        if (operator_has(node->op, IS_MOVEMENT))
            value = node->inputs[0];
        else if (operator_has(node->op, IS_SUM))
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
        ValueId table = operator_has(node->op, IS_LOOKUP) ? parameter_behind(graph, node->inputs[0]) : 0;
        const Shape *shape = &graph_value(graph, table)->shape;
        for (size_t i = 0; table && shape->rank == 2 && shape->dim[0] >= LEAST_ROWS && i < graph->output_count; i++) {
            const Shape *output = &graph_value(graph, graph->outputs[i].value)->shape;
            ValueId weights = weights_of_product(graph, graph->outputs[i].value);
            if (!weights || weights == table || output->rank < 3 || output->dim[output->rank - 1] != shape->dim[0])
                continue;
            diagnostics_warning(
                diagnostics, PLACE_FILE(graph->file), "if both are meant to be one, export the model with them equal",
                "the output '%s' is decoded with '%s', which is trained apart from the embeddings '%s'",
                graph->outputs[i].name, graph_value(graph, weights)->name, graph_value(graph, table)->name);
        }
    }
}
