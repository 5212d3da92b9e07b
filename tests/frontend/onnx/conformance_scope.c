#include "tests/frontend/onnx/conformance_scope.h"

#include <string.h>

#define MICROSOFT "com.microsoft"

/* What skycc promises, whether it keeps it or not: this list is not made from the importer's. */
static const struct {
    const char *domain, *operators; /* each between spaces */
} promised[] = {
    {"",
     " MatMul Gemm Einsum Add Sub Mul Div Mod Pow Sqrt Neg Abs Sign Exp Log Reciprocal Sin Cos Erf Tanh Sigmoid Relu "
     "LeakyRelu Gelu Softplus Softsign Clip Min Max Sum Mean Softmax LogSoftmax LayerNormalization RMSNormalization "
     "ReduceMean ReduceSum ReduceMax ReduceMin ReduceProd ReduceL2 ReduceSumSquare ArgMax Gather GatherElements "
     "GatherND ScatterND ScatterElements Slice Concat Split Squeeze Unsqueeze Reshape Transpose Flatten Expand "
     "Tile Pad Shape Size Constant ConstantOfShape Range Identity Cast CastLike Where Equal Not And Or Less "
     "LessOrEqual Greater GreaterOrEqual IsNaN IsInf Trilu CumSum OneHot NonZero Dropout SoftmaxCrossEntropyLoss "
     "NegativeLogLikelihoodLoss Attention Ceil Floor Round Swish HardSwish HardSigmoid RotaryEmbedding "},
    {MICROSOFT, " Attention SkipLayerNormalization EmbedLayerNormalization BiasGelu FastGelu Gelu FusedMatMul "
                "MultiHeadAttention GroupQueryAttention "},
};

static bool is_promised(const char *domain, const char *op)
{
    char word[128];
    snprintf(word, sizeof word, " %s ", op);
    for (size_t i = 0; i < sizeof promised / sizeof *promised; i++)
        if (strcmp(domain, promised[i].domain) == 0) return strstr(promised[i].operators, word) != NULL;
    return false;
}

bool scope_has_type(int32_t data_type, char reason[static 256])
{
    switch (data_type) {
    case ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT:
    case ONNX__TENSOR_PROTO__DATA_TYPE__DOUBLE:
    case ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT16:
    case ONNX__TENSOR_PROTO__DATA_TYPE__BFLOAT16:
    case ONNX__TENSOR_PROTO__DATA_TYPE__INT32:
    case ONNX__TENSOR_PROTO__DATA_TYPE__INT64:
    case ONNX__TENSOR_PROTO__DATA_TYPE__BOOL: return true;
    default: break;
    }
    snprintf(reason, 256, "type %s", onnx_data_type_name(data_type));
    return false;
}

static bool scope_has_values(Onnx__ValueInfoProto *const *values, size_t count, char reason[static 256])
{
    for (size_t i = 0; i < count; i++) {
        const Onnx__TypeProto *type = values[i]->type;
        if (!type || type->value_case == ONNX__TYPE_PROTO__VALUE__NOT_SET) continue;
        if (type->value_case != ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE) {
            snprintf(reason, 256, "a sequence or an optional value");
            return false;
        }
        if (!scope_has_type(type->tensor_type->elem_type, reason)) return false;
    }
    return true;
}

static bool scope_has_node(const Onnx__NodeProto *node, char reason[static 256])
{
    const char *domain = node->domain && strcmp(node->domain, "ai.onnx") != 0 ? node->domain : "";
    const char *op = node->op_type ? node->op_type : "";
    if (!is_promised(domain, op)) {
        snprintf(reason, 256, "operator %s%s%s", domain, *domain ? "." : "", op);
        return false;
    }
    for (size_t i = 0; i < node->n_attribute; i++) {
        const Onnx__AttributeProto *attribute = node->attribute[i];
        if (attribute->t && !scope_has_type(attribute->t->data_type, reason)) return false;
        bool target = strcmp(op, "Cast") == 0 && strcmp(attribute->name, "to") == 0 && !attribute->s.len;
        if (target && !scope_has_type((int32_t)attribute->i, reason)) return false;
    }
    return true;
}

bool scope_has_model(const Onnx__ModelProto *model, char reason[static 256])
{
    const Onnx__GraphProto *graph = model->graph;
    for (size_t i = 0; i < graph->n_node; i++)
        if (!scope_has_node(graph->node[i], reason)) return false;
    for (size_t i = 0; i < graph->n_initializer; i++)
        if (!scope_has_type(graph->initializer[i]->data_type, reason)) return false;
    if (!scope_has_values(graph->input, graph->n_input, reason)) return false;
    if (!scope_has_values(graph->output, graph->n_output, reason)) return false;
    return scope_has_values(graph->value_info, graph->n_value_info, reason);
}
