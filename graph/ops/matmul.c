/* Matrix products as numpy.matmul defines them. */
#include "graph/ops/add_node.h"
#include "graph/ops/lower.h"
#include "graph/ops/masked.h"
#include "graph/ops/operator.h"

enum { MAX_BATCH_AXES = KERNEL_MAX_AXES - 3 };

/* A vector is a row on the left and a column on the right. */
static Shape as_matrix(const Shape *shape, bool left)
{
    if (shape->rank > 1) return *shape;
    return left ? (Shape){2, {1, shape->dim[0]}} : (Shape){2, {shape->dim[0], 1}};
}

static Shape batch_of(const Shape *matrix)
{
    Shape batch = *matrix;
    batch.rank -= 2;
    return batch;
}

bool axes_matmul(const Graph *graph, const Node *node, int output, int axis, int *axes)
{
    const Shape *a = &graph_value(graph, node->inputs[0])->shape, *b = &graph_value(graph, node->inputs[1])->shape;
    const Shape *result = &graph_value(graph, node->outputs[output])->shape;
    int rank = result->rank;
    if (a->rank < 2 || b->rank < 2) return false;
    axes[0] = axis == rank - 1 ? -1 : axis == rank - 2 ? a->rank - 2 : axis_broadcast(a, result, axis);
    axes[1] = axis == rank - 2 ? -1 : axis == rank - 1 ? b->rank - 1 : axis_broadcast(b, result, axis);
    return true;
}

bool infer_matmul(InferContext *context)
{
    const Value *left = infer_input(context, 0), *right = infer_input(context, 1);
    char a_text[256], b_text[256];
    if (left->dtype != right->dtype)
        return operator_error(context, "insert a Cast", "inputs have different types, %s and %s",
                              dtype_name(left->dtype), dtype_name(right->dtype));
    if (left->dtype == DTYPE_BOOL) return operator_error(context, NULL, "does not take inputs of type bool");
    if (left->shape.rank == 0 || right->shape.rank == 0) return operator_error(context, NULL, "an input is a scalar");
    Shape a = as_matrix(&left->shape, true), b = as_matrix(&right->shape, false);
    Shape batch_a = batch_of(&a), batch_b = batch_of(&b), shape;
    if (a.dim[a.rank - 1] != b.dim[b.rank - 2] || !shape_broadcast(&batch_a, &batch_b, &shape))
        return operator_error(context, NULL, "shapes %s and %s do not multiply", shape_format(&left->shape, a_text),
                              shape_format(&right->shape, b_text));
    if (shape.rank > MAX_BATCH_AXES)
        return operator_error(context, NULL, "has more than %d batch dimensions", MAX_BATCH_AXES);
    if (left->shape.rank > 1) shape.dim[shape.rank++] = a.dim[a.rank - 2];
    if (right->shape.rank > 1) shape.dim[shape.rank++] = b.dim[b.rank - 1];
    context->dtype[0] = left->dtype;
    context->shape[0] = shape;
    return true;
}

/* ---- Gradient ---- */

static ValueId transposed(Differentiation *d, ValueId matrix)
{
    int rank = graph_value(d->graph, matrix)->shape.rank;
    int64_t perm[MAX_RANK];
    for (int i = 0; i < rank; i++) perm[i] = i;
    perm[rank - 2] = rank - 1;
    perm[rank - 1] = rank - 2;
    return build_transpose(d->b, matrix, perm);
}

/* Adds a contribution that is a matrix to the gradient of a value that may be a vector. */
static void add_matrix(Differentiation *d, ValueId value, const Shape *matrix, ValueId contribution)
{
    Shape shape = graph_value(d->graph, value)->shape;
    contribution = gradient_unbroadcast(d, contribution, matrix);
    gradient_add(d, value, build_reshape(d->b, contribution, &shape));
}

