/* Rows chosen by an index tensor. Negative indices count from the end; indices outside the axis are moved to its
 * nearest end, so that no input makes a program touch foreign memory (the interpreter used for constants does the
 * same). */
#include "graph/ops/add_node.h"
#include "graph/ops/lower.h"
#include "graph/ops/operator.h"

static bool is_index(DType dtype) { return dtype == DTYPE_I32 || dtype == DTYPE_I64; }

bool infer_gather(InferContext *context)
{
    const Value *data = infer_input(context, 0), *indices = infer_input(context, 1);
    int64_t axis = node_integer(context->node, "axis", 0);
    if (!is_index(indices->dtype))
        return operator_error(context, NULL, "indices of type %s", dtype_name(indices->dtype));
    if (!normalize_axis(&axis, data->shape.rank))
        return operator_error(context, NULL, "axis %lld does not exist", (long long)axis);
    if (data->shape.rank - 1 + indices->shape.rank > MAX_RANK)
        return operator_error(context, NULL, "the result has more than %d dimensions", MAX_RANK);
    if (data->shape.dim[axis] == 0 && shape_elements(&indices->shape) > 0)
        return operator_error(context, NULL, "gathers from an empty axis");
    Shape *shape = &context->shape[0];
    for (int i = 0; i < axis; i++) shape->dim[shape->rank++] = data->shape.dim[i];
    for (int i = 0; i < indices->shape.rank; i++) shape->dim[shape->rank++] = indices->shape.dim[i];
    for (int i = (int)axis + 1; i < data->shape.rank; i++) shape->dim[shape->rank++] = data->shape.dim[i];
    context->dtype[0] = data->dtype;
    return true;
}

/* Along the axes of the indices, and along the others of the data. */
bool axes_gather(const Graph *graph, const Node *node, int output, int axis, int *axes)
{
    const Shape *data = &graph_value(graph, node->inputs[0])->shape;
    int64_t gathered = node_integer(node, "axis", 0);
    int index_rank = graph_value(graph, node->inputs[1])->shape.rank;
    (void)output;
    normalize_axis(&gathered, data->rank);
    bool indexed = axis >= gathered && axis < gathered + index_rank;
    axes[0] = indexed ? -1 : axis < gathered ? axis : axis - index_rank + 1;
    axes[1] = indexed ? axis - (int)gathered : -1;
    return true;
}

bool axes_gather_gradient(const Graph *graph, const Node *node, int output, int axis, int *axes)
{
    int64_t gathered = node_integer(node, "axis", 0);
    normalize_axis(&gathered, graph_value(graph, node->outputs[output])->shape.rank);
    axes[1] = axis < gathered ? axis : axis + graph_value(graph, node->inputs[0])->shape.rank - 1;
    return axis != gathered;
}

bool differentiate_gather(Differentiation *d, const Node *node)
{
    if (!gradient_wanted(d, node->inputs[0])) return true;
    Shape shape = graph_value(d->graph, node->inputs[0])->shape;
    const Attribute *left_out = node_attribute(node, "no_gradient");
    Attribute attributes[3] = {attribute_integer("axis", node_integer(node, "axis", 0)),
                               attribute_integers("shape", shape.dim, shape.rank)};
    if (left_out) attributes[2] = *left_out;
    ValueId inputs[2] = {node->inputs[1], gradient_of(d, node->outputs[0])};
    gradient_add(d, node->inputs[0], build_node(d->b, OP_GatherGradient, inputs, 2, attributes, left_out ? 3 : 2));
    return true;
}

