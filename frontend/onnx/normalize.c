#include "frontend/onnx/normalize.h"

#include <string.h>

/* ---- What nodes said before opset 7, which brought the broadcasting of numpy ---- */

/* With the attribute `broadcast` the second operand's dimensions are those of the first from `axis` on, or its last. */
static bool align_second_operand(OnnxNode *node)
{
    Shape left = shape_of(node, node->inputs[0]), right = shape_of(node, node->inputs[1]);
    bool given = attribute_present(node, "axis"), broadcast = integer_attribute(node, "broadcast", 0);
    int64_t axis = integer_attribute(node, "axis", 0);
    if (!given || !broadcast) return true;
    if (!check_axis(node, &axis, left.rank)) return false;
    if (axis + right.rank > left.rank)
        return node_error(node, NULL, "cannot broadcast %d dimensions from axis %lld on of %d", right.rank,
                          (long long)axis, left.rank);
    while (axis + right.rank < left.rank) right.dim[right.rank++] = 1;
    ValueId *inputs = arena_copy(&node->importer->arena, node->inputs, (size_t)node->input_count * sizeof *inputs);
    inputs[1] = emit_reshape(node, inputs[1], &right);
    node->inputs = inputs;
    return inputs[1] != 0;
}

/* Before opset 7 the second operand of a binary operator broadcast only if told to, from an axis on: brings it into the
 * shape that broadcasts by itself. Also drops attributes of old opsets. */
static bool modernize_node(OnnxNode *node)
{
    static const char *const binary[] = {"Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Equal", "Less", "Greater"};
    const char *op = node->rule->op;
    ignore_attribute(node, "consumed_inputs"); /* which inputs might be overwritten */
    if (strcmp(op, "Gemm") == 0) ignore_attribute(node, "broadcast");
    for (size_t i = 0; i < sizeof binary / sizeof *binary; i++)
        if (strcmp(op, binary[i]) == 0) return align_second_operand(node);
    return true;
}

#define MICROSOFT "com.microsoft"

