/* Weights of 8 bits: DequantizeLinear makes floats of them, (x - zero point) * scale. They stay as they are: steps of
 * training are smaller than those of 8 bits. */
#include "frontend/onnx/normalize.h"

enum { INPUT_X, INPUT_SCALE, INPUT_ZERO_POINT };

typedef struct Quantized {
    OnnxNode *node;
    Shape shape, scales;
    int64_t axis, block; /* `block` elements along the axis share a scale; 0: one scale for all */
} Quantized;

static bool is_narrow(DType dtype) { return dtype == DTYPE_I8 || dtype == DTYPE_U8; }

bool check_narrow_inputs(const OnnxNode *node)
{
    static NormalizeRule *const movements[] = {
        normalize_dequantize, normalize_alias,   normalize_gather,    normalize_reshape, normalize_flatten,
        normalize_transpose,  normalize_squeeze, normalize_unsqueeze, normalize_slice,   normalize_shape};
    bool narrow = false;
    for (int i = 0; i < node->input_count; i++)
        narrow = narrow || (node->inputs[i] && is_narrow(dtype_of(node, node->inputs[i])));
    for (size_t i = 0; narrow && i < sizeof movements / sizeof *movements; i++)
        narrow = node->rule->apply != movements[i];
    return !narrow || node_unsupported(node, "the model is quantised: export it before it is",
                                       "computes with 8-bit integers, which only DequantizeLinear can read");
}

static bool read_quantized(Quantized *quantized)
{
    OnnxNode *node = quantized->node;
    Shape shape = quantized->shape = shape_of(node, node->inputs[INPUT_X]);
    Shape scales = quantized->scales = shape_of(node, node->inputs[INPUT_SCALE]);
    quantized->axis = integer_attribute(node, "axis", 1);
    quantized->block = integer_attribute(node, "block_size", 0);
    bool typed = integer_attribute(node, "output_dtype", 0);
    DType dtype = dtype_of(node, node->inputs[INPUT_X]), scale = dtype_of(node, node->inputs[INPUT_SCALE]);
    if ((!is_narrow(dtype) && dtype != DTYPE_I32) || scale != DTYPE_F32 || typed)
        return node_unsupported(node, NULL, "takes integers of 8 bits, or INT32, and scales of FLOAT");
    if (has_input(node, INPUT_ZERO_POINT)) {
        Shape zeros = shape_of(node, node->inputs[INPUT_ZERO_POINT]);
        if (!shape_equal(&zeros, &scales) || dtype_of(node, node->inputs[INPUT_ZERO_POINT]) != dtype)
            return node_error(node, NULL, "its zero points have another shape than its scales, or another type than x");
    }
    if (!quantized->block && scales.rank < 2 && shape_elements(&scales) == 1) return true;
    if (!check_axis(node, &quantized->axis, shape.rank)) return false;
    int64_t extent = shape.dim[quantized->axis], block = quantized->block;
    if (block < 0 || block > INT32_MAX) return node_error(node, NULL, "has blocks of an impossible size");
    Shape wanted = {1, {extent}};
    if (block) {
        wanted = shape;
        wanted.dim[quantized->axis] = (extent + block - 1) / block;
    }
    if (!shape_equal(&scales, &wanted)) return node_error(node, NULL, "has scales that do not fit x");
    if (!block) quantized->block = 1;
    return true;
}

/* Computes all in one step: folding would make an extra tensor for every step. */
static ValueId dequantize_constant(const Quantized *quantized, const Value *x, const Value *scale, const Value *zero)
{
    OnnxNode *node = quantized->node;
    void *data;
    ValueId result = emit_dequantized(node, &quantized->shape, &data);
    if (!result) return 0;
    graph_value(node->graph, result)->frozen = true;
    const Shape *shape = &quantized->shape;
    bool blocks = quantized->scales.rank > 1;
    int64_t axis = quantized->axis, inner = 1, extent = quantized->block ? shape->dim[axis] : 1;
    for (int i = (int)axis + 1; quantized->block && i < shape->rank; i++) inner *= shape->dim[i];
    for (int64_t i = 0; i < shape_elements(shape); i++) {
        int64_t place = i / inner % extent, of = 0;
        if (blocks)
            of = (i / inner / extent * quantized->scales.dim[axis] + place / quantized->block) * inner + i % inner;
        else if (quantized->block)
            of = place;
        int64_t number = element_as_integer(x->dtype, x->data, i);
        if (zero) number -= element_as_integer(zero->dtype, zero->data, of);
        ((float *)data)[i] = (float)number * (float)element_as_double(scale->dtype, scale->data, of);
    }
    return result;
}

/* For quantised values that were moved first, such as rows of a table chosen by ids. */
static ValueId dequantize_moved(const Quantized *quantized)
{
    OnnxNode *node = quantized->node;
    if (quantized->scales.rank > 1)
        return node_unsupported(node, NULL, "has blocks in a tensor that is not a constant"), 0;
    Shape wide = {0};
    if (quantized->block) {
        wide = (Shape){quantized->shape.rank, {1, 1, 1, 1, 1, 1, 1, 1}};
        wide.dim[quantized->axis] = quantized->scales.dim[0];
    }
    ValueId x = emit_cast(node, node->inputs[INPUT_X], DTYPE_F32);
    if (has_input(node, INPUT_ZERO_POINT)) {
        ValueId zero = emit_cast(node, node->inputs[INPUT_ZERO_POINT], DTYPE_F32);
        x = emit_binary(node, OP_Sub, x, emit_reshape(node, zero, &wide));
    }
    return emit_binary(node, OP_Mul, x, emit_reshape(node, node->inputs[INPUT_SCALE], &wide));
}

bool normalize_dequantize(OnnxNode *node)
{
    Quantized quantized = {.node = node};
    Value x = *graph_value(node->graph, node->inputs[INPUT_X]), scale, zero;
    if (!read_quantized(&quantized)) return false;
    if (x.role != ROLE_CONSTANT) return set_output(node, 0, dequantize_moved(&quantized));
    bool shifted = has_input(node, INPUT_ZERO_POINT);
    if (!constant_input(node, INPUT_SCALE, &scale) || (shifted && !constant_input(node, INPUT_ZERO_POINT, &zero)))
        return false;
    return set_output(node, 0, dequantize_constant(&quantized, &x, &scale, shifted ? &zero : NULL));
}
