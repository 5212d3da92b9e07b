/* Activations that are a few canonical operators. */
#include <string.h>

#include "frontend/onnx/normalize.h"

/* x * sigmoid(alpha x): Swish, SiLU (alpha 1), QuickGelu (alpha 1.702). */
static bool emit_swish(OnnxNode *node, double alpha)
{
    ValueId x = node->inputs[0], scaled = x;
    if (alpha != 1) scaled = emit_binary(node, OP_Mul, x, emit_scalar(node, dtype_of(node, x), alpha));
    return set_output(node, 0, emit_binary(node, OP_Mul, x, emit_unary(node, OP_Sigmoid, scaled)));
}

bool normalize_swish(OnnxNode *node)
{
    double alpha;
    return read_float(node, "alpha", 1, &alpha) && emit_swish(node, alpha);
}

bool normalize_quick_gelu(OnnxNode *node)
{
    double alpha;
    return read_float(node, "alpha", 1.702f, &alpha) && emit_swish(node, alpha);
}

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
    double alpha, beta;
    if (!read_float(node, "alpha", 0.2f, &alpha) || !read_float(node, "beta", 0.5, &beta)) return false;
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
    const char *activation;
    if (!read_string(node, "activation", "", &activation) || !normalize_gemm(node)) return false;
    for (size_t i = 0; i < sizeof activations / sizeof *activations; i++)
        if (strcmp(activations[i].name, activation) == 0)
            return set_output(node, 0, emit_unary(node, activations[i].op, node->outputs[0]));
    if (!*activation) return true;
    return node_unsupported(node, NULL, "its activation '%s' is not supported", activation);
}
