/* Reductions over any set of axes; no axes: all of them. */
#include "graph/ops/add_node.h"
#include "graph/ops/lower.h"
#include "graph/ops/operator.h"

/* The reduced axes as bits; false if one of them does not exist. */
static bool reduced_axes(const Node *node, int rank, unsigned *reduced)
{
    const Attribute *axes = node_attribute(node, "axes");
    *reduced = 0;
    for (int i = 0; axes && i < axes->count; i++) {
        int64_t axis = axes->integers[i];
        if (!normalize_axis(&axis, rank)) return false;
        *reduced |= 1u << axis;
    }
    if (!axes || axes->count == 0) *reduced = (1u << rank) - 1;
    return true;
}

static Shape reduced_shape(const Shape *shape, unsigned reduced, bool keep)
{
    Shape result = {0};
    for (int i = 0; i < shape->rank; i++) {
        bool gone = reduced >> i & 1;
        if (!gone || keep) result.dim[result.rank++] = gone ? 1 : shape->dim[i];
    }
    return result;
}

bool infer_reduce(InferContext *context)
{
    const Value *input = infer_input(context, 0);
    unsigned reduced;
    if (!reduced_axes(context->node, input->shape.rank, &reduced))
        return operator_error(context, NULL, "an axis does not exist");
    if (input->dtype == DTYPE_BOOL) return operator_error(context, NULL, "does not take an input of type bool");
    context->dtype[0] = input->dtype;
    context->shape[0] = reduced_shape(&input->shape, reduced, node_integer(context->node, "keepdims", 1));
    return true;
}

/* The axis that is left as this one; -1 if it is a reduced one, which is kept. */
static int axis_left(const Graph *graph, const Node *node, unsigned reduced, int axis)
{
    int rank = graph_value(graph, node->inputs[0])->shape.rank, seen = 0;
    bool keeps = node_integer(node, "keepdims", 1);
    for (int i = 0; i < rank; i++) {
        bool gone = reduced >> i & 1;
        if ((!gone || keeps) && seen++ == axis) return gone ? -1 : i;
    }
    return -1;
}

bool axes_reduce(const Graph *graph, const Node *node, int output, int axis, int *axes)
{
    unsigned reduced = 0;
    (void)output;
    reduced_axes(node, graph_value(graph, node->inputs[0])->shape.rank, &reduced);
    axes[0] = axis_left(graph, node, reduced, axis);
    return axes[0] >= 0;
}

/* Equal extremes share the gradient. */
static ValueId gradient_of_extreme(Differentiation *d, const Node *node, ValueId dy, const Shape *kept)
{
    DType dtype = graph_value(d->graph, dy)->dtype;
    ValueId x = node->inputs[0], y = build_reshape(d->b, node->outputs[0], kept);
    ValueId equal = build_binary(d->b, OP_Equal, x, y);
    ValueId chosen = build_cast(d->b, equal, dtype);
    ValueId count = gradient_unbroadcast(d, chosen, kept);
    ValueId share = build_binary(d->b, OP_Div, dy, count);
    return build_binary(d->b, OP_Mul, chosen, share);
}

/* Every element's gradient is the product of the others, also where one or several of them are 0. */
static ValueId gradient_of_product(Differentiation *d, const Node *node, ValueId dy, const Shape *kept)
{
    DType dtype = graph_value(d->graph, dy)->dtype;
    Attribute axes[2] = {attribute_integer("keepdims", 1)};
    const Attribute *reduced = node_attribute(node, "axes");
    if (reduced) axes[1] = *reduced;
    ValueId x = node->inputs[0], zero = graph_constant_scalar(d->graph, dtype, 0);
    ValueId one = graph_constant_scalar(d->graph, dtype, 1), is_zero = build_binary(d->b, OP_Equal, x, zero);
    ValueId factor = build_where(d->b, is_zero, one, x);
    ValueId product = build_node(d->b, OP_ReduceProd, &factor, 1, axes, reduced ? 2 : 1);
    ValueId count = build_cast(d->b, is_zero, dtype);
    count = gradient_unbroadcast(d, count, kept);
    ValueId single = build_binary(d->b, OP_Equal, count, one);
    ValueId none = build_binary(d->b, OP_Equal, count, zero);
    ValueId of_zero = build_where(d->b, single, product, zero);
    ValueId of_others = build_where(d->b, none, product, zero);
    of_others = build_binary(d->b, OP_Div, of_others, factor);
    ValueId others = build_where(d->b, is_zero, of_zero, of_others);
    return build_binary(d->b, OP_Mul, dy, others);
}

