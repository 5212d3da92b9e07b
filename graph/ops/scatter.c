/* Updates put where indices say, in ascending order of the indices: the last of several updates of one element stays,
 * sums add up in order. Products and extremes are computed the other way round, every element looking for the updates
 * that mean it, so that they need no atomic or ordered memory operation. */
#include <string.h>

#include "base/parts.h"
#include "graph/ops/add_node.h"
#include "graph/ops/lower.h"
#include "graph/ops/operator.h"

typedef enum ScatterReduction {
    REDUCTION_NONE,
    REDUCTION_ADD,
    REDUCTION_MUL,
    REDUCTION_MAX,
    REDUCTION_MIN
} ScatterReduction;

static const char *const reduction_names[] = {"none", "add", "mul", "max", "min"};
enum { REDUCTION_COUNT = sizeof reduction_names / sizeof reduction_names[0] };

static int reduction_of(const Node *node)
{
    const Attribute *attribute = node_attribute(node, "reduction");
    if (!attribute) return REDUCTION_NONE;
    int named =
        attribute->kind == ATTRIBUTE_STRING ? word_index(attribute->string, reduction_names, REDUCTION_COUNT) : -1;
    return named < 0 ? REDUCTION_COUNT : named;
}

/* The result's dtype and shape; what both operators check. */
static bool infer_scatter(InferContext *context)
{
    const Node *node = context->node;
    const Value *indices = infer_input(context, 0), *updates = infer_input(context, 1);
    bool has_data = node->input_count > 2 && node->inputs[2];
    if (indices->dtype != DTYPE_I32 && indices->dtype != DTYPE_I64)
        return operator_error(context, NULL, "indices of type %s", dtype_name(indices->dtype));
    if (reduction_of(node) == REDUCTION_COUNT) return operator_error(context, NULL, "there is no such reduction");
    if (updates->dtype == DTYPE_BOOL && reduction_of(node) != REDUCTION_NONE)
        return operator_error(context, NULL, "does not reduce values of type bool");
    if (has_data && infer_input(context, 2)->dtype != updates->dtype)
        return operator_error(context, "insert a Cast", "data and updates have different types");
    if (has_data)
        context->shape[0] = infer_input(context, 2)->shape;
    else if (!node_shape(node, "shape", &context->shape[0]))
        return operator_error(context, NULL, "has neither data nor a shape");
    if (shape_elements(&context->shape[0]) == 0 && shape_elements(&updates->shape) != 0)
        return operator_error(context, NULL, "scatters into an empty tensor");
    if (reduction_of(node) > REDUCTION_ADD && context->shape[0].rank == KERNEL_MAX_AXES)
        return operator_error(context, NULL, "does not reduce in %d dimensions", KERNEL_MAX_AXES);
    context->dtype[0] = updates->dtype;
    return true;
}

/* What the updates are added to or replace: a copy of the data, or zeros. */
static View begin_scatter(Lowering *lowering, const Node *node)
{
    View output = lower_output(lowering, node->outputs[0]);
    if (node->input_count > 2 && node->inputs[2]) {
        View data = lower_view(lowering, node->inputs[2]);
        lower_copy(lowering, opcodes[node->op].name, &data, &output);
    } else {
        lower_fill(lowering, &output, 0);
    }
    return output;
}

static void store_update(Kernel *kernel, ScatterReduction reduction, int target, Register value, Register offset,
                         int64_t elements)
{
    if (reduction == REDUCTION_ADD)
        kernel_store_add_at(kernel, target, value, offset, elements);
    else
        kernel_store_at(kernel, target, value, offset, elements);
}

/* What changes nothing when it is combined. */
static Register neutral(Kernel *kernel, ScatterReduction reduction, DType type)
{
    bool is_float = dtype_is_float(type);
    if (reduction == REDUCTION_MUL) return kernel_constant(kernel, type, 1);
    if (is_float) return kernel_constant(kernel, type, reduction == REDUCTION_MAX ? -__builtin_inf() : __builtin_inf());
    return kernel_constant_integer(kernel, reduction == REDUCTION_MAX ? INT64_MIN : INT64_MAX);
}

