#include <string.h>

#include "frontend/onnx/normalize.h"

static ValueId reduced(OnnxNode *node, ValueId x)
{
    int rank = shape_of(node, node->inputs[0]).rank, count = 0;
    int64_t axes[MAX_RANK], since = strcmp(node->rule->op, "ReduceSum") == 0 ? 13 : 18;
    const int64_t *list;
    bool marked[MAX_RANK], keep = integer_attribute(node, "keepdims", 1),
                           none_if_empty = integer_attribute(node, "noop_with_empty_axes", 0);
    int given = integers_since(node, since, "axes", 1, &list);
    if (!x || !mark_axes(node, list, given > 0 ? given : 0, rank, marked)) return 0;
    for (int i = 0; i < rank; i++)
        if (given > 0 ? marked[i] : !none_if_empty) axes[count++] = i;
    return emit_reduce(node, node->rule->opcode, x, axes, count, keep);
}

/* Minimum and maximum of truth values are those of the numbers 0 and 1. */
bool normalize_reduce(OnnxNode *node)
{
    ValueId x = node->inputs[0];
    if (dtype_of(node, x) != DTYPE_BOOL) return set_output(node, 0, reduced(node, x));
    return set_output(node, 0, emit_cast(node, reduced(node, emit_cast(node, x, DTYPE_I32)), DTYPE_BOOL));
}

bool normalize_reduce_l1(OnnxNode *node)
{
    return set_output(node, 0, reduced(node, emit_unary(node, OP_Abs, node->inputs[0])));
}

static ValueId sum_of_squares(OnnxNode *node, ValueId x) { return reduced(node, emit_binary(node, OP_Mul, x, x)); }

/* The root of integers is taken in double precision and cut to an integer again. */
bool normalize_reduce_l2(OnnxNode *node)
{
    DType type = dtype_of(node, node->inputs[0]);
    ValueId x = dtype_is_float(type) ? node->inputs[0] : emit_cast(node, node->inputs[0], DTYPE_F64);
    return set_output(node, 0, emit_cast(node, emit_unary(node, OP_Sqrt, sum_of_squares(node, x)), type));
}

bool normalize_reduce_sum_square(OnnxNode *node) { return set_output(node, 0, sum_of_squares(node, node->inputs[0])); }

/* Before opset 13 the axes from `axis` on count as one. */
static ValueId flattened_softmax(OnnxNode *node, Shape shape, int64_t axis)
{
    Shape flat = {2, {1, 1}};
    for (int i = 0; i < shape.rank; i++) flat.dim[i >= axis] *= shape.dim[i];
    ValueId x = emit_reshape(node, node->inputs[0], &flat);
    return emit_reshape(node, emit_unary(node, node->rule->opcode, x), &shape);
}

bool normalize_softmax(OnnxNode *node)
{
    Shape shape = shape_of(node, node->inputs[0]);
    int64_t axis = integer_attribute(node, "axis", node->opset < 13 ? 1 : -1);
    if (!check_axis(node, &axis, shape.rank)) return false;
    if (node->opset < 13 && axis != shape.rank - 1) return set_output(node, 0, flattened_softmax(node, shape, axis));
    ValueId x = emit_swap_axes(node, node->inputs[0], (int)axis, shape.rank - 1);
    return set_output(node, 0,
                      emit_swap_axes(node, emit_unary(node, node->rule->opcode, x), (int)axis, shape.rank - 1));
}

/* `scale`, which broadcasts to the normalised dimensions, as one dimension of their product. */
static ValueId flat_scale(OnnxNode *node, ValueId scale, const Shape *normalized, int64_t width)
{
    return emit_reshape(node, emit_expand(node, scale, normalized), &(Shape){1, {width}});
}

typedef struct NormalizedDims {
    Shape whole, inner, flat, statistics; /* flat: [..., width]; statistics: whole with 1 for each inner dimension */
    int64_t width;
    double epsilon;
} NormalizedDims;

