/* Binary cross-entropy of logits x and probabilities y, element by element: -y log(s) - (1 - y) log(1 - s) with the
 * sigmoid s of x, in the form |x| w + log(1 + exp(-|x|)), where w is 1 - y of positive x and y of others: it overflows
 * nowhere, and nothing large is taken from something as large. */
#include "graph/ops/add_node.h"
#include "graph/ops/lower.h"
#include "graph/ops/operator.h"

bool infer_binary_cross_entropy(InferContext *context)
{
    if (!infer_float_inputs(context, 2)) return false;
    if (!shape_equal(&infer_input(context, 0)->shape, &infer_input(context, 1)->shape))
        return operator_error(context, NULL, "there must be one probability for each logit");
    return infer_same(context);
}

/* sigmoid(x) - y, and -x. */
bool differentiate_binary_cross_entropy(Differentiation *d, const Node *node)
{
    ValueId x = node->inputs[0], y = node->inputs[1], dy = gradient_of(d, node->outputs[0]);
    if (gradient_wanted(d, x)) {
        ValueId probability = build_unary(d->b, OP_Sigmoid, x);
        ValueId slope = build_binary(d->b, OP_Sub, probability, y);
        gradient_add(d, x, build_binary(d->b, OP_Mul, dy, slope));
    }
    if (gradient_wanted(d, y)) {
        ValueId slope = build_unary(d->b, OP_Neg, x);
        gradient_add(d, y, build_binary(d->b, OP_Mul, dy, slope));
    }
    return true;
}

/* log(1 + z) of z in 0 ... 1, exact where 1 + z is not: the error of that sum is the same in numerator and denominator
 * of log(u) / (u - 1) (W. Kahan, as in the HP-15C's handbook). */
static Register log_of_one_and(Kernel *kernel, Register z, DType type)
{
    Register one = kernel_constant(kernel, type, 1);
    Register sum = kernel_add(kernel, z, one);
    Register added = kernel_subtract(kernel, sum, one);
    Register nothing = kernel_binary(kernel, KERNEL_EQUAL, added, kernel_constant(kernel, type, 0));
    Register quotient = kernel_binary(kernel, KERNEL_DIVIDE, z, kernel_select(kernel, nothing, one, added));
    Register logarithm = kernel_unary(kernel, KERNEL_LOG, sum);
    return kernel_select(kernel, nothing, z, kernel_multiply(kernel, logarithm, quotient));
}

void lower_binary_cross_entropy(Lowering *lowering, const Node *node)
{
    Kernel *kernel = lower_begin_map(lowering, node);
    Register x = lower_load_input(lowering, node, 0), y = lower_load_input(lowering, node, 1);
    DType type = kernel_type(kernel, x);
    Register positive = kernel_binary(kernel, KERNEL_LESS, kernel_constant(kernel, type, 0), x);
    Register magnitude = kernel_unary(kernel, KERNEL_ABSOLUTE, x);
    Register decay = kernel_unary(kernel, KERNEL_EXP, kernel_unary(kernel, KERNEL_NEGATE, magnitude));
    Register other = kernel_subtract(kernel, kernel_constant(kernel, type, 1), y);
    Register wrong = kernel_select(kernel, positive, other, y);
    Register linear = kernel_multiply(kernel, magnitude, wrong);
    Register value = kernel_add(kernel, linear, log_of_one_and(kernel, decay, type));
    lower_end_map(lowering, node, value);
}
