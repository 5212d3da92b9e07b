#include "graph/ops/add_node.h"

#include "graph/ops/operator.h"

/* Checks the number of inputs and applies the operator's shape rule to the node, which is not in the graph yet. */
static bool infer(InferContext *context)
{
    const Node *node = context->node;
    const OpcodeForm *form = &opcodes[node->op];
    if (node->input_count < form->least_inputs || (form->most_inputs >= 0 && node->input_count > form->most_inputs))
        return operator_error(context, NULL, "has %d inputs, but %s takes %d%s", node->input_count, form->name,
                              form->least_inputs, form->most_inputs == form->least_inputs ? "" : " or more");
    for (int i = 0; i < node->input_count; i++)
        if (!node->inputs[i] && i < form->least_inputs) return operator_error(context, NULL, "input %d is missing", i);
    if (!operators[node->op].infer(context)) return false;
    for (int i = 0; i < form->outputs; i++)
        if (shape_elements(&context->shape[i]) < 0)
            return operator_error(context, NULL, "output %d has an impossible number of elements", i);
    return true;
}

NodeId graph_add_node(Graph *graph, Opcode op, NodeOrigin origin, const ValueId *inputs, int input_count,
                      const Attribute *attributes, int attribute_count, ValueId *outputs, int output_count,
                      Diagnostics *diagnostics)
{
    const Node node = {.op = op,
                       .phase = origin.phase,
                       .input_count = input_count,
                       .output_count = opcodes[op].outputs,
                       .attribute_count = attribute_count,
                       .inputs = (ValueId *)inputs,
                       .attributes = (Attribute *)attributes,
                       .name = origin.name ? origin.name : "",
                       .differentiates = origin.differentiates,
                       .layer = origin.layer};
    InferContext context = {
        .graph = graph, .node = &node, .made_for = origin.made_for, .hint = origin.hint, .diagnostics = diagnostics};
    if (!infer(&context)) return 0;
    if (output_count > node.output_count)
        bug("%s has %d outputs, not %d", opcodes[op].name, node.output_count, output_count);
    NodeId id = graph_append(graph, &node, context.dtype, context.shape);
    for (int i = 0; i < output_count; i++) outputs[i] = graph_node(graph, id)->outputs[i];
    return id;
}

bool graph_check_types(Graph *graph, Diagnostics *diagnostics)
{
    for (NodeId n = 1; n < graph->node_count; n++) {
        const Node *node = graph_node(graph, n);
        if (node->op == OP_NONE) continue;
        InferContext context = {.graph = graph, .node = node, .diagnostics = diagnostics};
        if (!infer(&context)) return false;
        for (int i = 0; i < node->output_count; i++) {
            const Value *value = graph_value(graph, node->outputs[i]);
            char text[256];
            if (value->dtype != context.dtype[i] || !shape_equal(&value->shape, &context.shape[i]))
                return operator_error(&context, NULL, "output %d is %s%s", i, dtype_name(context.dtype[i]),
                                      shape_format(&context.shape[i], text));
        }
    }
    return true;
}
