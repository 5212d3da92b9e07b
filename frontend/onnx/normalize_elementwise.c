#include <math.h>
#include <string.h>

#include "frontend/onnx/normalize.h"
#include "frontend/onnx/importer.h"
#include "graph/ops/add_node.h"

/* The constant integers a and b, broadcast, hold no division that has no result. */
static bool check_division(OnnxNode *node)
{
    const Value *a = graph_value(node->graph, node->inputs[0]), *b = graph_value(node->graph, node->inputs[1]);
    if (!dtype_is_integer(b->dtype) || b->role != ROLE_CONSTANT) return true;
    int64_t least = a->dtype == DTYPE_I32 ? INT32_MIN : INT64_MIN;
    bool overflows = false;
    if (a->role == ROLE_CONSTANT && a->dtype == b->dtype)
        for (int64_t i = 0; !overflows && i < shape_elements(&a->shape); i++)
            overflows = element_as_integer(a->dtype, a->data, i) == least;
    for (int64_t i = 0; i < shape_elements(&b->shape); i++) {
        int64_t divisor = element_as_integer(b->dtype, b->data, i);
        if (divisor == 0) return node_error(node, NULL, "divides integers by zero");
        if (divisor == -1 && overflows)
            return node_error(node, NULL, "divides the least integer by -1, which overflows");
    }
    return true;
}

bool normalize_integer_division(OnnxNode *node) { return check_division(node) && normalize_direct(node); }

bool normalize_modulo(OnnxNode *node)
{
    int64_t fmod = integer_attribute(node, "fmod", 0) != 0;
    return check_division(node) && set_output(node, 0, emit_along(node, OP_Mod, node->inputs, 2, "fmod", fmod));
}

/* The exponent may be of another type than the base, which is the result's. */
bool normalize_power(OnnxNode *node)
{
    ValueId base = node->inputs[0], exponent = node->inputs[1];
    DType type = dtype_of(node, base), other = dtype_of(node, exponent);
    if (dtype_is_integer(type) && dtype_is_float(other))
        return set_output(node, 0,
                          emit_cast(node, emit_binary(node, OP_Pow, emit_cast(node, base, other), exponent), type));
    return set_output(node, 0, emit_binary(node, OP_Pow, base, emit_cast(node, exponent, type)));
}

static ValueId fold_inputs(OnnxNode *node)
{
    ValueId result = node->inputs[0];
    for (int i = 1; i < node->input_count; i++) result = emit_binary(node, node->rule->opcode, result, node->inputs[i]);
    return result;
}

bool normalize_variadic(OnnxNode *node) { return set_output(node, 0, fold_inputs(node)); }

bool normalize_mean(OnnxNode *node)
{
    DType type = dtype_of(node, node->inputs[0]);
    return set_output(node, 0,
                      emit_binary(node, OP_Div, fold_inputs(node), emit_scalar(node, type, node->input_count)));
}

bool normalize_clip(OnnxNode *node)
{
    static const char *const names[] = {"min", "max"};
    ValueId result = node->inputs[0], bounds[2] = {0, 0};
    if (node->opset < 11 && node->input_count != 1)
        return node_error(node, NULL, "has bounds as inputs, which need opset 11");
    for (int i = 0; i < 2; i++) {
        if (has_input(node, 1 + i)) bounds[i] = node->inputs[1 + i];
        if (node->opset < 11 && attribute_present(node, names[i]))
            bounds[i] = emit_scalar(node, dtype_of(node, result), float_attribute(node, names[i], 0));
    }
    for (int i = 0; i < 2; i++)
        if (bounds[i]) result = emit_binary(node, i ? OP_Min : OP_Max, result, bounds[i]);
    return set_output(node, 0, result);
}

bool normalize_leaky_relu(OnnxNode *node)
{
    double alpha = float_attribute(node, "alpha", 0.01f);
    ValueId x = node->inputs[0];
    DType type = dtype_of(node, x);
    ValueId negative = emit_binary(node, OP_Less, x, emit_scalar(node, type, 0));
    return set_output(node, 0,
                      emit_where(node, negative, emit_binary(node, OP_Mul, x, emit_scalar(node, type, alpha)), x));
}

/* log(1 + e^x) = max(x, 0) + log(1 + e^-|x|), which does not overflow. */
bool normalize_softplus(OnnxNode *node)
{
    ValueId x = node->inputs[0];
    DType type = dtype_of(node, x);
    ValueId small = emit_unary(node, OP_Exp, emit_unary(node, OP_Neg, emit_unary(node, OP_Abs, x)));
    ValueId rest = emit_unary(node, OP_Log, emit_binary(node, OP_Add, small, emit_scalar(node, type, 1)));
    return set_output(node, 0, emit_binary(node, OP_Add, emit_unary(node, OP_Relu, x), rest));
}

