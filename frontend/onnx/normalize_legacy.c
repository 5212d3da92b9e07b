/* What nodes said before opset 7, which brought the broadcasting of numpy. */
#include <string.h>

#include "frontend/onnx/normalize.h"

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

bool modernize_node(OnnxNode *node)
{
    static const char *const binary[] = {"Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Equal", "Less", "Greater"};
    const char *op = node->rule->op;
    ignore_attribute(node, "consumed_inputs"); /* which inputs might be overwritten */
    if (strcmp(op, "Gemm") == 0) ignore_attribute(node, "broadcast");
    for (size_t i = 0; i < sizeof binary / sizeof *binary; i++)
        if (strcmp(op, binary[i]) == 0) return align_second_operand(node);
    return true;
}
