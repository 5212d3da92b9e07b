/* Softmax and its logarithm along the last axis; the row's maximum is subtracted first, so that nothing overflows.
 * The softmax of a row of -infinity is 0, as in PyTorch's attention: there are keys, and all of them are masked. */
#include <float.h>

#include "graph/ops/add_node.h"
#include "graph/ops/lower.h"
#include "graph/ops/masked.h"
#include "graph/ops/operator.h"

bool infer_rows(InferContext *context)
{
    int inputs = context->node->input_count;
    if (!infer_float_inputs(context, inputs)) return false;
    if (infer_input(context, 0)->shape.rank == 0) return operator_error(context, NULL, "the input is a scalar");
    if (inputs == 2 && !shape_equal(&infer_input(context, 0)->shape, &infer_input(context, 1)->shape))
        return operator_error(context, NULL, "the gradient has another shape than the result");
    return infer_same(context);
}

bool axes_rows(const Graph *graph, const Node *node, int output, int axis, int *axes)
{
    for (int i = 0; i < node->input_count; i++) axes[i] = axis;
    return axis != graph_value(graph, node->outputs[output])->shape.rank - 1;
}

bool differentiate_rows(Differentiation *d, const Node *node)
{
    if (!gradient_wanted(d, node->inputs[0])) return true;
    Opcode gradient = node->op == OP_Softmax ? OP_SoftmaxGradient : OP_LogSoftmaxGradient;
    ValueId y = node->outputs[0], dy = gradient_of(d, y);
    gradient_add(d, node->inputs[0], build_binary(d->b, gradient, y, dy));
    return true;
}

/* The operands of a kernel over the rows of tensors of one shape. */
typedef struct Rows {
    Kernel *kernel;
    int input[2], output;
} Rows;

static Rows begin_rows(Lowering *lowering, const Node *node)
{
    View output = lower_output(lowering, node->outputs[0]);
    Rows rows = {.kernel = lower_begin_over(lowering, opcodes[node->op].name, &output.shape)};
    for (int i = 0; i < node->input_count; i++) {
        View view = lower_view(lowering, node->inputs[i]);
        rows.input[i] = lower_operand_broadcast(lowering, &view);
    }
    rows.output = lower_operand_broadcast(lowering, &output);
    return rows;
}

/* A phase that finds the maximum, at least the least number, so that a row without any (all -infinity, as a query has
 * whose keys are all masked) has powers of 0; and the beginning of a second one, where exp(x - maximum) is known. */
static Register begin_exponentials(const Rows *rows, Register *maximum)
{
    Kernel *kernel = rows->kernel;
    *maximum = kernel_reduce(kernel, KERNEL_MAXIMUM_OF, kernel_load(kernel, rows->input[0]));
    kernel_begin_phase(kernel, false);
    DType type = (DType)kernel->instructions[*maximum - 1].type;
    Register least = kernel_constant(kernel, type, type == DTYPE_F64 ? -DBL_MAX : -(double)FLT_MAX);
    *maximum = kernel_binary(kernel, KERNEL_MAXIMUM, *maximum, least);
    kernel_begin_phase(kernel, true);
    Register x = kernel_load(kernel, rows->input[0]);
    return kernel_unary(kernel, KERNEL_EXP, kernel_subtract(kernel, x, *maximum));
}

void lower_softmax(Lowering *lowering, const Node *node)
{
    Rows rows = begin_rows(lowering, node);
    Register maximum, power = begin_exponentials(&rows, &maximum);
    rows.kernel->operands[rows.output].often_zero = value_is_often_zero(lowering->graph, node->outputs[0]);
    kernel_store(rows.kernel, rows.output, power);
    Register sum = kernel_reduce(rows.kernel, KERNEL_SUM, power);
    kernel_begin_phase(rows.kernel, false);
    DType type = (DType)rows.kernel->instructions[sum - 1].type;
    sum = kernel_binary(rows.kernel, KERNEL_MAXIMUM, sum, kernel_constant(rows.kernel, type, FLT_MIN)); /* 1 or more */
    Register share = kernel_unary(rows.kernel, KERNEL_RECIPROCAL, sum);
    kernel_begin_phase(rows.kernel, true);
    Register stored = kernel_load(rows.kernel, rows.output);
    kernel_store(rows.kernel, rows.output, kernel_multiply(rows.kernel, stored, share));
    lower_end(lowering);
}

/* dx = y * (dy - sum(y * dy)), and since y adds up to 1, any number may be taken from every dy first. Taking the row's
 * first one keeps what sets its elements apart, which is all that counts and may be far smaller than they are. */
void lower_softmax_gradient(Lowering *lowering, const Node *node)
{
    Rows rows = begin_rows(lowering, node);
    View first = lower_view(lowering, node->inputs[1]);
    first.shape.dim[first.shape.rank - 1] = 1;
    kernel_begin_phase(rows.kernel, false);
    Register origin = kernel_load(rows.kernel, lower_operand_broadcast(lowering, &first));
    kernel_begin_phase(rows.kernel, true);
    Register y = kernel_load(rows.kernel, rows.input[0]), dy = kernel_load(rows.kernel, rows.input[1]);
    Register slope = kernel_subtract(rows.kernel, dy, origin);
    Register sum = kernel_reduce(rows.kernel, KERNEL_SUM, kernel_multiply(rows.kernel, y, slope));
    kernel_begin_phase(rows.kernel, true);
    y = kernel_load(rows.kernel, rows.input[0]);
    dy = kernel_load(rows.kernel, rows.input[1]);
    slope = kernel_subtract(rows.kernel, dy, origin);
    Register rest = kernel_subtract(rows.kernel, slope, sum);
    kernel_store(rows.kernel, rows.output, kernel_multiply(rows.kernel, y, rest));
    lower_end(lowering);
}

void lower_log_softmax(Lowering *lowering, const Node *node)
{
    Rows rows = begin_rows(lowering, node);
    Register maximum, power = begin_exponentials(&rows, &maximum);
    Register sum = kernel_reduce(rows.kernel, KERNEL_SUM, power);
    kernel_begin_phase(rows.kernel, false);
    Register logarithm = kernel_unary(rows.kernel, KERNEL_LOG, sum);
    kernel_begin_phase(rows.kernel, true);
    /* In this order: maximum + logarithm is rounded to the maximum where that is large. */
    Register shifted = kernel_load(rows.kernel, rows.input[0]);
    shifted = kernel_subtract(rows.kernel, shifted, maximum);
    kernel_store(rows.kernel, rows.output, kernel_subtract(rows.kernel, shifted, logarithm));
    lower_end(lowering);
}

/* dx = dy - exp(y) * sum(dy) */
void lower_log_softmax_gradient(Lowering *lowering, const Node *node)
{
    Rows rows = begin_rows(lowering, node);
    Register sum = kernel_reduce(rows.kernel, KERNEL_SUM, kernel_load(rows.kernel, rows.input[1]));
    kernel_begin_phase(rows.kernel, true);
    Register y = kernel_unary(rows.kernel, KERNEL_EXP, kernel_load(rows.kernel, rows.input[0]));
    Register part = kernel_multiply(rows.kernel, y, sum);
    Register dy = kernel_load(rows.kernel, rows.input[1]);
    kernel_store(rows.kernel, rows.output, kernel_subtract(rows.kernel, dy, part));
    lower_end(lowering);
}
