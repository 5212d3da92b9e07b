/* Cross-entropy of logits [rows, classes] and integer labels [rows], summed over the rows whose label is not
 * `ignore_index` and scaled by the loss scale of the step that belongs to label input number `labels`. Labels are
 * checked by the runtime; here a label outside the classes only must not reach foreign memory.
 *
 * The second output has, of each row, the largest logit m and the logarithm of the sum of exp(x - m). They are kept
 * apart: m + log is rounded to m where m is large, but (m - x) + log, the loss of a row whose label has the logit x, is
 * not. Losses of rows are computed in double precision, in which no difference of float32 overflows.
 *
 * The weighted one is that of torch.nn.CrossEntropyLoss with class weights w and label smoothing e: of a row with label
 * y, with p = log-softmax, (1 - e) w_y (-p_y) + e / classes * the sum over c of w_c (-p_c). */
#include "graph/ops/cross_entropy.h"

#include "graph/ops/add_node.h"
#include "graph/ops/lower.h"
#include "graph/ops/operator.h"
#include "runtime/program/step_scalars.h"

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

bool infer_scalars(InferContext *context, int i)
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
    context->shape[1] = (Shape){2, {logits->shape.dim[0], 2}};
    return true;
}

/* Rows of logits, labels and of what is known of rows; classes meet. */
bool axes_cross_entropy(const Graph *graph, const Node *node, int output, int axis, int *axes)
{
    int inputs = operator_has(node->op, IS_LOSS) ? 2 : 3;
    (void)graph, (void)output;
    for (int i = 0; i < inputs; i++) axes[i] = axis;
    return axis == 0;
}

/* Whether the value is known to be 1, as the gradient of the loss itself is, in any shape and type. */
static bool is_one(const Graph *graph, ValueId id)
{
    for (NodeId producer; (producer = graph_value(graph, id)->producer); id = graph_node(graph, producer)->inputs[0])
        if (!operator_has(graph_node(graph, producer)->op, IS_MOVEMENT | CONVERTS)) return false;
    const Value *value = graph_value(graph, id);
    return value->role == ROLE_CONSTANT && shape_elements(&value->shape) == 1 &&
           element_as_double(value->dtype, value->data, 0) == 1;
}

bool differentiate_cross_entropy(Differentiation *d, const Node *node)
{
    ValueId logits = node->inputs[0], dy = gradient_of(d, node->outputs[0]);
    for (int i = 1; i < node->output_count; i++)
        if (gradient_of(d, node->outputs[i])) return false;
    if (!gradient_wanted(d, logits)) return true;
    bool weighted = node->op == OP_WeightedCrossEntropy;
    ValueId inputs[5] = {logits, node->inputs[1], node->outputs[1], node->inputs[2], weighted ? node->inputs[3] : 0};
    ValueId gradient = build_node(d->b, weighted ? OP_WeightedCrossEntropyGradient : OP_CrossEntropyGradient, inputs,
                                  weighted ? 5 : 4, node->attributes, node->attribute_count);
    if (!is_one(d->graph, dy)) gradient = build_binary(d->b, OP_Mul, gradient, dy);
    gradient_add(d, logits, gradient);
    return true;
}

Register load_label(Lowering *lowering, const Node *node, int64_t stride0, int64_t stride1)
{
    View labels = lower_view(lowering, node->inputs[operator_has(node->op, IS_PRODUCT) ? 2 : 1]);
    int64_t stride[2] = {stride0 * labels.stride[0], stride1 * labels.stride[0]};
    return kernel_load(lowering->kernel, lower_operand(lowering, &labels, stride));
}

Register is_valid(Kernel *kernel, const Node *node, Register label)
{
    Register ignored = kernel_constant_integer(kernel, node_integer(node, "ignore_index", -100));
    return kernel_unary(kernel, KERNEL_NOT, kernel_binary(kernel, KERNEL_EQUAL, label, ignored));
}

int scale_element(const Node *node) { return loss_scale_element((int)node_integer(node, "labels", 0)); }

Register load_scale(Lowering *lowering, ValueId scalars, int element, DType type)
{
    View view = lower_view(lowering, scalars);
    view.offset += element;
    Register scale = kernel_load(lowering->kernel, lower_operand(lowering, &view, (int64_t[KERNEL_MAX_AXES]){0}));
    return kernel_convert(lowering->kernel, type, scale);
}

View column_of(const View *pairs, int column)
{
    View view = *pairs;
    view.shape.rank = 1;
    view.offset += column * pairs->stride[1];
    return view;
}