/* Axes: the dimensions before the gathered one, those of the indices, those after it. */
void lower_gather(Lowering *lowering, const Node *node)
{
    View known = lower_view(lowering, node->inputs[0]);
    if (movement_view(lowering->graph, node, &known)) {
        lower_movement(lowering, node);
        return;
    }
    View data = lower_view(lowering, node->inputs[0]), indices = lower_view(lowering, node->inputs[1]);
    View output = lower_output(lowering, node->outputs[0]);
    if (shape_elements(&output.shape) == 0) return;
    int64_t axis = node_integer(node, "axis", 0);
    normalize_axis(&axis, data.shape.rank);

    int64_t extent[KERNEL_MAX_AXES], stride[KERNEL_MAX_AXES] = {0}, index_stride[KERNEL_MAX_AXES] = {0}, elements;
    int axes = lower_axes(&output.shape, extent), first = (int)axis, after = first + indices.shape.rank;
    for (int i = 0; i < indices.shape.rank; i++) index_stride[first + i] = indices.stride[i];
    for (int i = 0; i < first; i++) stride[i] = data.stride[i];
    for (int i = first + 1; i < data.shape.rank; i++) stride[after + i - first - 1] = data.stride[i];

    Kernel *kernel = lower_begin(lowering, opcodes[node->op].name, axes, extent);
    bool rows = first + 1 < data.shape.rank; /* an index chooses a run of elements, not a single one */
    if (rows) kernel_begin_phase(kernel, false);
    int from = lower_operand_indexed(lowering, &data, stride, &elements);
    Register index = kernel_load(kernel, lower_operand(lowering, &indices, index_stride));
    index = lower_index(kernel, index, data.shape.dim[axis]);
    Register offset = lower_scaled(kernel, index, data.stride[axis], data.offset);
    if (rows) kernel_begin_phase(kernel, true);
    Register value = kernel_load_at(kernel, from, offset, elements);
    kernel_store(kernel, lower_operand_broadcast(lowering, &output), value);
    lower_end(lowering);
}

bool infer_gather_gradient(InferContext *context)
{
    const Value *indices = infer_input(context, 0), *dy = infer_input(context, 1);
    int64_t axis = node_integer(context->node, "axis", 0);
    Shape shape;
    if (!is_index(indices->dtype))
        return operator_error(context, NULL, "indices of type %s", dtype_name(indices->dtype));
    if (!node_shape(context->node, "shape", &shape) || !normalize_axis(&axis, shape.rank))
        return operator_error(context, NULL, "there is no shape with this axis");
    if (dy->shape.rank != shape.rank - 1 + indices->shape.rank)
        return operator_error(context, NULL, "the gradient has another rank than what was gathered");
    const Attribute *left_out = node_attribute(context->node, "no_gradient");
    if (left_out && (left_out->kind != ATTRIBUTE_INTEGERS || left_out->count > MOST_ROWS_LEFT_OUT))
        return operator_error(context, NULL, "more than %d rows are to get no gradient", MOST_ROWS_LEFT_OUT);
    context->dtype[0] = dy->dtype;
    context->shape[0] = shape;
    return true;
}

/* The gradient of a sum of scattered rows: each row gathered again. */
bool differentiate_gather_gradient(Differentiation *d, const Node *node)
{
    if (!gradient_wanted(d, node->inputs[1])) return true;
    if (node_attribute(node, "no_gradient")) return false;
    Attribute axis = attribute_integer("axis", node_integer(node, "axis", 0));
    ValueId inputs[2] = {gradient_of(d, node->outputs[0]), node->inputs[0]};
    gradient_add(d, node->inputs[1], build_node(d->b, OP_Gather, inputs, 2, &axis, 1));
    return true;
}

/* The value, or 0 if the index is one that gets no gradient. */
static Register without_left_out(Kernel *kernel, const Node *node, Register index, Register value)
{
    const Attribute *left_out = node_attribute(node, "no_gradient");
    for (int i = 0; left_out && i < left_out->count; i++) {
        Register row = kernel_constant_integer(kernel, left_out->integers[i]);
        Register zero = kernel_constant_like(kernel, value, 0);
        value = kernel_select(kernel, kernel_binary(kernel, KERNEL_EQUAL, index, row), zero, value);
    }
    return value;
}