static const Normalization table[] = {
    {"", "Identity", normalize_alias, OP_NONE, 1, 1, PASSES_GRADIENTS},
    {"", "Neg", normalize_direct, OP_Neg, 1, 1, PASSES_GRADIENTS},
    {"", "Abs", normalize_direct, OP_Abs, 1, 1, PASSES_GRADIENTS},
    {"", "Sign", normalize_direct, OP_Sign, 1, 1, PASSES_GRADIENTS},
    {"", "Exp", normalize_direct, OP_Exp, 1, 1, PASSES_GRADIENTS},
    {"", "Log", normalize_direct, OP_Log, 1, 1, PASSES_GRADIENTS},
    {"", "Sqrt", normalize_direct, OP_Sqrt, 1, 1, PASSES_GRADIENTS},
    {"", "Reciprocal", normalize_direct, OP_Reciprocal, 1, 1, PASSES_GRADIENTS},
    {"", "Sin", normalize_direct, OP_Sin, 1, 1, PASSES_GRADIENTS},
    {"", "Cos", normalize_direct, OP_Cos, 1, 1, PASSES_GRADIENTS},
    {"", "Erf", normalize_direct, OP_Erf, 1, 1, PASSES_GRADIENTS},
    {"", "Tanh", normalize_direct, OP_Tanh, 1, 1, PASSES_GRADIENTS},
    {"", "Sigmoid", normalize_direct, OP_Sigmoid, 1, 1, PASSES_GRADIENTS},
    {"", "Relu", normalize_direct, OP_Relu, 1, 1, PASSES_GRADIENTS},
    {"", "LeakyRelu", normalize_leaky_relu, OP_NONE, 1, 1, PASSES_GRADIENTS},
    {"", "Softplus", normalize_softplus, OP_NONE, 1, 1, PASSES_GRADIENTS},
    {"", "Softsign", normalize_direct, OP_Softsign, 1, 1, PASSES_GRADIENTS},
    {"", "Gelu", normalize_gelu, OP_NONE, 1, 1, PASSES_GRADIENTS},
    {MICROSOFT, "Gelu", normalize_gelu, OP_NONE, 1, 1, PASSES_GRADIENTS},
    {MICROSOFT, "QuickGelu", normalize_quick_gelu, OP_NONE, 1, 1, PASSES_GRADIENTS},
    {"", "Swish", normalize_swish, OP_NONE, 1, 1, PASSES_GRADIENTS},
    {"", "HardSwish", normalize_hard_swish, OP_NONE, 1, 1, PASSES_GRADIENTS},
    {"", "HardSigmoid", normalize_hard_sigmoid, OP_NONE, 1, 1, PASSES_GRADIENTS},
    {"", "Ceil", normalize_ceil, OP_NONE, 1, 1, STOPS_GRADIENTS},
    {"", "Floor", normalize_floor, OP_NONE, 1, 1, STOPS_GRADIENTS},
    {"", "Round", normalize_round, OP_NONE, 1, 1, STOPS_GRADIENTS},
    {"", "If", normalize_if, OP_NONE, 1, -1, PASSES_GRADIENTS},
    {"", "Not", normalize_direct, OP_Not, 1, 1, STOPS_GRADIENTS},
    {"", "IsNaN", normalize_direct, OP_IsNaN, 1, 1, STOPS_GRADIENTS},
    {"", "IsInf", normalize_is_infinite, OP_NONE, 1, 1, STOPS_GRADIENTS},
    {"", "Cast", normalize_cast, OP_NONE, 1, 1, PASSES_GRADIENTS},
    {"", "CastLike", normalize_cast_like, OP_NONE, 2, 2, PASSES_GRADIENTS},
    {"", "Add", normalize_direct, OP_Add, 2, 2, PASSES_GRADIENTS},
    {"", "Sub", normalize_direct, OP_Sub, 2, 2, PASSES_GRADIENTS},
    {"", "Mul", normalize_direct, OP_Mul, 2, 2, PASSES_GRADIENTS},
    {"", "Div", normalize_integer_division, OP_Div, 2, 2, PASSES_GRADIENTS},
    {"", "Mod", normalize_modulo, OP_Mod, 2, 2, PASSES_GRADIENTS},
    {"", "Pow", normalize_power, OP_Pow, 2, 2, PASSES_GRADIENTS},
    {"", "Min", normalize_variadic, OP_Min, 1, -1, PASSES_GRADIENTS},
    {"", "Max", normalize_variadic, OP_Max, 1, -1, PASSES_GRADIENTS},
    {"", "Sum", normalize_variadic, OP_Add, 1, -1, PASSES_GRADIENTS},
    {"", "Mean", normalize_mean, OP_Add, 1, -1, PASSES_GRADIENTS},
    {"", "Clip", normalize_clip, OP_NONE, 1, 3, PASSES_GRADIENTS},
    {"", "And", normalize_direct, OP_And, 2, 2, STOPS_GRADIENTS},
    {"", "Or", normalize_direct, OP_Or, 2, 2, STOPS_GRADIENTS},
    {"", "Equal", normalize_direct, OP_Equal, 2, 2, STOPS_GRADIENTS},
    {"", "Less", normalize_direct, OP_Less, 2, 2, STOPS_GRADIENTS},
    {"", "LessOrEqual", normalize_direct, OP_LessOrEqual, 2, 2, STOPS_GRADIENTS},
    {"", "Greater", normalize_direct, OP_Greater, 2, 2, STOPS_GRADIENTS},
    {"", "GreaterOrEqual", normalize_direct, OP_GreaterOrEqual, 2, 2, STOPS_GRADIENTS},
    {"", "Where", normalize_direct, OP_Where, 3, 3, PASSES_GRADIENTS},
    {"", "Dropout", normalize_dropout, OP_NONE, 1, 3, PASSES_GRADIENTS},
    {"", "Constant", normalize_constant, OP_NONE, 0, 0, STOPS_GRADIENTS},
    {"", "ConstantOfShape", normalize_constant_of_shape, OP_NONE, 1, 1, STOPS_GRADIENTS},
    {"", "Range", normalize_range, OP_NONE, 3, 3, STOPS_GRADIENTS},
    {"", "Shape", normalize_shape, OP_NONE, 1, 1, STOPS_GRADIENTS},
    {"", "Size", normalize_size, OP_NONE, 1, 1, STOPS_GRADIENTS},
    {"", "Reshape", normalize_reshape, OP_NONE, 1, 2, PASSES_GRADIENTS},
    {"", "Flatten", normalize_flatten, OP_NONE, 1, 1, PASSES_GRADIENTS},
    {"", "Squeeze", normalize_squeeze, OP_NONE, 1, 2, PASSES_GRADIENTS},
    {"", "Unsqueeze", normalize_unsqueeze, OP_NONE, 1, 2, PASSES_GRADIENTS},
    {"", "Transpose", normalize_transpose, OP_NONE, 1, 1, PASSES_GRADIENTS},
    {"", "Expand", normalize_expand, OP_NONE, 2, 2, PASSES_GRADIENTS},
    {"", "Tile", normalize_tile, OP_NONE, 2, 3, PASSES_GRADIENTS},
    {"", "Slice", normalize_slice, OP_NONE, 1, 5, PASSES_GRADIENTS},
    {"", "Split", normalize_split, OP_NONE, 1, 2, PASSES_GRADIENTS},
    {"", "SplitToSequence", normalize_split_to_sequence, OP_NONE, 1, 2, PASSES_GRADIENTS},
    {"", "SequenceAt", normalize_sequence_at, OP_NONE, 2, 2, PASSES_GRADIENTS},
    {"", "Concat", normalize_concat, OP_NONE, 1, -1, PASSES_GRADIENTS},
    {"", "Pad", normalize_pad, OP_NONE, 1, 4, PASSES_GRADIENTS},
    {"", "Gather", normalize_gather, OP_Gather, 2, 2, PASSES_GRADIENTS},
    {"", "GatherElements", normalize_gather_elements, OP_GatherElements, 2, 2, PASSES_GRADIENTS},
    {"", "GatherND", normalize_gather_nd, OP_NONE, 2, 2, PASSES_GRADIENTS},
    {"", "Scatter", normalize_scatter_elements, OP_NONE, 3, 3, PASSES_GRADIENTS},
    {"", "ScatterElements", normalize_scatter_elements, OP_NONE, 3, 3, PASSES_GRADIENTS},
    {"", "ScatterND", normalize_scatter_nd, OP_NONE, 3, 3, PASSES_GRADIENTS},
    {"", "ArgMax", normalize_arg_max, OP_NONE, 1, 1, STOPS_GRADIENTS},
    {"", "NonZero", normalize_non_zero, OP_NONE, 1, 1, STOPS_GRADIENTS},
    {"", "Trilu", normalize_trilu, OP_NONE, 1, 2, PASSES_GRADIENTS},
    {"", "CumSum", normalize_cumsum, OP_NONE, 2, 2, PASSES_GRADIENTS},
    {"", "OneHot", normalize_one_hot, OP_NONE, 3, 3, PASSES_GRADIENTS},
    {"", "ReduceSum", normalize_reduce, OP_ReduceSum, 1, 2, PASSES_GRADIENTS},
    {"", "ReduceMean", normalize_reduce, OP_ReduceMean, 1, 2, PASSES_GRADIENTS},
    {"", "ReduceMax", normalize_reduce, OP_ReduceMax, 1, 2, PASSES_GRADIENTS},
    {"", "ReduceMin", normalize_reduce, OP_ReduceMin, 1, 2, PASSES_GRADIENTS},
    {"", "ReduceProd", normalize_reduce, OP_ReduceProd, 1, 2, PASSES_GRADIENTS},
    {"", "ReduceL1", normalize_reduce_l1, OP_ReduceSum, 1, 2, PASSES_GRADIENTS},
    {"", "ReduceL2", normalize_reduce_l2, OP_ReduceSum, 1, 2, PASSES_GRADIENTS},
    {"", "ReduceSumSquare", normalize_reduce_sum_square, OP_ReduceSum, 1, 2, PASSES_GRADIENTS},
    {"", "Softmax", normalize_softmax, OP_Softmax, 1, 1, PASSES_GRADIENTS},
    {"", "LogSoftmax", normalize_softmax, OP_LogSoftmax, 1, 1, PASSES_GRADIENTS},
    {"", "LayerNormalization", normalize_layer_norm, OP_NONE, 2, 3, PASSES_GRADIENTS},
    {"", "SimplifiedLayerNormalization", normalize_rms_norm, OP_NONE, 2, 2, PASSES_GRADIENTS},
    {MICROSOFT, "SimplifiedLayerNormalization", normalize_rms_norm, OP_NONE, 2, 2, PASSES_GRADIENTS},
    {MICROSOFT, "SkipSimplifiedLayerNormalization", normalize_skip_rms_norm, OP_NONE, 3, 4, PASSES_GRADIENTS},
    {"", "RMSNormalization", normalize_rms_norm, OP_NONE, 2, 2, PASSES_GRADIENTS},
    {"", "MatMul", normalize_matmul, OP_NONE, 2, 2, PASSES_GRADIENTS},
    {"", "Gemm", normalize_gemm, OP_NONE, 2, 3, PASSES_GRADIENTS},
    {"", "Conv", normalize_conv, OP_NONE, 2, 3, PASSES_GRADIENTS},
    {"", "DequantizeLinear", normalize_dequantize, OP_NONE, 2, 3, STOPS_GRADIENTS},
    {MICROSOFT, "DequantizeLinear", normalize_dequantize, OP_NONE, 2, 3, STOPS_GRADIENTS},
    {"", "TopK", normalize_top_k, OP_NONE, 1, 2, STOPS_GRADIENTS},
    {"", "RotaryEmbedding", normalize_rotary, OP_NONE, 3, 4, PASSES_GRADIENTS},
    {MICROSOFT, "RotaryEmbedding", normalize_rotary_microsoft, OP_NONE, 4, 4, PASSES_GRADIENTS},
    {MICROSOFT, "FusedGemm", normalize_fused_gemm, OP_NONE, 2, 3, PASSES_GRADIENTS},
    {"", "Einsum", normalize_einsum, OP_NONE, 1, -1, PASSES_GRADIENTS},
    {"", "Attention", normalize_attention, OP_NONE, 3, 7, PASSES_GRADIENTS},
    {MICROSOFT, "Attention", normalize_packed_attention, OP_NONE, 2, -1, PASSES_GRADIENTS},
    {MICROSOFT, "MultiHeadAttention", normalize_multi_head_attention, OP_NONE, 1, 10, PASSES_GRADIENTS},
    {MICROSOFT, "GroupQueryAttention", normalize_grouped_attention, OP_NONE, 1, 14, PASSES_GRADIENTS},
    {MICROSOFT, "BiasGelu", normalize_bias_gelu, OP_NONE, 2, 2, PASSES_GRADIENTS},
    {MICROSOFT, "FastGelu", normalize_fast_gelu, OP_NONE, 1, 2, PASSES_GRADIENTS},
    {MICROSOFT, "FusedMatMul", normalize_fused_matmul, OP_NONE, 2, 2, PASSES_GRADIENTS},
    {MICROSOFT, "SkipLayerNormalization", normalize_skip_layer_norm, OP_NONE, 3, 5, PASSES_GRADIENTS},
    {MICROSOFT, "EmbedLayerNormalization", normalize_embed_layer_norm, OP_NONE, 1, 9, PASSES_GRADIENTS},
    {"", "SoftmaxCrossEntropyLoss", normalize_cross_entropy, OP_NONE, 2, 3, PASSES_GRADIENTS},
    {"", "NegativeLogLikelihoodLoss", normalize_likelihood, OP_NONE, 2, 3, PASSES_GRADIENTS},
};