bool differentiate_reduce(Differentiation *d, const Node *node)
{
    const Graph *graph = d->graph;
    ValueId x = node->inputs[0], dy = gradient_of(d, node->outputs[0]);
    if (!gradient_wanted(d, x)) return true;
    Shape shape = graph_value(graph, x)->shape;
    unsigned reduced;
    reduced_axes(node, shape.rank, &reduced);
    Shape kept = reduced_shape(&shape, reduced, true);
    dy = build_reshape(d->b, dy, &kept);
    if (node->op == OP_ReduceMax || node->op == OP_ReduceMin) {
        gradient_add(d, x, gradient_of_extreme(d, node, dy, &kept));
        return true;
    }
    if (node->op == OP_ReduceProd) {
        gradient_add(d, x, gradient_of_product(d, node, dy, &kept));
        return true;
    }
    if (node->op == OP_ReduceMean) {
        double count = (double)shape_elements(&shape) / (double)shape_elements(&kept);
        ValueId scale = graph_constant_scalar(d->graph, graph_value(graph, dy)->dtype, 1 / count);
        dy = build_binary(d->b, OP_Mul, dy, scale);
    }
    gradient_add(d, x, build_expand(d->b, dy, &shape));
    return true;
}

/* The input, copied first where the reduced dimensions are neighbours that only a copy can make one: whoever else reads
 * the value then reads the copy, and sums over one stride are much faster. */
static View reduced_view(Lowering *lowering, ValueId value, unsigned reduced)
{
    const Shape *shape = &graph_value(lowering->graph, value)->shape;
    int first = shape->rank, last = -1;
    bool neighbours = true;
    for (int i = 0; i < shape->rank; i++) {
        if (!(reduced >> i & 1) || shape->dim[i] == 1) continue;
        for (int k = last + 1; k < i && last >= 0; k++) neighbours &= shape->dim[k] == 1;
        if (last < 0) first = i;
        last = i;
    }
    if (last < 0 || !neighbours) return lower_view(lowering, value);
    return lower_view_merged(lowering, value, first, last - first + 1);
}

/* The value at the inner index: through one stride where the reduced dimensions stand regularly, else at an offset
 * computed from the index. `part` has the reduced dimensions only. */
static Register load_reduced(Lowering *lowering, const View *view, const View *part, int64_t *stride)
{
    Kernel *kernel = lowering->kernel;
    int inner = kernel->axis_count - 1;
    if (view_merge(part, 0, part->shape.rank, &stride[inner]))
        return kernel_load(kernel, lower_operand(lowering, view, stride));
    int64_t elements;
    stride[inner] = 0;
    int operand = lower_operand_indexed(lowering, view, stride, &elements);
    Register offset = kernel_constant_integer(kernel, view->offset), rest = kernel_axis(kernel, inner);
    for (int i = part->shape.rank - 1; i >= 0; i--) {
        Register extent = kernel_constant_integer(kernel, part->shape.dim[i]);
        Register index = kernel_binary(kernel, KERNEL_REMAINDER, rest, extent);
        rest = kernel_binary(kernel, KERNEL_DIVIDE, rest, extent);
        Register step = lower_scaled(kernel, index, part->stride[i], 0);
        offset = kernel_add(kernel, offset, step);
    }
    return kernel_load_at(kernel, operand, offset, elements);
}

static Register finish_mean(Kernel *kernel, Register sum, int64_t count)
{
    DType type = kernel_type(kernel, sum);
    if (!dtype_is_float(type)) {
        Register divisor = kernel_constant_integer(kernel, count);
        return kernel_binary(kernel, KERNEL_DIVIDE, sum, divisor);
    }
    Register factor = kernel_constant(kernel, type, 1 / (double)count);
    return kernel_multiply(kernel, sum, factor);
}

