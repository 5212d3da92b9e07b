/* What nodes said before opset 7, which brought the broadcasting of numpy. */
#include <string.h>

#include "frontend/onnx/normalize.h"

/* With the attribute `broadcast` the second operand's dimensions are those of the first from `axis` on, or its last. */
static bool align_second_operand(OnnxNode *node)
{
    int64_t broadcast, axis;
    Shape left = shape_of(node, node->inputs[0]), right = shape_of(node, node->inputs[1]);
    if (!read_integer(node, "broadcast", 0, &broadcast)) return false;
    if (!attribute_present(node, "axis")) return true;
    if (!read_integer(node, "axis", 0, &axis)) return false;
    if (!broadcast) return true;
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

/* Inputs: how many copies, along which axis. */
bool normalize_old_tile(OnnxNode *node)
{
    double tiles, axis_number;
    if (!has_input(node, 1) || !has_input(node, 2)) return node_error(node, NULL, "lacks the copies or their axis");
    if (!constant_scalar(node, 1, 1, &tiles) || !constant_scalar(node, 2, 0, &axis_number)) return false;
    int rank = shape_of(node, node->inputs[0]).rank;
    bool whole = tiles >= 0 && tiles <= (double)MAX_ELEMENTS && axis_number >= -MAX_RANK && axis_number <= MAX_RANK;
    int64_t axis = whole ? (int64_t)axis_number : 0, repeats[MAX_RANK] = {1, 1, 1, 1, 1, 1, 1, 1};
    if (!whole) return node_error(node, NULL, "has an impossible number of copies, or axis");
    if (!check_axis(node, &axis, rank)) return false;
    repeats[axis] = (int64_t)tiles;
    return set_output(node, 0, emit_tile(node, node->inputs[0], repeats));
}