/* Ends a kernel whose inner axis runs over the updates: reduces those that mean this element, combines the result with
 * the element and stores it. */
static void combine_updates(Lowering *lowering, ScatterReduction reduction, Register hit, Register update, int target)
{
    static const KernelOp over[] = {
        [REDUCTION_MUL] = KERNEL_PRODUCT, [REDUCTION_MAX] = KERNEL_MAXIMUM_OF, [REDUCTION_MIN] = KERNEL_MINIMUM_OF};
    static const KernelOp with[] = {
        [REDUCTION_MUL] = KERNEL_MULTIPLY, [REDUCTION_MAX] = KERNEL_MAXIMUM, [REDUCTION_MIN] = KERNEL_MINIMUM};
    Kernel *kernel = lowering->kernel;
    Register other = neutral(kernel, reduction, kernel_type(kernel, update));
    Register value = kernel_reduce(kernel, over[reduction], kernel_select(kernel, hit, update, other));
    kernel_begin_phase(kernel, false);
    Register old = kernel_load(kernel, target);
    kernel_store(kernel, target, kernel_binary(kernel, with[reduction], old, value));
    lower_end(lowering);
}

/* ---- Gradients ---- */

typedef struct ScatterGradient {
    Differentiation *d;
    Opcode scatter, gather;
    Attribute placement;
    ValueId indices, updates, data, result, dy;
    DType dtype;
} ScatterGradient;

/* What of `value`, which is like the result, the updates meant. */
static ValueId taken(const ScatterGradient *scatter, ValueId value)
{
    return build_node(scatter->d->b, scatter->gather, (ValueId[]){value, scatter->indices}, 2, &scatter->placement, 1);
}

static ValueId put(const ScatterGradient *scatter, const char *reduction, ValueId updates, ValueId data)
{
    Attribute attributes[2] = {scatter->placement, attribute_string("reduction", reduction)};
    return build_node(scatter->d->b, scatter->scatter, (ValueId[]){scatter->indices, updates, data}, 3, attributes, 2);
}

/* Equal extremes share the gradient. */
static void differentiate_extreme(const ScatterGradient *scatter)
{
    Differentiation *d = scatter->d;
    ValueId own =
        build_cast(scatter->d->b, build_binary(d->b, OP_Equal, scatter->data, scatter->result), scatter->dtype);
    ValueId reached = taken(scatter, scatter->result);
    ValueId hits = build_cast(scatter->d->b, build_binary(d->b, OP_Equal, scatter->updates, reached), scatter->dtype);
    ValueId share = build_binary(d->b, OP_Div, scatter->dy, put(scatter, "add", hits, own));
    gradient_add(d, scatter->data, build_binary(d->b, OP_Mul, own, share));
    ValueId shares = taken(scatter, share);
    gradient_add(d, scatter->updates, build_binary(d->b, OP_Mul, hits, shares));
}

/* Every factor's gradient is the product of the others, also where one or several of them are 0. */
static void differentiate_product(const ScatterGradient *scatter)
{
    Differentiation *d = scatter->d;
    ValueId zero = graph_constant_scalar(d->graph, scatter->dtype, 0);
    ValueId one = graph_constant_scalar(d->graph, scatter->dtype, 1);
    ValueId values[2] = {scatter->data, scatter->updates}, is_zero[2], factor[2], count[2];
    for (int i = 0; i < 2; i++) {
        is_zero[i] = build_binary(d->b, OP_Equal, values[i], zero);
        factor[i] = build_where(scatter->d->b, is_zero[i], one, values[i]);
        count[i] = build_cast(scatter->d->b, is_zero[i], scatter->dtype);
    }
    ValueId product = build_binary(d->b, OP_Mul, scatter->dy, put(scatter, "mul", factor[1], factor[0]));
    ValueId zeros = put(scatter, "add", count[1], count[0]);
    ValueId single = build_binary(d->b, OP_Equal, zeros, one);
    ValueId none = build_binary(d->b, OP_Equal, zeros, zero);
    ValueId of_zero = build_where(scatter->d->b, single, product, zero),
            of_others = build_where(scatter->d->b, none, product, zero);
    ValueId others = build_binary(d->b, OP_Div, of_others, factor[0]);
    gradient_add(d, scatter->data, build_where(scatter->d->b, is_zero[0], of_zero, others));
    of_zero = taken(scatter, of_zero);
    others = build_binary(d->b, OP_Div, taken(scatter, of_others), factor[1]);
    gradient_add(d, scatter->updates, build_where(scatter->d->b, is_zero[1], of_zero, others));
}

