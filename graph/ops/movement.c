/* The same elements seen otherwise. */
#include "graph/ops/add_node.h"
#include "graph/ops/lower.h"
#include "graph/ops/operator.h"

/* ---- Shapes ---- */

/* -1 stands for what is left, 0 for the input's dimension. */
bool infer_reshape(InferContext *context)
{
    const Value *input = infer_input(context, 0);
    Shape shape;
    if (!node_shape(context->node, "shape", &shape)) return operator_error(context, NULL, "there is no shape");
    int64_t total = shape_elements(&input->shape), known = 1;
    int open = -1;
    for (int i = 0; i < shape.rank; i++) {
        if (shape.dim[i] == 0 && total && i < input->shape.rank) shape.dim[i] = input->shape.dim[i];
        if (shape.dim[i] == -1 && open < 0)
            open = i;
        else if (shape.dim[i] < 0 || __builtin_mul_overflow(known, shape.dim[i], &known))
            return operator_error(context, NULL, "the shape is impossible");
    }
    if (open >= 0) shape.dim[open] = known ? total / known : 0;
    if (shape_elements(&shape) != total) {
        char from[256], to[256];
        return operator_error(context, NULL, "cannot reshape %s to %s", shape_format(&input->shape, from),
                              shape_format(&shape, to));
    }
    context->dtype[0] = input->dtype;
    context->shape[0] = shape;
    return true;
}

bool infer_transpose(InferContext *context)
{
    const Value *input = infer_input(context, 0);
    int perm[MAX_RANK];
    if (!movement_permutation(context->node, input->shape.rank, perm))
        return operator_error(context, NULL, "perm is no permutation of %d dimensions", input->shape.rank);
    context->dtype[0] = input->dtype;
    context->shape[0].rank = input->shape.rank;
    for (int i = 0; i < input->shape.rank; i++) context->shape[0].dim[i] = input->shape.dim[perm[i]];
    return true;
}

bool infer_expand(InferContext *context)
{
    const Value *input = infer_input(context, 0);
    Shape shape;
    if (!node_shape(context->node, "shape", &shape) || shape_elements(&shape) < 0)
        return operator_error(context, NULL, "the shape is impossible");
    if (!shape_broadcast(&input->shape, &shape, &context->shape[0])) {
        char from[256], to[256];
        return operator_error(context, NULL, "%s does not broadcast to %s", shape_format(&input->shape, from),
                              shape_format(&shape, to));
    }
    context->dtype[0] = input->dtype;
    return true;
}

/* Whether the elements start, start + step ... of every axis lie in a tensor of shape `whole`. */
static bool slice_fits(const SliceBounds *bounds, const Shape *part, const Shape *whole)
{
    if (part->rank != whole->rank) return false;
    for (int i = 0; i < part->rank; i++) {
        int64_t first = bounds->starts.dim[i], last;
        if (part->dim[i] == 0) continue;
        if (__builtin_mul_overflow(part->dim[i] - 1, bounds->steps.dim[i], &last) ||
            __builtin_add_overflow(last, first, &last))
            return false;
        if (first < 0 || first >= whole->dim[i] || last < 0 || last >= whole->dim[i]) return false;
        if (part->dim[i] > 1 && bounds->steps.dim[i] == 0) return false;
    }
    return true;
}

bool infer_slice(InferContext *context)
{
    SliceBounds bounds;
    if (!slice_bounds(context->node, &bounds) || !slice_fits(&bounds, &bounds.shape, &infer_input(context, 0)->shape))
        return operator_error(context, NULL, "the slice reaches outside its input");
    context->dtype[0] = infer_input(context, 0)->dtype;
    context->shape[0] = bounds.shape;
    return true;
}

/* ---- Axes ---- */

/* The dimension that is kept as this one; none where it is split or merged. */
bool axes_reshape(const Graph *graph, const Node *node, int output, int axis, int *axes)
{
    const Shape *shape = &graph_value(graph, node->inputs[0])->shape;
    const Shape *result = &graph_value(graph, node->outputs[output])->shape;
    int64_t after = shape_stride(result, axis), seen = 1;
    for (int i = shape->rank - 1; i >= 0 && axes[0] < 0; i--) {
        if (seen == after && shape->dim[i] == result->dim[axis]) axes[0] = i;
        seen *= shape->dim[i];
    }
    return axes[0] >= 0;
}

bool axes_transpose(const Graph *graph, const Node *node, int output, int axis, int *axes)
{
    int perm[MAX_RANK];
    (void)output;
    movement_permutation(node, graph_value(graph, node->inputs[0])->shape.rank, perm);
    axes[0] = perm[axis];
    return true;
}

