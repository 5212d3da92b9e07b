/* Cross-entropy of logits [rows, classes] and integer labels [rows], summed over the rows whose label is not
 * `ignore_index` and scaled by the loss scale of the step that belongs to label input number `labels`. Labels are
 * checked by the runtime; here a label outside the classes only must not reach foreign memory. */
#include "base/step_scalars.h"
#include "graph/operator.h"

static bool infer_labels(InferContext *context)
{
    const Value *logits = infer_input(context, 0), *labels = infer_input(context, 1);
    if (!infer_float_inputs(context, 1)) return false;
    if (labels->dtype != DTYPE_I32 && labels->dtype != DTYPE_I64)
        return operator_error(context, NULL, "labels of type %s", dtype_name(labels->dtype));
    if (logits->shape.rank != 2 || labels->shape.rank != 1 || labels->shape.dim[0] != logits->shape.dim[0] ||
        logits->shape.dim[1] == 0)
        return operator_error(context, NULL, "logits must be [rows, classes], labels [rows]");
    return true;
}

static bool infer_scalars(InferContext *context, int i)
{
    const Value *scalars = infer_input(context, i);
    if (scalars->dtype != DTYPE_F32 || scalars->shape.rank != 1 || scalars->shape.dim[0] != SKY_STEP_SCALARS)
        return operator_error(context, NULL, "input %d does not hold the scalars of the step", i);
    return true;
}

bool infer_cross_entropy(InferContext *context)
{
    if (!infer_labels(context) || !infer_scalars(context, 2)) return false;
    const Value *logits = infer_input(context, 0);
    context->dtype[0] = context->dtype[1] = logits->dtype;
    context->shape[0] = (Shape){0};
    context->shape[1] = (Shape){1, {logits->shape.dim[0]}};
    return true;
}

/* Whether the value is known to be 1, as the gradient of the loss itself is. */
static bool is_one(const Graph *graph, ValueId id)
{
    const Value *value = graph_value(graph, id);
    return value->role == ROLE_CONSTANT && shape_elements(&value->shape) == 1 &&
           element_as_double(value->dtype, value->data, 0) == 1;
}

bool differentiate_cross_entropy(Differentiation *differentiation, NodeId id)
{
    const Graph *graph = differentiation_graph(differentiation);
    Node node = *graph_node(graph, id);
    ValueId logits = node.inputs[0], dy = gradient_of(differentiation, node.outputs[0]);
    if (gradient_of(differentiation, node.outputs[1])) return false;
    if (!gradient_wanted(differentiation, logits)) return true;
    ValueId inputs[4] = {logits, node.inputs[1], node.outputs[1], node.inputs[2]};
    ValueId gradient =
        gradient_node(differentiation, OP_CrossEntropyGradient, inputs, 4, node.attributes, node.attribute_count);
    if (!is_one(graph, dy)) gradient = gradient_binary(differentiation, OP_Mul, gradient, dy);
    gradient_add(differentiation, logits, gradient);
    return true;
}

static Register load_label(Lowering *lowering, const Node *node, int64_t stride0, int64_t stride1)
{
    View labels = lower_view(lowering, node->inputs[1]);
    int64_t stride[2] = {stride0 * labels.stride[0], stride1 * labels.stride[0]};
    return kernel_load(lowering->kernel, lower_operand(lowering, &labels, stride));
}

static Register is_valid(Kernel *kernel, const Node *node, Register label)
{
    Register ignored = kernel_constant_integer(kernel, node_integer(node, "ignore_index", -100));
    return kernel_unary(kernel, KERNEL_NOT, kernel_binary(kernel, KERNEL_EQUAL, label, ignored));
}

static int scale_element(const Node *node) { return loss_scale_element((int)node_integer(node, "labels", 0)); }

static Register load_scale(Lowering *lowering, ValueId scalars, int element, DType type)
{
    View view = lower_view(lowering, scalars);
    view.offset += element;
    Register scale = kernel_load(lowering->kernel, lower_operand(lowering, &view, (int64_t[KERNEL_MAX_AXES]){0}));
    return kernel_convert(lowering->kernel, type, scale);
}

/* log(sum(exp(row))) of every row. */
static void lower_log_sum_exp(Lowering *lowering, const View *logits, const View *output)
{
    Kernel *kernel = lower_begin(lowering, "LogSumExp", 2, logits->shape.dim);
    int x = lower_operand(lowering, logits, logits->stride);
    Register maximum = kernel_reduce(kernel, KERNEL_MAXIMUM_OF, kernel_load(kernel, x));
    kernel_begin_phase(kernel, true);
    Register shifted = kernel_binary(kernel, KERNEL_SUBTRACT, kernel_load(kernel, x), maximum);
    Register sum = kernel_reduce(kernel, KERNEL_SUM, kernel_unary(kernel, KERNEL_EXP, shifted));
    kernel_begin_phase(kernel, false);
    Register total = kernel_binary(kernel, KERNEL_ADD, maximum, kernel_unary(kernel, KERNEL_LOG, sum));
    kernel_store(kernel, lower_operand(lowering, output, (int64_t[]){1, 0}), total);
    lower_end(lowering);
}