void lower_reduce(Lowering *lowering, const Node *node)
{
    View output = lower_output(lowering, node->outputs[0]);
    unsigned reduced;
    reduced_axes(node, graph_value(lowering->graph, node->inputs[0])->shape.rank, &reduced);
    View view = reduced_view(lowering, node->inputs[0], reduced);
    View part = {.base = view.base}, result = {.base = output.base};
    int64_t extent[KERNEL_MAX_AXES], stride[KERNEL_MAX_AXES] = {0};
    int axes = 0;
    for (int i = 0; i < view.shape.rank; i++) {
        if (reduced >> i & 1) {
            part.shape.dim[part.shape.rank] = view.shape.dim[i];
            part.stride[part.shape.rank++] = view.stride[i];
        } else {
            result.shape.dim[result.shape.rank++] = view.shape.dim[i];
            extent[axes] = view.shape.dim[i];
            stride[axes++] = view.stride[i];
        }
    }
    view_set_dense(&result);
    if (shape_elements(&result.shape) == 0) return;
    extent[axes] = shape_elements(&part.shape);
    result.stride[axes] = 0;
    int64_t count = extent[axes];

    static const KernelOp kernel_ops[OP_COUNT] = {[OP_ReduceSum] = KERNEL_SUM,
                                                  [OP_ReduceMean] = KERNEL_SUM,
                                                  [OP_ReduceProd] = KERNEL_PRODUCT,
                                                  [OP_ReduceMax] = KERNEL_MAXIMUM_OF,
                                                  [OP_ReduceMin] = KERNEL_MINIMUM_OF};
    Kernel *kernel = lower_begin(lowering, opcodes[node->op].name, axes + 1, extent);
    Register value = load_reduced(lowering, &view, &part, stride);
    value = kernel_reduce(kernel, kernel_ops[node->op], value);
    kernel_begin_phase(kernel, false);
    if (node->op == OP_ReduceMean) value = finish_mean(kernel, value, count);
    kernel_store(kernel, lower_operand(lowering, &result, result.stride), value);
    lower_end(lowering);
}

/* ---- The place of the largest element ---- */

bool infer_arg_max(InferContext *context)
{
    const Value *input = infer_input(context, 0);
    int64_t axis = node_integer(context->node, "axis", 0);
    if (!normalize_axis(&axis, input->shape.rank))
        return operator_error(context, NULL, "axis %lld does not exist", (long long)axis);
    if (input->dtype == DTYPE_BOOL) return operator_error(context, NULL, "does not take an input of type bool");
    if (input->shape.dim[axis] == 0) return operator_error(context, NULL, "an empty axis has no largest element");
    context->dtype[0] = DTYPE_I64;
    context->shape[0] = reduced_shape(&input->shape, 1u << axis, node_integer(context->node, "keepdims", 1));
    return true;
}

bool axes_arg_max(const Graph *graph, const Node *node, int output, int axis, int *axes)
{
    int64_t reduced = node_integer(node, "axis", 0);
    (void)output;
    normalize_axis(&reduced, graph_value(graph, node->inputs[0])->shape.rank);
    axes[0] = axis_left(graph, node, 1u << reduced, axis);
    return axes[0] >= 0;
}

/* The maximum first; then the first (or last) index at which it stands. NaN counts as the maximum. */
void lower_arg_max(Lowering *lowering, const Node *node)
{
    View view = lower_view(lowering, node->inputs[0]), output = lower_output(lowering, node->outputs[0]);
    int64_t axis = node_integer(node, "axis", 0), extent[KERNEL_MAX_AXES], from[KERNEL_MAX_AXES];
    normalize_axis(&axis, view.shape.rank);
    View result = {.base = output.base};
    for (int i = 0; i < view.shape.rank; i++) {
        if (i == axis) continue;
        extent[result.shape.rank] = view.shape.dim[i];
        from[result.shape.rank] = view.stride[i];
        result.shape.dim[result.shape.rank++] = view.shape.dim[i];
    }
    view_set_dense(&result);
    int inner = result.shape.rank;
    extent[inner] = view.shape.dim[axis];
    from[inner] = view.stride[axis];
    result.stride[inner] = 0;

    bool last = node_integer(node, "select_last_index", 0);
    Kernel *kernel = lower_begin(lowering, opcodes[node->op].name, inner + 1, extent);
    int x = lower_operand(lowering, &view, from);
    Register maximum = kernel_reduce(kernel, KERNEL_MAXIMUM_OF, kernel_load(kernel, x));
    kernel_begin_phase(kernel, true);
    Register value = kernel_load(kernel, x), hit = kernel_binary(kernel, KERNEL_EQUAL, value, maximum);
    if (dtype_is_float(kernel_type(kernel, value)))
        hit = kernel_binary(kernel, KERNEL_OR, hit, kernel_unary(kernel, KERNEL_IS_NAN, value));
    Register index = kernel_axis(kernel, inner), miss = kernel_constant_integer(kernel, last ? -1 : INT64_MAX);
    index = kernel_select(kernel, hit, index, miss);
    index = kernel_reduce(kernel, last ? KERNEL_MAXIMUM_OF : KERNEL_MINIMUM_OF, index);
    kernel_begin_phase(kernel, false);
    kernel_store(kernel, lower_operand(lowering, &result, result.stride), index);
    lower_end(lowering);
}
