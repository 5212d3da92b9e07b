/* x / (1 + |x|). CONTRIBUTING.md walks through this file as the example of a new operator. */
#include "graph/ops/add_node.h"
#include "graph/ops/lower.h"
#include "graph/ops/operator.h"

/* 1 / (1 + |x|)^2 */
bool differentiate_softsign(Differentiation *d, const Node *node)
{
    ValueId x = node->inputs[0], dy = gradient_of(d, node->outputs[0]);
    if (!gradient_wanted(d, x)) return true;
    ValueId one = graph_constant_scalar(d->graph, graph_value(d->graph, x)->dtype, 1);
    ValueId magnitude = build_unary(d->b, OP_Abs, x);
    ValueId divisor = build_binary(d->b, OP_Add, magnitude, one);
    ValueId once = build_binary(d->b, OP_Div, dy, divisor);
    gradient_add(d, x, build_binary(d->b, OP_Div, once, divisor));
    return true;
}

void lower_softsign(Lowering *lowering, const Node *node)
{
    Kernel *kernel = lower_begin_map(lowering, node);
    Register x = lower_load_input(lowering, node, 0), one = kernel_constant_like(kernel, x, 1);
    Register divisor = kernel_add(kernel, kernel_unary(kernel, KERNEL_ABSOLUTE, x), one);
    lower_end_map(lowering, node, kernel_binary(kernel, KERNEL_DIVIDE, x, divisor));
}