/* The largest element of every row, and log(sum(exp(row - it))). */
static void lower_log_sum_exp(Lowering *lowering, const View *logits, const View *output)
{
    Kernel *kernel = lower_begin(lowering, "LogSumExp", 2, logits->shape.dim);
    const View largest = column_of(output, 0), logarithm = column_of(output, 1);
    int64_t stride[2] = {largest.stride[0], 0};
    int x = lower_operand(lowering, logits, logits->stride);
    Register maximum = kernel_reduce(kernel, KERNEL_MAXIMUM_OF, kernel_load(kernel, x));
    kernel_begin_phase(kernel, true);
    Register shifted = kernel_subtract(kernel, kernel_load(kernel, x), maximum);
    Register sum = kernel_reduce(kernel, KERNEL_SUM, kernel_unary(kernel, KERNEL_EXP, shifted));
    kernel_begin_phase(kernel, false);
    kernel_store(kernel, lower_operand(lowering, &largest, stride), maximum);
    kernel_store(kernel, lower_operand(lowering, &logarithm, stride), kernel_unary(kernel, KERNEL_LOG, sum));
    lower_end(lowering);
}

LogSum load_log_sum(Lowering *lowering, const View *pairs, DType type)
{
    Register loaded[2];
    for (int i = 0; i < 2; i++) {
        const View column = column_of(pairs, i);
        int operand = lower_operand(lowering, &column, (int64_t[KERNEL_MAX_AXES]){column.stride[0]});
        loaded[i] = kernel_load(lowering->kernel, operand);
        loaded[i] = kernel_convert(lowering->kernel, type, loaded[i]);
    }
    return (LogSum){loaded[0], loaded[1]};
}

Register missed(Kernel *kernel, const LogSum *log_sum, Register logit)
{
    Register below = kernel_convert(kernel, DTYPE_F64, logit);
    below = kernel_subtract(kernel, log_sum->maximum, below);
    return kernel_add(kernel, below, log_sum->logarithm);
}

Register probability_of(Kernel *kernel, const LogSum *log_sum, Register logit)
{
    Register shifted = kernel_subtract(kernel, logit, log_sum->maximum);
    return kernel_unary(kernel, KERNEL_EXP, kernel_subtract(kernel, shifted, log_sum->logarithm));
}

void lower_cross_entropy(Lowering *lowering, const Node *node)
{
    View logits = lower_view(lowering, node->inputs[0]), loss = lower_output(lowering, node->outputs[0]);
    View log_sum = lower_output(lowering, node->outputs[1]);
    lower_log_sum_exp(lowering, &logits, &log_sum);

    int64_t rows = logits.shape.dim[0], classes = logits.shape.dim[1], elements;
    Kernel *kernel = lower_begin(lowering, opcodes[node->op].name, 1, &rows);
    Register value = kernel_constant(kernel, DTYPE_F64, 0);
    if (rows > 0) {
        int x = lower_operand_indexed(lowering, &logits, &logits.stride[0], &elements);
        Register label = load_label(lowering, node, 1, 0), valid = is_valid(kernel, node, label);
        Register class = lower_index(kernel, label, classes);
        Register offset = lower_scaled(kernel, class, logits.stride[1], logits.offset);
        Register chosen = kernel_load_at(kernel, x, offset, elements);
        const LogSum known = load_log_sum(lowering, &log_sum, DTYPE_F64);
        Register row = missed(kernel, &known, chosen);
        value = kernel_select(kernel, valid, row, value);
    }
    Register sum = kernel_reduce(kernel, KERNEL_SUM, value);
    kernel_begin_phase(kernel, false);
    Register scale = load_scale(lowering, node->inputs[2], scale_element(node), DTYPE_F64);
    Register scaled = kernel_multiply(kernel, sum, scale);
    kernel_store(kernel, lower_operand(lowering, &loss, (int64_t[]){0}), scaled);
    lower_end(lowering);
}

bool infer_cross_entropy_gradient(InferContext *context)
{
    if (!infer_labels(context) || !infer_scalars(context, 3)) return false;
    const Shape *log_sum = &infer_input(context, 2)->shape;
    if (log_sum->rank != 2 || log_sum->dim[0] != infer_input(context, 1)->shape.dim[0] || log_sum->dim[1] != 2)
        return operator_error(context, NULL, "there must be two numbers for the log-sum-exp of each row");
    return infer_same(context);
}

/* ---- With class weights and label smoothing ---- */

static bool infer_weights(InferContext *context, int i)
{
    const Value *weights = infer_input(context, i), *logits = infer_input(context, 0);
    double smoothing = node_float(context->node, "smoothing", 0);
    if (weights->role != ROLE_CONSTANT || !dtype_is_float(weights->dtype) || weights->shape.rank > 1 ||
        (weights->shape.rank == 1 && weights->shape.dim[0] != logits->shape.dim[1]))
        return operator_error(context, NULL, "input %d must be a constant with a weight for each class", i);
    return (smoothing >= 0 && smoothing <= 1) ||
           operator_error(context, NULL, "labels cannot be smoothed by %g", smoothing);
}