/* Updates take what reached their elements; replaced data gets none. */
static void differentiate_placement(const ScatterGradient *scatter, ScatterReduction reduction)
{
    Differentiation *d = scatter->d;
    if (gradient_wanted(d, scatter->updates)) gradient_add(d, scatter->updates, taken(scatter, scatter->dy));
    if (scatter->data && reduction == REDUCTION_ADD) gradient_add(d, scatter->data, scatter->dy);
    if (scatter->data && reduction == REDUCTION_NONE && gradient_wanted(d, scatter->data)) {
        Shape shape = graph_value(d->graph, scatter->updates)->shape;
        ValueId zero = graph_constant_scalar(d->graph, scatter->dtype, 0);
        zero = build_expand(d->b, zero, &shape);
        gradient_add(d, scatter->data, put(scatter, "none", zero, scatter->dy));
    }
}

static bool differentiate_scatter(Differentiation *d, const Node *node, Opcode gather)
{
    const Graph *graph = d->graph;
    const char *placement = gather == OP_GatherElements ? "axis" : "batch_dims";
    ScatterGradient scatter = {
        .d = d,
        .scatter = node->op,
        .gather = gather,
        .placement = attribute_integer(placement, node_integer(node, placement, 0)),
        .indices = node->inputs[0],
        .updates = node->inputs[1],
        .data = node->input_count > 2 ? node->inputs[2] : 0,
        .result = node->outputs[0],
        .dy = gradient_of(d, node->outputs[0]),
        .dtype = graph_value(graph, node->inputs[1])->dtype,
    };
    ScatterReduction reduction = (ScatterReduction)reduction_of(node);
    if (reduction > REDUCTION_ADD && !scatter.data) return false;
    if (reduction <= REDUCTION_ADD)
        differentiate_placement(&scatter, reduction);
    else if (reduction == REDUCTION_MUL)
        differentiate_product(&scatter);
    else
        differentiate_extreme(&scatter);
    return true;
}

/* ---- An index for every element ---- */

bool infer_scatter_elements(InferContext *context)
{
    if (!infer_scatter(context)) return false;
    const Shape *indices = &infer_input(context, 0)->shape, *shape = &context->shape[0];
    int64_t axis = node_integer(context->node, "axis", 0);
    if (!normalize_axis(&axis, shape->rank) || indices->rank != shape->rank ||
        !shape_equal(indices, &infer_input(context, 1)->shape))
        return operator_error(context, NULL, "indices and updates must have one shape and the data's rank");
    for (int i = 0; i < shape->rank; i++)
        if (i != axis && indices->dim[i] > shape->dim[i])
            return operator_error(context, NULL, "there are more indices than data along dimension %d", i);
    return true;
}

bool differentiate_scatter_elements(Differentiation *d, const Node *node)
{
    return differentiate_scatter(d, node, OP_GatherElements);
}

/* The strides of a view with `axis` moved after all others. */
static void strides_with_axis_last(const View *view, int axis, int64_t *stride)
{
    int count = 0;
    for (int i = 0; i < view->shape.rank; i++)
        if (i != axis) stride[count++] = view->stride[i];
    stride[count] = view->stride[axis];
}

