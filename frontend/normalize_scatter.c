/* Operators that read or write at indices, beside Gather. */
#include <string.h>

#include "frontend/normalize.h"

bool normalize_gather_elements(OnnxNode *node)
{
    int64_t axis;
    if (!read_integer(node, "axis", 0, &axis) || !check_axis(node, &axis, shape_of(node, node->inputs[0]).rank))
        return false;
    Attribute attribute = attribute_integer("axis", axis);
    return set_output(node, 0, emit_with(node, OP_GatherElements, node->inputs, 2, &attribute, 1));
}

bool normalize_gather_nd(OnnxNode *node)
{
    int64_t batch;
    if (!read_integer(node, "batch_dims", 0, &batch)) return false;
    Attribute attribute = attribute_integer("batch_dims", batch);
    return set_output(node, 0, emit_with(node, OP_GatherND, node->inputs, 2, &attribute, 1));
}

/* The canonical operators take the data, which may be absent there, last. */
static ValueId emit_scatter(OnnxNode *node, Opcode op, Attribute placement)
{
    const char *reduction;
    if (!read_string(node, "reduction", "none", &reduction)) return 0;
    ValueId inputs[3] = {node->inputs[1], node->inputs[2], node->inputs[0]};
    Attribute attributes[2] = {placement, attribute_string("reduction", reduction)};
    return emit_with(node, op, inputs, 3, attributes, 2);
}

bool normalize_scatter_elements(OnnxNode *node)
{
    int64_t axis;
    if (!read_integer(node, "axis", 0, &axis) || !check_axis(node, &axis, shape_of(node, node->inputs[0]).rank))
        return false;
    return set_output(node, 0, emit_scatter(node, OP_ScatterElements, attribute_integer("axis", axis)));
}

bool normalize_scatter_nd(OnnxNode *node)
{
    return set_output(node, 0, emit_scatter(node, OP_ScatterND, attribute_integer("batch_dims", 0)));
}

bool normalize_arg_max(OnnxNode *node)
{
    int64_t axis, keep, last;
    if (!read_integer(node, "axis", 0, &axis) || !read_integer(node, "keepdims", 1, &keep) ||
        !read_integer(node, "select_last_index", 0, &last) ||
        !check_axis(node, &axis, shape_of(node, node->inputs[0]).rank))
        return false;
    Attribute attributes[3] = {attribute_integer("axis", axis), attribute_integer("keepdims", keep),
                               attribute_integer("select_last_index", last)};
    return set_output(node, 0, emit_with(node, OP_ArgMax, node->inputs, 1, attributes, 3));
}

/* How many elements there are decides the shape, so the input must be known. */
bool normalize_non_zero(OnnxNode *node)
{
    Value value;
    if (!constant_input(node, 0, &value)) return false;
    int64_t elements = shape_elements(&value.shape), count = 0;
    for (int64_t i = 0; i < elements; i++) count += element_as_double(value.dtype, value.data, i) != 0;
    Shape shape = {2, {value.shape.rank, count}};
    void *data;
    ValueId result = emit_constant(node, DTYPE_I64, &shape, &data);
    if (!result) return false;
    int64_t *positions = data, found = 0;
    for (int64_t i = 0; i < elements; i++) {
        if (element_as_double(value.dtype, value.data, i) == 0) continue;
        int64_t rest = i;
        for (int axis = value.shape.rank - 1; axis >= 0; axis--) {
            positions[axis * count + found] = rest % value.shape.dim[axis];
            rest /= value.shape.dim[axis];
        }
        found++;
    }
    return set_output(node, 0, result);
}
