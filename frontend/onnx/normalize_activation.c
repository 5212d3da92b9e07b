/* Activations that are a few canonical operators. */
#include <string.h>

#include "frontend/onnx/normalize.h"

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