void lower_scatter_elements(Lowering *lowering, const Node *node)
{
    View output = begin_scatter(lowering, node), indices = lower_view(lowering, node->inputs[0]);
    View updates = lower_view(lowering, node->inputs[1]);
    if (shape_elements(&updates.shape) == 0) return;
    int64_t axis = node_integer(node, "axis", 0);
    normalize_axis(&axis, output.shape.rank);
    ScatterReduction reduction = (ScatterReduction)reduction_of(node);
    bool combines = reduction > REDUCTION_ADD;

    /* Axes: the other dimensions; where updates are looked for, the element's place on the axis; the updates. */
    int64_t extent[KERNEL_MAX_AXES + 1], to[KERNEL_MAX_AXES + 1], from[KERNEL_MAX_AXES + 1], at[KERNEL_MAX_AXES + 1],
        elements;
    int inner = output.shape.rank - 1, count = 0;
    for (int i = 0; i <= inner; i++)
        if (i != axis) extent[count++] = indices.shape.dim[i];
    strides_with_axis_last(&output, (int)axis, to);
    strides_with_axis_last(&updates, (int)axis, from);
    strides_with_axis_last(&indices, (int)axis, at);
    if (combines) {
        extent[inner] = output.shape.dim[axis];
        from[inner + 1] = from[inner];
        at[inner + 1] = at[inner];
        from[inner] = at[inner] = to[inner + 1] = 0;
        inner++;
    } else {
        to[inner] = 0;
    }
    extent[inner] = indices.shape.dim[axis];

    Kernel *kernel = lower_begin(lowering, opcodes[node->op].name, inner + 1, extent);
    Register index = kernel_load(kernel, lower_operand(lowering, &indices, at));
    index = lower_index(kernel, index, output.shape.dim[axis]);
    Register update = kernel_load(kernel, lower_operand(lowering, &updates, from));
    if (combines) {
        Register hit = kernel_binary(kernel, KERNEL_EQUAL, index, kernel_axis(kernel, inner - 1));
        combine_updates(lowering, reduction, hit, update, lower_operand(lowering, &output, to));
        return;
    }
    int target = lower_operand_indexed(lowering, &output, to, &elements);
    Register offset = lower_scaled(kernel, index, output.stride[axis], 0);
    store_update(kernel, reduction, target, update, offset, elements);
    lower_end(lowering);
}

/* ---- Tuples of indices ---- */

bool infer_scatter_nd(InferContext *context)
{
    if (!infer_scatter(context)) return false;
    const Shape *indices = &infer_input(context, 0)->shape, *shape = &context->shape[0];
    int64_t batch = node_integer(context->node, "batch_dims", 0);
    int last = indices->rank - 1;
    if (last < 0 || batch < 0 || batch > last || batch > shape->rank || indices->dim[last] > shape->rank - batch)
        return operator_error(context, NULL, "the indices have the wrong number of dimensions");
    if (batch > 0 && reduction_of(context->node) > REDUCTION_ADD)
        return operator_error(context, NULL, "does not reduce in batches");
    int after = (int)(batch + indices->dim[last]);
    Shape expected = *indices;
    expected.rank = last;
    if (last + shape->rank - after > MAX_RANK || shape->rank - after + 1 + (int)batch > KERNEL_MAX_AXES)
        return operator_error(context, NULL, "the updates have too many dimensions");
    for (int i = after; i < shape->rank; i++) expected.dim[expected.rank++] = shape->dim[i];
    if (!shape_equal(&infer_input(context, 1)->shape, &expected))
        return operator_error(context, NULL, "the updates have another shape than the indices ask for");
    return true;
}

bool differentiate_scatter_nd(Differentiation *d, const Node *node)
{
    return differentiate_scatter(d, node, OP_GatherND);
}

/* A view whose dimensions first ... first + count - 1 are one dimension. */
static View merged(const View *view, int first, int count)
{
    View result = {.base = view->base, .offset = view->offset};
    for (int i = 0; i < view->shape.rank; i++) {
        if (i > first && i < first + count) continue;
        bool is_merged = i == first && count > 0;
        if (count == 0 && i == first) { /* none to merge: a dimension of 1 */
            result.shape.dim[result.shape.rank] = 1;
            result.stride[result.shape.rank++] = 0;
        }
        result.shape.dim[result.shape.rank] = view->shape.dim[i];
        result.stride[result.shape.rank] = view->stride[i];
        if (is_merged) {
            int64_t extent = 1;
            for (int k = 0; k < count; k++) extent *= view->shape.dim[first + k];
            result.shape.dim[result.shape.rank] = extent;
            view_merge(view, first, count, &result.stride[result.shape.rank]);
        }
        result.shape.rank++;
    }
    if (count == 0 && first == view->shape.rank) {
        result.shape.dim[result.shape.rank] = 1;
        result.stride[result.shape.rank++] = 0;
    }
    return result;
}

