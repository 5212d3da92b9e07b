/* The Gaussian error linear unit x * P(normal <= x), exact or by the usual tanh approximation (Hendrycks and Gimpel,
 * arXiv 1606.08415). */
#include "graph/ops/add_node.h"
#include "graph/ops/lower.h"
#include "graph/ops/operator.h"

static const double TANH_SCALE = 0.79788456080286535588; /* sqrt(2 / pi) */
static const double TANH_CUBIC = 0.044715;

bool differentiate_gelu(Differentiation *d, const Node *node)
{
    Graph *graph = d->graph;
    ValueId x = node->inputs[0], dy = gradient_of(d, node->outputs[0]), derivative;
    if (!gradient_wanted(d, x)) return true;
    /* Computed in the forward pass, where it shares most of its work with the function and takes the place of x in what
     * is kept for the backward pass. */
    NodeOrigin origin = {.name = node->name, .phase = PHASE_FORWARD, .layer = node->layer};
    Diagnostics diagnostics = {0};
    if (!graph_add_node(graph, OP_GeluDerivative, origin, &x, 1, node->attributes, node->attribute_count, &derivative,
                        1, &diagnostics))
        bug("the derivative of Gelu does not take what Gelu takes");
    gradient_add(d, x, build_binary(d->b, OP_Mul, dy, derivative));
    return true;
}

static Register scale(Kernel *kernel, Register x, double factor)
{
    return kernel_multiply(kernel, x, kernel_constant_like(kernel, x, factor));
}

static Register shift(Kernel *kernel, Register x, double addend)
{
    return kernel_add(kernel, x, kernel_constant_like(kernel, x, addend));
}

/* tanh(sqrt(2 / pi) * (x + 0.044715 x^3)) */
static Register tanh_part(Kernel *kernel, Register x, Register square)
{
    Register factor = shift(kernel, scale(kernel, square, TANH_SCALE * TANH_CUBIC), TANH_SCALE);
    return kernel_unary(kernel, KERNEL_TANH, kernel_multiply(kernel, x, factor));
}

/* The probability that x is multiplied with. */
static Register probability(Kernel *kernel, const Node *node, Register x)
{
    if (!node_integer(node, "tanh", 0)) return kernel_unary(kernel, KERNEL_NORMAL_BELOW, x);
    return shift(kernel, scale(kernel, tanh_part(kernel, x, kernel_multiply(kernel, x, x)), 0.5), 0.5);
}

static Register derivative_at(Kernel *kernel, const Node *node, Register x)
{
    if (!node_integer(node, "tanh", 0)) {
        Register slope = kernel_multiply(kernel, x, kernel_unary(kernel, KERNEL_NORMAL_DENSITY, x));
        return kernel_add(kernel, probability(kernel, node, x), slope);
    }
    Register square = kernel_multiply(kernel, x, x);
    Register t = tanh_part(kernel, x, square);
    Register rest = shift(kernel, kernel_unary(kernel, KERNEL_NEGATE, kernel_multiply(kernel, t, t)), 1);
    Register inner = shift(kernel, scale(kernel, square, 3 * TANH_SCALE * TANH_CUBIC), TANH_SCALE);
    Register slope = scale(kernel, kernel_multiply(kernel, kernel_multiply(kernel, x, rest), inner), 0.5);
    return kernel_add(kernel, shift(kernel, scale(kernel, t, 0.5), 0.5), slope);
}

/* Of the function and of its derivative. */
void lower_gelu(Lowering *lowering, const Node *node)
{
    Kernel *kernel = lower_begin_map(lowering, node);
    Register x = lower_load_input(lowering, node, 0);
    lower_end_map(lowering, node,
                  node->op == OP_Gelu ? kernel_multiply(kernel, probability(kernel, node, x), x)
                                      : derivative_at(kernel, node, x));
}
