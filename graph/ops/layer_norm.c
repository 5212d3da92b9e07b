/* Layer normalisation over the last axis (Ba, Kiros and Hinton, arXiv 1607.06450), with the mean and then the variance
 * in two passes. Mean and inverse deviation are kept for the gradients. */
#include "graph/ops/add_node.h"
#include "graph/ops/lower.h"
#include "graph/ops/operator.h"

static DType statistics_type(DType dtype) { return dtype == DTYPE_F64 ? DTYPE_F64 : DTYPE_F32; }

static Shape statistics_shape(Shape shape)
{
    shape.dim[shape.rank - 1] = 1;
    return shape;
}

static bool is_gain(const InferContext *context, int i, const Shape *shape)
{
    if (i >= context->node->input_count || !context->node->inputs[i]) return true;
    const Shape *gain = &infer_input(context, i)->shape;
    return gain->rank == 1 && gain->dim[0] == shape->dim[shape->rank - 1];
}

/* Of the normalisation and its gradient: all inputs but gain and bias have the axes of the first. */
bool axes_layer_norm(const Graph *graph, const Node *node, int output, int axis, int *axes)
{
    (void)output;
    axes[0] = axis;
    for (int i = 2; i < node->input_count && !operator_has(node->op, HAS_GAIN); i++) axes[i] = axis;
    return axis != graph_value(graph, node->inputs[0])->shape.rank - 1;
}

bool infer_layer_norm(InferContext *context)
{
    if (!infer_float_inputs(context, context->node->input_count)) return false;
    const Value *input = infer_input(context, 0);
    if (input->shape.rank == 0) return operator_error(context, NULL, "the input is a scalar");
    if (!is_gain(context, 1, &input->shape) || !is_gain(context, 2, &input->shape))
        return operator_error(context, NULL, "gain and bias must have one element for each of the last axis");
    infer_same(context);
    for (int i = 1; i <= 2; i++) {
        context->dtype[i] = statistics_type(input->dtype);
        context->shape[i] = statistics_shape(input->shape);
    }
    return true;
}

bool differentiate_layer_norm(Differentiation *d, const Node *node)
{
    ValueId x = node->inputs[0], gain = node->inputs[1], mean = node->outputs[1], inverse = node->outputs[2];
    ValueId dy = gradient_of(d, node->outputs[0]);
    if (gradient_of(d, mean) || gradient_of(d, inverse)) return false;
    if (gradient_wanted(d, x)) {
        ValueId inputs[5] = {x, gain, mean, inverse, dy};
        gradient_add(d, x, build_node(d->b, OP_LayerNormGradient, inputs, 5, NULL, 0));
    }
    if (gradient_wanted(d, gain)) {
        ValueId inputs[4] = {x, mean, inverse, dy};
        gradient_add(d, gain, build_node(d->b, OP_LayerNormGainGradient, inputs, 4, NULL, 0));
    }
    if (node->input_count > 2 && node->inputs[2]) gradient_add(d, node->inputs[2], dy);
    return true;
}

/* The mean over the inner axis from a sum over it. */
static Register mean_of(Kernel *kernel, Register sum)
{
    Register share = kernel_constant_like(kernel, sum, 1 / (double)kernel_inner_extent(kernel));
    return kernel_multiply(kernel, sum, share);
}

static int result_of(Lowering *lowering, ValueId value)
{
    View view = lower_output(lowering, value);
    return lower_operand_broadcast(lowering, &view);
}

void lower_layer_norm(Lowering *lowering, const Node *node)
{
    Kernel *kernel = lower_begin_map(lowering, node);
    int x = lower_operand_of(lowering, node->inputs[0]), y = result_of(lowering, node->outputs[0]);

    Register sum = kernel_reduce(kernel, KERNEL_SUM, kernel_load(kernel, x));
    kernel_begin_phase(kernel, false);
    Register mean = mean_of(kernel, sum);
    kernel_store(kernel, result_of(lowering, node->outputs[1]), mean);

    kernel_begin_phase(kernel, true);
    Register deviation = kernel_subtract(kernel, kernel_load(kernel, x), mean);
    Register squares = kernel_reduce(kernel, KERNEL_SUM, kernel_multiply(kernel, deviation, deviation));
    kernel_begin_phase(kernel, false);
    Register variance = mean_of(kernel, squares);
    Register epsilon = kernel_constant_like(kernel, mean, node_float(node, "epsilon", 1e-5));
    Register root = kernel_unary(kernel, KERNEL_SQRT, kernel_add(kernel, variance, epsilon));
    Register inverse = kernel_unary(kernel, KERNEL_RECIPROCAL, root);
    kernel_store(kernel, result_of(lowering, node->outputs[2]), inverse);

    kernel_begin_phase(kernel, true);
    Register value = kernel_multiply(kernel, kernel_subtract(kernel, kernel_load(kernel, x), mean), inverse);
    value = kernel_multiply(kernel, value, kernel_load(kernel, lower_operand_of(lowering, node->inputs[1])));
    if (node->input_count > 2 && node->inputs[2])
        value = kernel_add(kernel, value, kernel_load(kernel, lower_operand_of(lowering, node->inputs[2])));
    kernel_store(kernel, y, value);
    lower_end(lowering);
}