bool normalize_gelu(OnnxNode *node)
{
    const char *approximate = string_attribute(node, "approximate", "none");
    bool tanh_form = strcmp(approximate, "tanh") == 0;
    if (!tanh_form && strcmp(approximate, "none") != 0)
        return node_unsupported(node, NULL, "the approximation '%s' is not supported", approximate);
    return set_output(node, 0, emit_along(node, OP_Gelu, node->inputs, 1, "tanh", tanh_form));
}

bool normalize_cast(OnnxNode *node)
{
    ignore_attribute(node, "saturate"); /* for 8-bit floats */
    const char *word = node->opset < 6 ? string_attribute(node, "to", "") : NULL;
    int64_t to = word ? onnx_data_type_named(word, strlen(word)) : integer_attribute(node, "to", 0);
    int32_t number = to > 0 && to < INT32_MAX ? (int32_t)to : -1;
    if (onnx_dtype(number) == DTYPE_NONE)
        return node_unsupported(node, NULL, "casts to %s (%lld), which is not supported",
                                word ? word : onnx_data_type_name(number), (long long)to);
    return set_output(node, 0, emit_cast(node, node->inputs[0], imported_dtype(node->importer, number)));
}

bool normalize_cast_like(OnnxNode *node)
{
    ignore_attribute(node, "saturate");
    return set_output(node, 0, emit_cast(node, node->inputs[0], dtype_of(node, node->inputs[1])));
}

bool normalize_is_infinite(OnnxNode *node)
{
    bool negative = integer_attribute(node, "detect_negative", 1),
         positive = integer_attribute(node, "detect_positive", 1);
    ValueId x = node->inputs[0];
    DType type = dtype_of(node, x);
    if (negative && positive) x = emit_unary(node, OP_Abs, x);
    /* With neither, compare with a number that equals nothing. */
    double infinity = positive ? INFINITY : negative ? -INFINITY : NAN;
    return set_output(node, 0, emit_binary(node, OP_Equal, x, emit_scalar(node, type, infinity)));
}

/* The mask, should somebody ask for it, is where the same Dropout of ones keeps them. */
static bool emit_dropout(OnnxNode *node, double ratio)
{
    ValueId x = node->inputs[0];
    ValueId y = graph_add_dropout(node->graph, x, ratio, node->b.origin, node->importer->diagnostics);
    if (!set_output(node, 0, y)) return false;
    if (node->output_count < 2 || !node->importer->symbols[node->source->outputs[1]].needed) return true;
    Node dropout = *graph_producer(node->graph, y);
    Shape shape = shape_of(node, x);
    ValueId ones = emit_expand(node, emit_scalar(node, dtype_of(node, x), 1), &shape);
    ValueId inputs[3] = {ones, dropout.inputs[1], dropout.inputs[2]};
    ValueId kept = emit_with(node, OP_Dropout, inputs, 3, dropout.attributes, dropout.attribute_count);
    return set_output(node, 1, emit_cast(node, kept, DTYPE_BOOL));
}

/* From opset 7 to 11 the operator is the identity; before, an attribute, and since, an input turns it on. */
bool normalize_dropout(OnnxNode *node)
{
    double ratio = 0;
    ignore_attribute(node, "seed");
    bool training = node->opset < 7 && integer_attribute(node, "is_test", 0) == 0;
    if (node->opset >= 12) {
        training = constant_scalar(node, 2, 0) != 0;
        if (training) ratio = constant_scalar(node, 1, 0.5);
    } else {
        ratio = float_attribute(node, "ratio", 0.5);
    }
    const ImportOptions *options = node->importer->options;
    if (options->dropout_given) {
        ratio = options->dropout;
        training = true;
    }
    if (!(ratio >= 0 && ratio < 1)) return node_error(node, NULL, "has the ratio %g, which is not in [0, 1)", ratio);
    if (training && ratio > 0 && !options->dropout_off) return emit_dropout(node, ratio);
    if (node->output_count > 1) {
        Shape shape = shape_of(node, node->inputs[0]);
        if (!set_output(node, 1, emit_expand(node, emit_scalar(node, DTYPE_BOOL, 1), &shape))) return false;
    }
    return set_output(node, 0, node->inputs[0]);
}

/* ---- Activations that are a few canonical operators ---- */

/* x * sigmoid(alpha x): Swish, SiLU (alpha 1), QuickGelu (alpha 1.702). */
static bool emit_swish(OnnxNode *node, double usual)
{
    ValueId x = node->inputs[0], scaled = x;
    double alpha = float_attribute(node, "alpha", usual);
    if (alpha != 1) scaled = emit_binary(node, OP_Mul, x, emit_scalar(node, dtype_of(node, x), alpha));
    return set_output(node, 0, emit_binary(node, OP_Mul, x, emit_unary(node, OP_Sigmoid, scaled)));
}