const Normalization *normalization_find(const char *domain, const char *op)
{
    if (strcmp(domain, "ai.onnx") == 0) domain = "";
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (strcmp(table[i].op, op) == 0 && strcmp(table[i].domain, domain) == 0) return &table[i];
    return NULL;
}

bool onnx_operator_supported(const char *domain, const char *op) { return normalization_find(domain, op) != NULL; }

/* An attribute that no rule asked for could change the meaning of the node. */
static bool check_attributes(const OnnxNode *node)
{
    const Onnx__NodeProto *proto = node->source->proto;
    for (size_t i = 0; i < proto->n_attribute; i++)
        if (!(node->attributes_used >> i & 1))
            return node_unsupported(node, NULL, "the attribute '%s' is not supported",
                                    proto->attribute[i]->name ? proto->attribute[i]->name : "");
    return true;
}

bool normalize_node(OnnxNode *node)
{
    const Normalization *rule = node->rule;
    begin_node(node);
    if (node->source->proto->n_attribute > 64) return node_error(node, NULL, "has more than 64 attributes");
    if (node->input_count < rule->least_inputs || (rule->most_inputs >= 0 && node->input_count > rule->most_inputs))
        return node_error(node, NULL, "has %d inputs, which is not what %s takes", node->input_count, rule->op);
    for (int i = 0; i < rule->least_inputs; i++)
        if (!node->inputs[i]) return node_error(node, NULL, "input %d is missing", i);
    if (node->output_count < 1) return node_error(node, NULL, "has no output");
    if (node->opset < 7 && !*rule->domain && !modernize_node(node)) return false;
    if (!check_narrow_inputs(node)) return false;
    if (rule->apply(node)) return !node_failed(node) && check_attributes(node);
    /* An emitter with a 0 operand returns 0 and reports nothing, because the cause was reported before. If nothing was
     * reported, the cause is an absent optional input that the rule needs. */
    return node_error(node, NULL, "an input that it needs is absent");
}

bool normalize_if(OnnxNode *node)
{
    Value condition;
    if (!constant_input(node, 0, &condition)) return false;
    if (shape_elements(&condition.shape) != 1) return node_error(node, NULL, "its condition must be a single value");
    int first = element_as_integer(condition.dtype, condition.data, 0) ? 1 : 1 + node->output_count;
    for (int i = 0; i < node->output_count; i++)
        if (!set_output(node, i, node->inputs[first + i])) return false;
    return true;
}