bool differentiate_matmul(Differentiation *d, const Node *node)
{
    const Graph *graph = d->graph;
    ValueId left = node->inputs[0], right = node->inputs[1], dy = gradient_of(d, node->outputs[0]);
    Shape a = as_matrix(&graph_value(graph, left)->shape, true);
    Shape b = as_matrix(&graph_value(graph, right)->shape, false), batch_a = batch_of(&a), batch_b = batch_of(&b), y;
    if (b.rank == 2) {
        /* One product over all rows, so that the gradient of a weight is a single sum over all tokens. */
        int64_t rows = 1;
        for (int i = 0; i < a.rank - 1; i++) rows *= a.dim[i];
        a = (Shape){2, {rows, a.dim[a.rank - 1]}};
        y = (Shape){0};
    } else {
        shape_broadcast(&batch_a, &batch_b, &y);
    }
    y.dim[y.rank++] = a.dim[a.rank - 2];
    y.dim[y.rank++] = b.dim[b.rank - 1];
    dy = build_reshape(d->b, dy, &y);
    if (gradient_wanted(d, left)) {
        ValueId matrix = transposed(d, build_reshape(d->b, right, &b));
        add_matrix(d, left, &a, build_binary(d->b, OP_MatMul, dy, matrix));
    }
    if (gradient_wanted(d, right)) {
        ValueId matrix = transposed(d, build_reshape(d->b, left, &a));
        add_matrix(d, right, &b, build_binary(d->b, OP_MatMul, matrix, dy));
    }
    return true;
}

/* ---- Lowering ---- */

/* The strides of an operand by batch axes, m, n and k; `row` and `column` are the kernel's axes of its last two
 * dimensions, a vector having the inner one only. */
static void operand_strides(const View *view, int batch, int row, int column, bool vector, int vector_axis,
                            int64_t *stride)
{
    int rank = view->shape.rank;
    if (vector) {
        stride[vector_axis] = view->stride[rank - 1];
        return;
    }
    for (int i = 0; i < rank - 2; i++)
        if (view->shape.dim[i] != 1) stride[batch - (rank - 2) + i] = view->stride[i];
    stride[row] = view->stride[rank - 2];
    stride[column] = view->stride[rank - 1];
}

void lower_matmul(Lowering *lowering, const Node *node)
{
    View left = lower_view(lowering, node->inputs[0]), right = lower_view(lowering, node->inputs[1]);
    View output = lower_output(lowering, node->outputs[0]);
    Shape a = as_matrix(&left.shape, true), b = as_matrix(&right.shape, false), batch_a = batch_of(&a),
          batch_b = batch_of(&b), batch;
    shape_broadcast(&batch_a, &batch_b, &batch);
    int m = batch.rank, n = m + 1, k = m + 2;
    int64_t extent[KERNEL_MAX_AXES];
    for (int i = 0; i < batch.rank; i++) extent[i] = batch.dim[i];
    extent[m] = a.dim[a.rank - 2];
    extent[n] = b.dim[b.rank - 1];
    extent[k] = a.dim[a.rank - 1];

    int64_t a_stride[KERNEL_MAX_AXES] = {0}, b_stride[KERNEL_MAX_AXES] = {0}, c_stride[KERNEL_MAX_AXES] = {0};
    operand_strides(&left, m, m, k, left.shape.rank == 1, k, a_stride);
    operand_strides(&right, m, k, n, right.shape.rank == 1, k, b_stride);
    int64_t step = 1;
    for (int i = n; i >= 0; i--) {
        c_stride[i] = step;
        step *= extent[i];
    }
    Kernel *kernel = lower_begin(lowering, opcodes[node->op].name, k + 1, extent);
    Register factor[2];
    for (int i = 0; i < 2; i++) {
        int operand = lower_operand(lowering, i ? &right : &left, i ? b_stride : a_stride);
        kernel->operands[operand].often_zero = value_is_often_zero(lowering->graph, node->inputs[i]);
        factor[i] = kernel_load(kernel, operand);
    }
    Register sum = kernel_reduce(kernel, KERNEL_SUM, kernel_multiply(kernel, factor[0], factor[1]));
    kernel_begin_phase(kernel, false);
    kernel_store(kernel, lower_operand(lowering, &output, c_stride), sum);
    lower_end(lowering);
}