bool infer_weighted_cross_entropy(InferContext *context)
{
    if (!infer_cross_entropy(context) || !infer_weights(context, 3)) return false;
    context->dtype[2] = context->dtype[1];
    context->shape[2] = infer_input(context, 1)->shape;
    return true;
}

/* The weight of each class as the kernel's last axis counts, or of the class in a register if that is set. */
static Register load_weight(Lowering *lowering, ValueId id, Register class, DType type)
{
    Kernel *kernel = lowering->kernel;
    View weights = lower_view(lowering, id);
    int64_t step = weights.shape.rank ? weights.stride[0] : 0, elements;
    Register weight;
    if (class && step) {
        int operand = lower_operand_indexed(lowering, &weights, (int64_t[KERNEL_MAX_AXES]){0}, &elements);
        weight = kernel_load_at(kernel, operand, lower_scaled(kernel, class, step, weights.offset), elements);
    } else {
        weight = kernel_load(kernel, lower_operand(lowering, &weights, (int64_t[KERNEL_MAX_AXES]){0, step}));
    }
    return kernel_convert(kernel, type, weight);
}

/* What smoothing makes of every class: e / classes. */
static double smoothing_share(const Node *node, int64_t classes)
{
    return node_float(node, "smoothing", 0) / (double)classes;
}

/* (1 - e) w_y */
static Register label_factor(Lowering *lowering, const Node *node, ValueId weights, Register class, DType type)
{
    Kernel *kernel = lowering->kernel;
    Register weight = load_weight(lowering, weights, class, type);
    double smoothing = node_float(node, "smoothing", 0);
    if (smoothing == 0) return weight;
    return kernel_multiply(kernel, weight, kernel_constant(kernel, type, 1 - smoothing));
}

/* The loss of every row, before it is scaled. */
static void lower_row_losses(Lowering *lowering, const Node *node, const View *logits, const View *log_sum,
                             const View *rows)
{
    int64_t classes = logits->shape.dim[1], elements;
    double share = smoothing_share(node, classes);
    Kernel *kernel = lower_begin(lowering, "RowLoss", 2, logits->shape.dim);
    const DType type = DTYPE_F64;
    kernel_begin_phase(kernel, false);
    int x = lower_operand_indexed(lowering, logits, (int64_t[]){logits->stride[0], 0}, &elements);
    Register label = load_label(lowering, node, 1, 0), valid = is_valid(kernel, node, label);
    Register class = lower_index(kernel, label, classes);
    Register offset = lower_scaled(kernel, class, logits->stride[1], logits->offset);
    Register chosen = kernel_load_at(kernel, x, offset, elements);
    const LogSum known = load_log_sum(lowering, log_sum, type);
    Register of_label = missed(kernel, &known, chosen);
    Register factor = label_factor(lowering, node, node->inputs[3], class, type);
    Register row = kernel_multiply(kernel, of_label, factor);
    if (share > 0) {
        kernel_begin_phase(kernel, true);
        Register each = kernel_load(kernel, lower_operand(lowering, logits, logits->stride));
        Register below = missed(kernel, &known, each);
        Register weight = load_weight(lowering, node->inputs[3], 0, type);
        Register sum = kernel_reduce(kernel, KERNEL_SUM, kernel_multiply(kernel, below, weight));
        kernel_begin_phase(kernel, false);
        Register spread = kernel_multiply(kernel, sum, kernel_constant(kernel, type, share));
        row = kernel_add(kernel, row, spread);
    }
    Register result = kernel_select(kernel, valid, row, kernel_constant(kernel, type, 0));
    kernel_store(kernel, lower_operand(lowering, rows, (int64_t[]){1, 0}), result);
    lower_end(lowering);
}

void lower_weighted_cross_entropy(Lowering *lowering, const Node *node)
{
    View logits = lower_view(lowering, node->inputs[0]), loss = lower_output(lowering, node->outputs[0]);
    View log_sum = lower_output(lowering, node->outputs[1]), rows = lower_output(lowering, node->outputs[2]);
    lower_log_sum_exp(lowering, &logits, &log_sum);
    lower_row_losses(lowering, node, &logits, &log_sum, &rows);

    Kernel *kernel = lower_begin(lowering, opcodes[node->op].name, 1, logits.shape.dim);
    Register each = kernel_load(kernel, lower_operand(lowering, &rows, (int64_t[]){1}));
    each = kernel_convert(kernel, DTYPE_F64, each);
    Register sum = kernel_reduce(kernel, KERNEL_SUM, each);
    kernel_begin_phase(kernel, false);
    Register scale = load_scale(lowering, node->inputs[2], scale_element(node), kernel_type(kernel, each));
    Register scaled = kernel_multiply(kernel, sum, scale);
    kernel_store(kernel, lower_operand(lowering, &loss, (int64_t[]){0}), scaled);
    lower_end(lowering);
}