/* Zeros, then rows added in the order of the indices: outer axes along the row, the indices as inner axis. */
void lower_gather_gradient(Lowering *lowering, const Node *node)
{
    View output = lower_output(lowering, node->outputs[0]);
    lower_fill(lowering, &output, 0);
    int64_t axis = node_integer(node, "axis", 0);
    normalize_axis(&axis, output.shape.rank);
    int first = (int)axis, index_rank = graph_value(lowering->graph, node->inputs[0])->shape.rank;
    View indices = lower_view_merged(lowering, node->inputs[0], 0, index_rank);
    View dy = lower_view_merged(lowering, node->inputs[1], first, index_rank);
    if (shape_elements(&dy.shape) == 0) return;

    int64_t extent[KERNEL_MAX_AXES], to[KERNEL_MAX_AXES] = {0}, from[KERNEL_MAX_AXES] = {0};
    int64_t index_stride[KERNEL_MAX_AXES] = {0}, elements;
    int axes = 0;
    for (int i = 0; i < output.shape.rank; i++) {
        if (i == first) continue;
        extent[axes] = output.shape.dim[i];
        to[axes] = output.stride[i];
        from[axes++] = dy.stride[i < first ? i : i - 1 + index_rank];
    }
    extent[axes] = shape_elements(&indices.shape);
    view_merge(&indices, 0, index_rank, &index_stride[axes]);
    view_merge(&dy, first, index_rank, &from[axes]);

    Kernel *kernel = lower_begin(lowering, opcodes[node->op].name, axes + 1, extent);
    int target = lower_operand_indexed(lowering, &output, to, &elements);
    Register index = kernel_load(kernel, lower_operand(lowering, &indices, index_stride));
    index = lower_index(kernel, index, output.shape.dim[axis]);
    Register offset = lower_scaled(kernel, index, output.stride[axis], 0);
    Register value = kernel_load(kernel, lower_operand(lowering, &dy, from));
    kernel_store_add_at(kernel, target, without_left_out(kernel, node, index, value), offset, elements);
    lower_end(lowering);
}

/* What was read several times adds up: the gradient is scattered into zeros, placed by the same attribute. */
static bool differentiate_by_scatter(Differentiation *d, const Node *node, Opcode scatter, const char *placement)
{
    if (!gradient_wanted(d, node->inputs[0])) return true;
    Shape shape = graph_value(d->graph, node->inputs[0])->shape;
    Attribute attributes[3] = {attribute_integer(placement, node_integer(node, placement, 0)),
                               attribute_string("reduction", "add"),
                               attribute_integers("shape", shape.dim, shape.rank)};
    ValueId inputs[2] = {node->inputs[1], gradient_of(d, node->outputs[0])};
    gradient_add(d, node->inputs[0], build_node(d->b, scatter, inputs, 2, attributes, 3));
    return true;
}

/* ---- An index for every element ---- */

bool infer_gather_elements(InferContext *context)
{
    const Value *data = infer_input(context, 0), *indices = infer_input(context, 1);
    int64_t axis = node_integer(context->node, "axis", 0);
    if (!is_index(indices->dtype))
        return operator_error(context, NULL, "indices of type %s", dtype_name(indices->dtype));
    if (!normalize_axis(&axis, data->shape.rank) || indices->shape.rank != data->shape.rank)
        return operator_error(context, NULL, "data and indices must have the same number of dimensions");
    for (int i = 0; i < data->shape.rank; i++)
        if (i != axis && indices->shape.dim[i] > data->shape.dim[i])
            return operator_error(context, NULL, "there are more indices than data along dimension %d", i);
    if (data->shape.dim[axis] == 0 && shape_elements(&indices->shape) > 0)
        return operator_error(context, NULL, "gathers from an empty axis");
    context->dtype[0] = data->dtype;
    context->shape[0] = indices->shape;
    return true;
}

bool differentiate_gather_elements(Differentiation *d, const Node *node)
{
    return differentiate_by_scatter(d, node, OP_ScatterElements, "axis");
}