bool normalize_swish(OnnxNode *node) { return emit_swish(node, 1); }

bool normalize_quick_gelu(OnnxNode *node) { return emit_swish(node, 1.702f); }

/* max(0, min(1, alpha x + beta)) */
static ValueId emit_hard_sigmoid(OnnxNode *node, double alpha, double beta)
{
    ValueId x = node->inputs[0];
    DType type = dtype_of(node, x);
    ValueId line = emit_binary(node, OP_Add, emit_binary(node, OP_Mul, x, emit_scalar(node, type, alpha)),
                               emit_scalar(node, type, beta));
    return emit_binary(node, OP_Max, emit_binary(node, OP_Min, line, emit_scalar(node, type, 1)),
                       emit_scalar(node, type, 0));
}

bool normalize_hard_sigmoid(OnnxNode *node)
{
    double alpha = float_attribute(node, "alpha", 0.2f), beta = float_attribute(node, "beta", 0.5);
    return set_output(node, 0, emit_hard_sigmoid(node, alpha, beta));
}

bool normalize_hard_swish(OnnxNode *node)
{
    return set_output(node, 0, emit_binary(node, OP_Mul, node->inputs[0], emit_hard_sigmoid(node, 1.0 / 6, 0.5)));
}

/* A Gemm followed by an activation. */
bool normalize_fused_gemm(OnnxNode *node)
{
    static const struct {
        const char *name;
        Opcode op;
    } activations[] = {{"Relu", OP_Relu}, {"Tanh", OP_Tanh}, {"Sigmoid", OP_Sigmoid}};
    const char *activation = string_attribute(node, "activation", "");
    if (!normalize_gemm(node) || !*activation) return node->outputs[0] != 0;
    for (size_t i = 0; i < sizeof activations / sizeof *activations; i++)
        if (strcmp(activations[i].name, activation) == 0)
            return set_output(node, 0, emit_unary(node, activations[i].op, node->outputs[0]));
    return node_unsupported(node, NULL, "its activation '%s' is not supported", activation);
}

/* ---- Rounding of comparisons and conversions: exports compute positions with it, never activations ---- */

/* The integer next to x towards zero; numbers so large that they have no fraction, infinities and NaN stay. */
static ValueId emit_truncated(OnnxNode *node, ValueId x)
{
    enum { BITS = 51 }; /* from 2^52 on doubles have no fraction, and integers of 64 bits reach that far */
    if (!x) return 0;
    DType type = dtype_of(node, x);
    ValueId large = emit_scalar(node, type, (double)((int64_t)1 << BITS));
    if (type == DTYPE_F16) large = emit_scalar(node, type, 2048);
    ValueId whole = emit_cast(node, emit_cast(node, x, DTYPE_I64), type);
    return emit_where(node, emit_binary(node, OP_Less, emit_unary(node, OP_Abs, x), large), whole, x);
}

static ValueId emit_floor(OnnxNode *node, ValueId x)
{
    ValueId whole = emit_truncated(node, x);
    if (!whole) return 0;
    ValueId below = emit_cast(node, emit_binary(node, OP_Less, x, whole), dtype_of(node, x));
    return emit_binary(node, OP_Sub, whole, below);
}

bool normalize_floor(OnnxNode *node) { return set_output(node, 0, emit_floor(node, node->inputs[0])); }

bool normalize_ceil(OnnxNode *node)
{
    ValueId negative = emit_unary(node, OP_Neg, node->inputs[0]);
    return set_output(node, 0, emit_unary(node, OP_Neg, emit_floor(node, negative)));
}

/* Halves go to the even neighbour. */
bool normalize_round(OnnxNode *node)
{
    ValueId x = node->inputs[0], below = emit_floor(node, x);
    if (!below) return false;
    DType type = dtype_of(node, x);
    ValueId half = emit_scalar(node, type, 0.5), zero = emit_scalar(node, type, 0);
    ValueId rest = emit_binary(node, OP_Sub, x, below);
    ValueId even = emit_floor(node, emit_binary(node, OP_Mul, below, half));
    ValueId odd = emit_binary(node, OP_Sub, below, emit_binary(node, OP_Add, even, even));
    ValueId up = emit_binary(node, OP_And, emit_binary(node, OP_Equal, rest, half),
                             emit_unary(node, OP_Not, emit_binary(node, OP_Equal, odd, zero)));
    up = emit_binary(node, OP_Or, up, emit_binary(node, OP_Greater, rest, half));
    /* An infinity less itself is NaN, which is neither. */
    return set_output(node, 0, emit_binary(node, OP_Add, below, emit_cast(node, up, type)));
}
