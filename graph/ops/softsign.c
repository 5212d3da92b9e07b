/* x / (1 + |x|). CONTRIBUTING.md walks through this file as the example of a new operator. */
#include "graph/ops/lower.h"
#include "graph/ops/operator.h"

bool infer_softsign(InferContext *context) { return infer_float_inputs(context, 1) && infer_same(context); }

/* 1 / (1 + |x|)^2 */
bool differentiate_softsign(Differentiation *differentiation, NodeId id)
{
    Node node = *graph_node(differentiation_graph(differentiation), id);
    ValueId x = node.inputs[0], dy = gradient_of(differentiation, node.outputs[0]);
    if (!gradient_wanted(differentiation, x)) return true;
    ValueId one = gradient_scalar(differentiation, graph_value(differentiation_graph(differentiation), x)->dtype, 1);
    ValueId magnitude = gradient_unary(differentiation, OP_Abs, x);
    ValueId divisor = gradient_binary(differentiation, OP_Add, magnitude, one);
    ValueId once = gradient_binary(differentiation, OP_Div, dy, divisor);
    gradient_add(differentiation, x, gradient_binary(differentiation, OP_Div, once, divisor));
    return true;
}

void lower_softsign(Lowering *lowering, NodeId id)
{
    const Node *node = graph_node(lowering->graph, id);
    View input = lower_view(lowering, node->inputs[0]), output = lower_output(lowering, node->outputs[0]);
    int64_t extent[KERNEL_MAX_AXES];
    Kernel *kernel = lower_begin(lowering, opcodes[node->op].name, lower_axes(&output.shape, extent), extent);
    Register x = lower_load(lowering, &input), one = kernel_constant(kernel, kernel_type(kernel, x), 1);
    Register divisor = kernel_binary(kernel, KERNEL_ADD, kernel_unary(kernel, KERNEL_ABSOLUTE, x), one);
    Register value = kernel_binary(kernel, KERNEL_DIVIDE, x, divisor);
    kernel_store(kernel, lower_operand_broadcast(lowering, &output), value);
    lower_end(lowering);
}