static bool read_normalized_dims(OnnxNode *node, NormalizedDims *dims)
{
    Shape shape = shape_of(node, node->inputs[0]);
    int64_t axis = integer_attribute(node, "axis", -1);
    ignore_attribute(node, "stash_type");
    if (!check_axis(node, &axis, shape.rank)) return false;
    *dims = (NormalizedDims){.whole = shape,
                             .flat = {.rank = (int)axis + 1},
                             .statistics = {.rank = shape.rank},
                             .width = 1,
                             .epsilon = float_attribute(node, "epsilon", 1e-5f)};
    for (int i = 0; i < shape.rank; i++) {
        dims->statistics.dim[i] = i < axis ? shape.dim[i] : 1;
        if (i < axis) {
            dims->flat.dim[i] = shape.dim[i];
        } else {
            dims->inner.dim[dims->inner.rank++] = shape.dim[i];
            dims->width *= shape.dim[i];
        }
    }
    dims->flat.dim[axis] = dims->width;
    return true;
}

bool normalize_layer_norm(OnnxNode *node)
{
    NormalizedDims dims;
    if (!read_normalized_dims(node, &dims)) return false;
    ValueId inputs[3] = {emit_reshape(node, node->inputs[0], &dims.flat),
                         flat_scale(node, node->inputs[1], &dims.inner, dims.width), 0};
    if (has_input(node, 2)) inputs[2] = flat_scale(node, node->inputs[2], &dims.inner, dims.width);
    if (!inputs[0] || !inputs[1] || (has_input(node, 2) && !inputs[2])) return false;
    Attribute epsilon = attribute_float("epsilon", dims.epsilon);
    ValueId results[3];
    if (!emit_outputs(node, OP_LayerNormalization, inputs, inputs[2] ? 3 : 2, &epsilon, 1, results, 3)) return false;
    for (int i = 1; i < 3 && i < node->output_count; i++)
        if (!set_output(node, i, emit_reshape(node, results[i], &dims.statistics))) return false;
    return set_output(node, 0, emit_reshape(node, results[0], &dims.whole));
}

/* x / sqrt(mean(x^2) + epsilon) * scale; squares of 16-bit numbers need more room than these have. */
static bool emit_rms_norm(OnnxNode *node, ValueId input, ValueId scale)
{
    NormalizedDims dims;
    if (!input || !read_normalized_dims(node, &dims)) return false;
    DType type = dtype_of(node, input), wide = type == DTYPE_F64 ? DTYPE_F64 : DTYPE_F32;
    ValueId x = emit_cast(node, emit_reshape(node, input, &dims.flat), wide);
    int64_t last = dims.flat.rank - 1;
    ValueId mean = emit_reduce(node, OP_ReduceMean, emit_binary(node, OP_Mul, x, x), &last, 1, true);
    ValueId root = emit_unary(node, OP_Sqrt, emit_binary(node, OP_Add, mean, emit_scalar(node, wide, dims.epsilon)));
    ValueId scaled = emit_binary(node, OP_Mul, emit_cast(node, emit_binary(node, OP_Div, x, root), type),
                                 flat_scale(node, scale, &dims.inner, dims.width));
    return set_output(node, 0, emit_reshape(node, scaled, &dims.whole));
}

bool normalize_rms_norm(OnnxNode *node) { return emit_rms_norm(node, node->inputs[0], node->inputs[1]); }

/* Of com.microsoft: of the sum of input and skip, perhaps with a bias; the sum is the last output. */
bool normalize_skip_rms_norm(OnnxNode *node)
{
    ValueId sum = emit_binary(node, OP_Add, node->inputs[0], node->inputs[1]);
    if (has_input(node, 3)) sum = emit_binary(node, OP_Add, sum, node->inputs[3]);
    return emit_rms_norm(node, sum, node->inputs[2]) && set_output(node, 3, sum);
}