/* Of a slice, or its gradient: axes that are kept whole. */
bool axes_slice(const Graph *graph, const Node *node, int output, int axis, int *axes)
{
    SliceBounds bounds;
    axes[0] = axis;
    return slice_bounds(node, &bounds) && bounds.starts.dim[axis] == 0 && bounds.steps.dim[axis] == 1 &&
           graph_value(graph, node->inputs[0])->shape.dim[axis] ==
               graph_value(graph, node->outputs[output])->shape.dim[axis];
}

bool axes_concat(const Graph *graph, const Node *node, int output, int axis, int *axes)
{
    int64_t joined = node_integer(node, "axis", 0);
    normalize_axis(&joined, graph_value(graph, node->outputs[output])->shape.rank);
    for (int i = 0; i < node->input_count; i++) axes[i] = axis;
    return axis != joined;
}

/* ---- Parts ---- */

static bool slice_selects(const Graph *graph, const Node *node, AxisPart *part)
{
    const Shape *shape = &graph_value(graph, node->inputs[0])->shape;
    SliceBounds bounds;
    int cut = -1;
    if (!slice_bounds(node, &bounds)) return false;
    for (int i = 0; i < shape->rank; i++) {
        if (bounds.shape.dim[i] == shape->dim[i] && bounds.steps.dim[i] == 1) continue;
        if (cut >= 0 || (bounds.steps.dim[i] != 1 && bounds.shape.dim[i] != 1) || !bounds.shape.dim[i]) return false;
        cut = i;
    }
    if (cut < 0) return false;
    *part = (AxisPart){cut, bounds.starts.dim[cut], bounds.shape.dim[cut]};
    return true;
}

/* An index that is known. */
static bool gather_selects(const Graph *graph, const Node *node, AxisPart *part)
{
    const Shape *shape = &graph_value(graph, node->inputs[0])->shape;
    const Value *index = graph_value(graph, node->inputs[1]);
    int64_t axis = node_integer(node, "axis", 0);
    if (index->role != ROLE_CONSTANT || shape_elements(&index->shape) != 1) return false;
    normalize_axis(&axis, shape->rank);
    int64_t start = element_as_integer(index->dtype, index->data, 0);
    if (!normalize_axis(&start, (int)shape->dim[axis])) return false;
    *part = (AxisPart){(int)axis, start, 1};
    return shape->dim[axis] > 1;
}

bool operator_selects(const Graph *graph, const Node *node, AxisPart *part)
{
    if (!operator_has(node->op, SELECTS)) return false;
    return node->op == OP_Slice ? slice_selects(graph, node, part) : gather_selects(graph, node, part);
}

void operator_select_all(Graph *graph, Node *node, const AxisPart *part)
{
    if (node->op == OP_Slice) {
        node_change_attribute(graph, node, "starts", part->axis, 0);
        node_change_attribute(graph, node, "steps", part->axis, 1);
        return;
    }
    /* A Gather takes its dimension away as well: where one index is left, that is all that it does. */
    Shape shape = graph_value(graph, node->outputs[0])->shape;
    Attribute attribute = attribute_integers("shape", NULL, shape.rank);
    attribute.integers = arena_copy(&graph->arena, shape.dim, (size_t)shape.rank * sizeof shape.dim[0]);
    node->op = OP_Reshape;
    node->input_count = node->attribute_count = 1;
    node->attributes = arena_copy(&graph->arena, &attribute, sizeof attribute);
}

/* ---- Gradients ---- */

bool differentiate_reshape(Differentiation *d, const Node *node)
{
    if (!gradient_wanted(d, node->inputs[0])) return true;
    Shape shape = graph_value(d->graph, node->inputs[0])->shape;
    ValueId dy = gradient_of(d, node->outputs[0]);
    gradient_add(d, node->inputs[0], build_reshape(d->b, dy, &shape));
    return true;
}

bool differentiate_transpose(Differentiation *d, const Node *node)
{
    if (!gradient_wanted(d, node->inputs[0])) return true;
    int perm[MAX_RANK], rank = graph_value(d->graph, node->inputs[0])->shape.rank;
    int64_t inverse[MAX_RANK];
    movement_permutation(node, rank, perm);
    for (int i = 0; i < rank; i++) inverse[perm[i]] = i;
    ValueId dy = gradient_of(d, node->outputs[0]);
    gradient_add(d, node->inputs[0], build_transpose(d->b, dy, inverse));
    return true;
}

bool differentiate_expand(Differentiation *d, const Node *node)
{
    gradient_add(d, node->inputs[0], gradient_of(d, node->outputs[0]));
    return true;
}