/* Every element of the result looks through all tuples: axes are those of the result, then the tuples. */
static void lower_scatter_nd_combined(Lowering *lowering, const Node *node, const View *output, const View *indices,
                                      const View *updates)
{
    int rank = output->shape.rank, width = (int)indices->shape.dim[1];
    int64_t extent[KERNEL_MAX_AXES], to[KERNEL_MAX_AXES] = {0}, from[KERNEL_MAX_AXES] = {0}, at[KERNEL_MAX_AXES] = {0};
    for (int i = 0; i < rank; i++) {
        extent[i] = output->shape.dim[i];
        to[i] = output->stride[i];
        if (i >= width) from[i] = updates->stride[1 + i - width];
    }
    extent[rank] = indices->shape.dim[0];
    from[rank] = updates->stride[0];
    at[rank] = indices->stride[0];

    Kernel *kernel = lower_begin(lowering, opcodes[node->op].name, rank + 1, extent);
    Register hit = kernel_constant(kernel, DTYPE_BOOL, 1);
    for (int i = 0; i < width; i++) {
        View part = *indices;
        part.offset += i * indices->stride[1];
        Register index = kernel_load(kernel, lower_operand(lowering, &part, at));
        index = lower_index(kernel, index, output->shape.dim[i]);
        Register same = kernel_binary(kernel, KERNEL_EQUAL, index, kernel_axis(kernel, i));
        hit = kernel_binary(kernel, KERNEL_AND, hit, same);
    }
    Register update = kernel_load(kernel, lower_operand(lowering, updates, from));
    combine_updates(lowering, (ScatterReduction)reduction_of(node), hit, update, lower_operand(lowering, output, to));
}

void lower_scatter_nd(Lowering *lowering, const Node *node)
{
    View output = begin_scatter(lowering, node);
    int batch = (int)node_integer(node, "batch_dims", 0);
    int tuples = graph_value(lowering->graph, node->inputs[0])->shape.rank - 1 - batch;
    View indices = lower_view_merged(lowering, node->inputs[0], batch, tuples);
    View updates = lower_view_merged(lowering, node->inputs[1], batch, tuples);
    if (shape_elements(&updates.shape) == 0) return;
    indices = merged(&indices, batch, tuples);
    updates = merged(&updates, batch, tuples);
    ScatterReduction reduction = (ScatterReduction)reduction_of(node);
    if (reduction > REDUCTION_ADD) {
        lower_scatter_nd_combined(lowering, node, &output, &indices, &updates);
        return;
    }

    /* Axes: the batch dimensions, those of the slices that a tuple chooses, the tuples. */
    int after = batch + (int)indices.shape.dim[batch + 1], axes = 0;
    int64_t extent[KERNEL_MAX_AXES], to[KERNEL_MAX_AXES] = {0}, from[KERNEL_MAX_AXES] = {0}, at[KERNEL_MAX_AXES] = {0};
    for (int i = 0; i < output.shape.rank; i++) {
        if (i >= batch && i < after) continue;
        extent[axes] = output.shape.dim[i];
        to[axes] = output.stride[i];
        from[axes] = updates.stride[i < batch ? i : i - after + batch + 1];
        at[axes++] = i < batch ? indices.stride[i] : 0;
    }
    extent[axes] = indices.shape.dim[batch];
    from[axes] = updates.stride[batch];
    at[axes] = indices.stride[batch];
    int64_t elements;
    Kernel *kernel = lower_begin(lowering, opcodes[node->op].name, axes + 1, extent);
    int target = lower_operand_indexed(lowering, &output, to, &elements);
    Register offset = lower_tuple(lowering, &output, batch, &indices, at);
    Register update = kernel_load(kernel, lower_operand(lowering, &updates, from));
    store_update(kernel, reduction, target, update, offset, elements);
    lower_end(lowering);
}