void lower_cross_entropy(Lowering *lowering, NodeId id)
{
    const Node *node = graph_node(lowering->graph, id);
    View logits = lower_view(lowering, node->inputs[0]), loss = lower_output(lowering, node->outputs[0]);
    View log_sum = lower_output(lowering, node->outputs[1]);
    lower_log_sum_exp(lowering, &logits, &log_sum);

    int64_t rows = logits.shape.dim[0], classes = logits.shape.dim[1], elements;
    Kernel *kernel = lower_begin(lowering, operators[node->op].name, 1, &rows);
    DType type = kernel_register_type(graph_value(lowering->graph, logits.base)->dtype);
    Register value = kernel_constant(kernel, type, 0);
    if (rows > 0) {
        int x = lower_operand_indexed(lowering, &logits, &logits.stride[0], &elements);
        Register label = load_label(lowering, node, 1, 0), valid = is_valid(kernel, node, label);
        Register class = lower_index(kernel, label, classes);
        Register offset = lower_scaled(kernel, class, logits.stride[1], logits.offset);
        Register chosen = kernel_load_at(kernel, x, offset, elements);
        Register total = kernel_load(kernel, lower_operand(lowering, &log_sum, log_sum.stride));
        Register row = kernel_binary(kernel, KERNEL_SUBTRACT, total, chosen);
        value = kernel_select(kernel, valid, row, value);
    }
    Register sum = kernel_reduce(kernel, KERNEL_SUM, value);
    kernel_begin_phase(kernel, false);
    Register scale = load_scale(lowering, node->inputs[2], scale_element(node), type);
    Register scaled = kernel_binary(kernel, KERNEL_MULTIPLY, sum, scale);
    kernel_store(kernel, lower_operand(lowering, &loss, (int64_t[]){0}), scaled);
    lower_end(lowering);
}

bool infer_cross_entropy_gradient(InferContext *context)
{
    if (!infer_labels(context) || !infer_scalars(context, 3)) return false;
    if (!shape_equal(&infer_input(context, 2)->shape, &infer_input(context, 1)->shape))
        return operator_error(context, NULL, "there must be one log-sum-exp for each row");
    return infer_same(context);
}

NOT_DIFFERENTIABLE(cross_entropy_gradient)

/* (exp(x - log-sum-exp) - [the label is this class]) * scale, or 0 in ignored rows. */
void lower_cross_entropy_gradient(Lowering *lowering, NodeId id)
{
    const Node *node = graph_node(lowering->graph, id);
    View logits = lower_view(lowering, node->inputs[0]), log_sum = lower_view(lowering, node->inputs[2]);
    View output = lower_output(lowering, node->outputs[0]);
    Kernel *kernel = lower_begin(lowering, operators[node->op].name, 2, logits.shape.dim);
    int x = lower_operand(lowering, &logits, logits.stride);
    DType type = kernel_register_type(graph_value(lowering->graph, logits.base)->dtype);
    kernel_begin_phase(kernel, false);
    Register label = load_label(lowering, node, 1, 0), valid = is_valid(kernel, node, label);
    Register total = kernel_load(kernel, lower_operand(lowering, &log_sum, (int64_t[]){log_sum.stride[0], 0}));
    Register scale = load_scale(lowering, node->inputs[3], scale_element(node), type);

    kernel_begin_phase(kernel, true);
    Register shifted = kernel_binary(kernel, KERNEL_SUBTRACT, kernel_load(kernel, x), total);
    Register probability = kernel_unary(kernel, KERNEL_EXP, shifted);
    Register hit = kernel_binary(kernel, KERNEL_EQUAL, label, kernel_axis(kernel, 1));
    Register slope = kernel_binary(kernel, KERNEL_SUBTRACT, probability, kernel_convert(kernel, type, hit));
    Register scaled = kernel_binary(kernel, KERNEL_MULTIPLY, slope, scale), zero = kernel_constant(kernel, type, 0);
    Register result = kernel_select(kernel, valid, scaled, zero);
    kernel_store(kernel, lower_operand(lowering, &output, output.stride), result);
    lower_end(lowering);
}

bool infer_scale_loss(InferContext *context)
{
    return infer_float_inputs(context, 1) && infer_scalars(context, 1) && infer_same(context);
}

bool differentiate_scale_loss(Differentiation *differentiation, NodeId id)
{
    Node node = *graph_node(differentiation_graph(differentiation), id);
    ValueId dy = gradient_of(differentiation, node.outputs[0]);
    if (gradient_wanted(differentiation, node.inputs[0]))
        gradient_add(differentiation, node.inputs[0],
                     gradient_binary(differentiation, OP_ScaleLoss, dy, node.inputs[1]));
    return true;
}

void lower_scale_loss(Lowering *lowering, NodeId id)
{
    const Node *node = graph_node(lowering->graph, id);
    View x = lower_view(lowering, node->inputs[0]), y = lower_output(lowering, node->outputs[0]);
    int64_t extent[KERNEL_MAX_AXES];
    Kernel *kernel = lower_begin(lowering, operators[node->op].name, lower_axes(&y.shape, extent), extent);
    Register value = lower_load(lowering, &x);
    Register scale = load_scale(lowering, node->inputs[1], SKY_STEP_SHARE, kernel_type(kernel, value));
    kernel_store(kernel, lower_operand_broadcast(lowering, &y), kernel_binary(kernel, KERNEL_MULTIPLY, value, scale));
    lower_end(lowering);
}