bool infer_layer_norm_gradient(InferContext *context)
{
    const Shape *shape = &infer_input(context, 0)->shape;
    Shape statistics = statistics_shape(*shape);
    if (shape->rank == 0 || !is_gain(context, 1, shape) || !shape_equal(&infer_input(context, 2)->shape, &statistics) ||
        !shape_equal(&infer_input(context, 3)->shape, &statistics) ||
        !shape_equal(&infer_input(context, 4)->shape, shape))
        return operator_error(context, NULL, "the shapes of the inputs do not fit");
    return infer_same(context);
}

/* With z = (x - mean) * inverse and g = dy * gain: dx = inverse * (g - mean(g) - z * mean(g * z)). */
void lower_layer_norm_gradient(Lowering *lowering, const Node *node)
{
    Kernel *kernel = lower_begin_map(lowering, node);
    int x = lower_operand_of(lowering, node->inputs[0]), gain = lower_operand_of(lowering, node->inputs[1]);
    int dy = lower_operand_of(lowering, node->inputs[4]);
    kernel_begin_phase(kernel, false);
    Register mean = kernel_load(kernel, lower_operand_of(lowering, node->inputs[2]));
    Register inverse = kernel_load(kernel, lower_operand_of(lowering, node->inputs[3]));

    kernel_begin_phase(kernel, true);
    Register z = kernel_multiply(kernel, kernel_subtract(kernel, kernel_load(kernel, x), mean), inverse);
    Register slope = kernel_load(kernel, dy);
    Register g = kernel_multiply(kernel, slope, kernel_load(kernel, gain));
    Register sum = kernel_reduce(kernel, KERNEL_SUM, g);
    Register product = kernel_reduce(kernel, KERNEL_SUM, kernel_multiply(kernel, g, z));
    kernel_begin_phase(kernel, false);
    Register mean_g = mean_of(kernel, sum), mean_product = mean_of(kernel, product);

    kernel_begin_phase(kernel, true);
    z = kernel_multiply(kernel, kernel_subtract(kernel, kernel_load(kernel, x), mean), inverse);
    slope = kernel_load(kernel, dy);
    g = kernel_multiply(kernel, slope, kernel_load(kernel, gain));
    Register along = kernel_multiply(kernel, z, mean_product);
    Register rest = kernel_subtract(kernel, kernel_subtract(kernel, g, mean_g), along);
    kernel_store(kernel, result_of(lowering, node->outputs[0]), kernel_multiply(kernel, inverse, rest));
    lower_end(lowering);
}

bool axes_layer_norm_gain(const Graph *graph, const Node *node, int output, int axis, int *axes)
{
    (void)output, (void)axis;
    axes[0] = axes[3] = graph_value(graph, node->inputs[0])->shape.rank - 1;
    return true;
}

bool infer_layer_norm_gain_gradient(InferContext *context)
{
    const Shape *shape = &infer_input(context, 0)->shape;
    Shape statistics = statistics_shape(*shape);
    if (shape->rank == 0 || !shape_equal(&infer_input(context, 1)->shape, &statistics) ||
        !shape_equal(&infer_input(context, 2)->shape, &statistics) ||
        !shape_equal(&infer_input(context, 3)->shape, shape))
        return operator_error(context, NULL, "the shapes of the inputs do not fit");
    context->dtype[0] = infer_input(context, 0)->dtype;
    context->shape[0] = (Shape){1, {shape->dim[shape->rank - 1]}};
    return true;
}

/* An operand by (column, row), the dimensions before the last taken as rows. */
static int operand_by_column(Lowering *lowering, ValueId value)
{
    int last = graph_value(lowering->graph, value)->shape.rank - 1;
    View view = lower_view_merged(lowering, value, 0, last);
    int64_t stride[2] = {view.shape.dim[last] == 1 ? 0 : view.stride[last], 0};
    view_merge(&view, 0, last, &stride[1]);
    return lower_operand(lowering, &view, stride);
}

void lower_layer_norm_gain_gradient(Lowering *lowering, const Node *node)
{
    Shape shape = graph_value(lowering->graph, node->inputs[0])->shape;
    int last = shape.rank - 1;
    /* A copy that a view needs is a call of its own, so views are settled before the kernel is begun. */
    for (int i = 0; i < node->input_count; i++) lower_view_merged(lowering, node->inputs[i], 0, last);
    int64_t columns = shape.dim[last];
    shape.rank--;
    Kernel *kernel = lower_begin(lowering, opcodes[node->op].name, 2, (int64_t[]){columns, shape_elements(&shape)});
    Register x = kernel_load(kernel, operand_by_column(lowering, node->inputs[0]));
    Register mean = kernel_load(kernel, operand_by_column(lowering, node->inputs[1]));
    Register inverse = kernel_load(kernel, operand_by_column(lowering, node->inputs[2]));
    Register z = kernel_multiply(kernel, kernel_subtract(kernel, x, mean), inverse);
    Register dy = kernel_load(kernel, operand_by_column(lowering, node->inputs[3]));
    Register sum = kernel_reduce(kernel, KERNEL_SUM, kernel_multiply(kernel, dy, z));
    kernel_begin_phase(kernel, false);
    View output = lower_output(lowering, node->outputs[0]);
    kernel_store(kernel, lower_operand(lowering, &output, (int64_t[]){1, 0}), sum);
    lower_end(lowering);
}