/* A slice and its gradient are each other's gradient: what is read out of a place is put into it. */
bool differentiate_placed(Differentiation *d, const Node *node)
{
    if (!gradient_wanted(d, node->inputs[0])) return true;
    Shape shape = graph_value(d->graph, node->inputs[0])->shape;
    SliceBounds bounds;
    slice_bounds(node, &bounds);
    Attribute attributes[3] = {attribute_integers("starts", bounds.starts.dim, bounds.starts.rank),
                               attribute_integers("steps", bounds.steps.dim, bounds.steps.rank),
                               attribute_integers("shape", shape.dim, shape.rank)};
    ValueId dy = gradient_of(d, node->outputs[0]);
    gradient_add(d, node->inputs[0],
                 build_node(d->b, node->op == OP_Slice ? OP_SliceGradient : OP_Slice, &dy, 1, attributes, 3));
    return true;
}

bool infer_slice_gradient(InferContext *context)
{
    SliceBounds bounds;
    if (!slice_bounds(context->node, &bounds) || !slice_fits(&bounds, &infer_input(context, 0)->shape, &bounds.shape))
        return operator_error(context, NULL, "the slice reaches outside its output");
    context->dtype[0] = infer_input(context, 0)->dtype;
    context->shape[0] = bounds.shape;
    return true;
}

void lower_slice_gradient(Lowering *lowering, const Node *node)
{
    View from = lower_view(lowering, node->inputs[0]), to = lower_output(lowering, node->outputs[0]);
    if (shape_elements(&from.shape) < shape_elements(&to.shape)) lower_fill(lowering, &to, 0);
    SliceBounds bounds;
    slice_bounds(node, &bounds);
    view_slice(&to, &bounds, &from.shape);
    lower_copy(lowering, opcodes[node->op].name, &from, &to);
}

/* ---- Concat ---- */

bool infer_concat(InferContext *context)
{
    const Value *first = infer_input(context, 0);
    int64_t axis = node_integer(context->node, "axis", 0);
    if (!normalize_axis(&axis, first->shape.rank))
        return operator_error(context, NULL, "axis %lld does not exist", (long long)axis);
    infer_same(context);
    context->shape[0].dim[axis] = 0;
    for (int i = 0; i < context->node->input_count; i++) {
        if (!context->node->inputs[i]) return operator_error(context, NULL, "input %d is missing", i);
        const Value *input = infer_input(context, i);
        Shape expected = first->shape;
        if (input->shape.rank == expected.rank) expected.dim[axis] = input->shape.dim[axis];
        char shape[256], first_shape[256];
        if (input->dtype != first->dtype || !shape_equal(&input->shape, &expected))
            return operator_error(context, NULL, "input %d, %s %s, does not fit input 0, %s %s, along axis %lld", i,
                                  dtype_name(input->dtype), shape_format(&input->shape, shape),
                                  dtype_name(first->dtype), shape_format(&first->shape, first_shape), (long long)axis);
        if (__builtin_add_overflow(context->shape[0].dim[axis], input->shape.dim[axis], &context->shape[0].dim[axis]))
            return operator_error(context, NULL, "the result is too long");
    }
    return true;
}

bool differentiate_concat(Differentiation *d, const Node *node)
{
    const Graph *graph = d->graph;
    ValueId dy = gradient_of(d, node->outputs[0]);
    int64_t axis = node_integer(node, "axis", 0), start[MAX_RANK] = {0}, step[MAX_RANK];
    int rank = graph_value(graph, dy)->shape.rank;
    normalize_axis(&axis, rank);
    for (int i = 0; i < rank; i++) step[i] = 1;
    for (int i = 0; i < node->input_count; i++) {
        Shape shape = graph_value(graph, node->inputs[i])->shape;
        if (gradient_wanted(d, node->inputs[i])) {
            Attribute attributes[3] = {attribute_integers("starts", start, rank),
                                       attribute_integers("steps", step, rank),
                                       attribute_integers("shape", shape.dim, rank)};
            gradient_add(d, node->inputs[i], build_node(d->b, OP_Slice, &dy, 1, attributes, 3));
        }
        start[axis] += shape.dim[axis];
    }
    return true;
}

void lower_concat(Lowering *lowering, const Node *node)
{
    View to = lower_output(lowering, node->outputs[0]);
    int64_t axis = node_integer(node, "axis", 0);
    normalize_axis(&axis, to.shape.rank);
    for (int i = 0; i < node->input_count; i++) {
        View from = lower_view(lowering, node->inputs[i]);
        to.shape = from.shape;
        if (shape_elements(&from.shape)) lower_copy(lowering, opcodes[node->op].name, &from, &to);
        to.offset += to.stride[axis] * from.shape.dim[axis];
    }
}