void lower_gather_elements(Lowering *lowering, const Node *node)
{
    View data = lower_view(lowering, node->inputs[0]), indices = lower_view(lowering, node->inputs[1]);
    View output = lower_output(lowering, node->outputs[0]);
    if (shape_elements(&output.shape) == 0) return;
    int64_t axis = node_integer(node, "axis", 0), stride[KERNEL_MAX_AXES] = {0}, elements;
    normalize_axis(&axis, data.shape.rank);
    for (int i = 0; i < data.shape.rank; i++) stride[i] = i == axis ? 0 : data.stride[i];
    Kernel *kernel = lower_begin_over(lowering, opcodes[node->op].name, &output.shape);
    int from = lower_operand_indexed(lowering, &data, stride, &elements);
    Register index = kernel_load(kernel, lower_operand_broadcast(lowering, &indices));
    index = lower_index(kernel, index, data.shape.dim[axis]);
    Register offset = lower_scaled(kernel, index, data.stride[axis], data.offset);
    Register value = kernel_load_at(kernel, from, offset, elements);
    kernel_store(kernel, lower_operand_broadcast(lowering, &output), value);
    lower_end(lowering);
}

/* ---- Tuples of indices ---- */

bool infer_gather_nd(InferContext *context)
{
    const Value *data = infer_input(context, 0), *indices = infer_input(context, 1);
    int64_t batch = node_integer(context->node, "batch_dims", 0);
    int last = indices->shape.rank - 1;
    if (!is_index(indices->dtype))
        return operator_error(context, NULL, "indices of type %s", dtype_name(indices->dtype));
    if (last < 0 || batch < 0 || batch > last || batch > data->shape.rank ||
        indices->shape.dim[last] > data->shape.rank - batch)
        return operator_error(context, NULL, "the indices have the wrong number of dimensions");
    int after = (int)(batch + indices->shape.dim[last]);
    if (last + data->shape.rank - after > MAX_RANK)
        return operator_error(context, NULL, "the result has more than %d dimensions", MAX_RANK);
    Shape *shape = &context->shape[0];
    for (int i = 0; i < last; i++) shape->dim[shape->rank++] = indices->shape.dim[i];
    for (int i = after; i < data->shape.rank; i++) shape->dim[shape->rank++] = data->shape.dim[i];
    for (int i = 0; i < batch; i++)
        if (indices->shape.dim[i] != data->shape.dim[i])
            return operator_error(context, NULL, "data and indices differ in batch dimension %d", i);
    if (shape_elements(&data->shape) == 0 && shape_elements(shape) != 0)
        return operator_error(context, NULL, "gathers from an empty tensor");
    context->dtype[0] = data->dtype;
    return true;
}

bool differentiate_gather_nd(Differentiation *d, const Node *node)
{
    return differentiate_by_scatter(d, node, OP_ScatterND, "batch_dims");
}

/* Axes: those of the indices but the last, then those of the slices that a tuple chooses. */
void lower_gather_nd(Lowering *lowering, const Node *node)
{
    View data = lower_view(lowering, node->inputs[0]), indices = lower_view(lowering, node->inputs[1]);
    View output = lower_output(lowering, node->outputs[0]);
    if (shape_elements(&output.shape) == 0) return;
    int batch = (int)node_integer(node, "batch_dims", 0), last = indices.shape.rank - 1;
    int width = (int)indices.shape.dim[last], after = batch + width;
    int64_t stride[KERNEL_MAX_AXES] = {0}, tuple[KERNEL_MAX_AXES] = {0}, elements;
    for (int i = 0; i < last; i++) tuple[i] = indices.stride[i];
    for (int i = 0; i < batch; i++) stride[i] = data.stride[i];
    for (int i = after; i < data.shape.rank; i++) stride[last + i - after] = data.stride[i];

    Kernel *kernel = lower_begin_over(lowering, opcodes[node->op].name, &output.shape);
    bool slices = after < data.shape.rank;
    if (slices) kernel_begin_phase(kernel, false);
    int from = lower_operand_indexed(lowering, &data, stride, &elements);
    Register offset = lower_tuple(lowering, &data, batch, &indices, tuple);
    if (slices) kernel_begin_phase(kernel, true);
    Register value = kernel_load_at(kernel, from, offset, elements);
    kernel_store(kernel, lower_operand_broadcast(lowering, &output), value);
    lower_end(lowering);
}
