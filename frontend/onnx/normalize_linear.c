#include "frontend/onnx/normalize.h"

/* The graph's MatMul takes vectors, too, but pruning looks through products of matrices alone. So a vector becomes a
 * matrix of one row (on the left) or of one column (on the right), a dimension that the result loses again. */
ValueId emit_matmul(OnnxNode *node, ValueId a, ValueId b)
{
    if (!a || !b) return 0;
    Shape left = shape_of(node, a), right = shape_of(node, b);
    if (left.rank == 0 || right.rank == 0)
        return node_error(node, NULL, "multiplies a scalar; it takes vectors and matrices"), 0;
    if (left.rank == 1) a = emit_reshape(node, a, &(Shape){2, {1, left.dim[0]}});
    if (right.rank == 1) b = emit_reshape(node, b, &(Shape){2, {right.dim[0], 1}});
    ValueId product = emit_binary(node, OP_MatMul, a, b);
    if (!product || (left.rank > 1 && right.rank > 1)) return product;
    Shape padded = shape_of(node, product), shape = {0};
    for (int i = 0; i < padded.rank; i++)
        if (!(left.rank == 1 && i == padded.rank - 2) && !(right.rank == 1 && i == padded.rank - 1))
            shape.dim[shape.rank++] = padded.dim[i];
    return emit_reshape(node, product, &shape);
}

bool normalize_matmul(OnnxNode *node)
{
    return set_output(node, 0, emit_matmul(node, node->inputs[0], node->inputs[1]));
}

ValueId emit_scaled(OnnxNode *node, ValueId value, double factor)
{
    if (!value || factor == 1) return value;
    return emit_binary(node, OP_Mul, value, emit_scalar(node, dtype_of(node, value), factor));
}

/* alpha * A * B + beta * C, either factor transposed if its attribute says so. */
bool normalize_gemm(OnnxNode *node)
{
    double alpha = float_attribute(node, "alpha", 1), beta = float_attribute(node, "beta", 1);
    bool transpose_a = integer_attribute(node, "transA", 0), transpose_b = integer_attribute(node, "transB", 0);
    ValueId a = node->inputs[0], b = node->inputs[1];
    if (shape_of(node, a).rank != 2 || shape_of(node, b).rank != 2) return node_error(node, NULL, "takes two matrices");
    if (transpose_a) a = emit_swap_axes(node, a, 0, 1);
    if (transpose_b) b = emit_swap_axes(node, b, 0, 1);
    ValueId result = emit_scaled(node, emit_binary(node, OP_MatMul, a, b), alpha);
    if (!result || !has_input(node, 2) || beta == 0) return set_output(node, 0, result);
    /* In old files C may be double where the factors are float. */
    ValueId addend = emit_scaled(node, emit_cast(node, node->inputs[2], dtype_of(node, result)), beta);
    Shape shape = shape_of(node, result), other = shape_of(node, node->inputs[2]);
    if (other.rank > 2) return node_error(node, NULL, "adds a tensor of rank %d to a matrix", other.rank);
    ValueId sum = emit_binary(node, OP_Add, result, addend);
    if (!sum) return false;
    Shape after = shape_of(node, sum);
    if (!shape_equal(&after, &shape))
        return node_error(node, NULL, "its third input does not broadcast to the product");
    return set_output(node, 0, sum);
}

/* ---- What the forms of attention share ---- */

ValueId emit_split_heads(OnnxNode *node, ValueId value, int64_t heads)
{
    if (!value) return 0;
    Shape shape = shape_of(node, value);
    if (shape.rank != 3 || heads < 1 || shape.dim[2] % heads)
        return node_error(node, NULL, "cannot split %lld columns into %lld heads",
                          (long long)(shape.rank ? shape.dim[shape.rank - 1] : 1), (long long)heads),
               0;
    Shape split = {4, {shape.dim[0], shape.dim[1], heads, shape.dim[2] / heads}};
    return emit_transpose(node, emit_reshape(node, value, &split), (int64_t[]){0, 2, 1, 3});
}

ValueId emit_join_heads(OnnxNode *node, ValueId value)
{
    if (!value) return 0;
    Shape shape = shape_of(node, value), joined = {3, {shape.dim[0], shape.dim[2], shape.dim[1] * shape.dim[3]}};
    return emit_reshape(node, emit_transpose(node, value, (int64_t[]){0, 2, 1, 3}), &joined);
}

bool check_no_past(OnnxNode *node, int input)
{
    for (int i = input; i < input + 2; i++) {
        if (!has_input(node, i)) continue;
        Shape past = shape_of(node, node->inputs[i]);
        if (past.rank != 4 || past.dim[2] != 0)
            return node_unsupported(node, "export the model without a cache of keys and values",
                                    "has past keys and values, which training does not support");
    }
    return true;
}