bool infer_weighted_cross_entropy_gradient(InferContext *context)
{
    return infer_cross_entropy_gradient(context) && infer_weights(context, 4);
}

static double sum_of_weights(const Graph *graph, ValueId id, int64_t classes)
{
    const Value *weights = graph_value(graph, id);
    double sum = 0;
    for (int64_t i = 0; i < classes; i++)
        sum += element_as_double(weights->dtype, weights->data, weights->shape.rank ? i : 0);
    return sum;
}

/* (exp(p) - [the label is this class]) * scale; weighted: ((a + e / classes * the sum of all w) exp(p)
 * - a [the label is this class] - e / classes * w_c) * scale, with a = (1 - e) w_y. 0 in ignored rows. */
void lower_cross_entropy_gradient(Lowering *lowering, const Node *node)
{
    View logits = lower_view(lowering, node->inputs[0]), log_sum = lower_view(lowering, node->inputs[2]);
    View output = lower_output(lowering, node->outputs[0]);
    int64_t classes = logits.shape.dim[1];
    double share = smoothing_share(node, classes);
    Kernel *kernel = lower_begin(lowering, opcodes[node->op].name, 2, logits.shape.dim);
    int x = lower_operand(lowering, &logits, logits.stride);
    DType type = kernel_register_type(graph_value(lowering->graph, logits.base)->dtype);
    kernel_begin_phase(kernel, false);
    Register label = load_label(lowering, node, 1, 0), valid = is_valid(kernel, node, label);
    const LogSum known = load_log_sum(lowering, &log_sum, type);
    Register scale = load_scale(lowering, node->inputs[3], scale_element(node), type);
    ValueId weights = node->input_count > 4 ? node->inputs[4] : 0;
    Register factor = 0, whole = 0;
    if (weights) {
        factor = label_factor(lowering, node, weights, lower_index(kernel, label, classes), type);
        whole = kernel_constant(kernel, type, share * sum_of_weights(lowering->graph, weights, classes));
        whole = kernel_add(kernel, factor, whole);
    }

    kernel_begin_phase(kernel, true);
    Register probability = probability_of(kernel, &known, kernel_load(kernel, x));
    Register zero = kernel_constant(kernel, type, 0);
    Register slope = weights ? kernel_multiply(kernel, probability, whole) : probability;
    Register hit = kernel_binary(kernel, KERNEL_EQUAL, label, kernel_axis(kernel, 1));
    Register aimed = weights ? kernel_select(kernel, hit, factor, zero) : kernel_convert(kernel, type, hit);
    if (share > 0) {
        Register weight = load_weight(lowering, weights, 0, type);
        Register part = kernel_multiply(kernel, weight, kernel_constant(kernel, type, share));
        aimed = kernel_add(kernel, aimed, part);
    }
    Register scaled = kernel_multiply(kernel, kernel_subtract(kernel, slope, aimed), scale);
    kernel_store(kernel, lower_operand(lowering, &output, output.stride), kernel_select(kernel, valid, scaled, zero));
    lower_end(lowering);
}

/* ---- The scale alone ---- */

bool axes_scale_loss(const Graph *graph, const Node *node, int output, int axis, int *axes)
{
    (void)graph, (void)node, (void)output;
    axes[0] = axis;
    return true;
}

bool infer_scale_loss(InferContext *context)
{
    return infer_float_inputs(context, 1) && infer_scalars(context, 1) && infer_same(context);
}

bool differentiate_scale_loss(Differentiation *d, const Node *node)
{
    ValueId dy = gradient_of(d, node->outputs[0]);
    if (gradient_wanted(d, node->inputs[0]))
        gradient_add(d, node->inputs[0],
                     build_node(d->b, OP_ScaleLoss, (ValueId[]){dy, node->inputs[1]}, 2, node->attributes,
                                node->attribute_count));
    return true;
}

void lower_scale_loss(Lowering *lowering, const Node *node)
{
    Kernel *kernel = lower_begin_map(lowering, node);
    Register value = lower_load_input(lowering, node, 0);
    int element = (int)node_integer(node, "element", SKY_STEP_SHARE);
    if (node_attribute(node, "labels")) element = scale_element(node);
    Register scale = load_scale(lowering, node->inputs[1], element, kernel_type(kernel, value));
    lower_end_map(lowering, node, kernel_multiply(kernel, value, scale));
}
