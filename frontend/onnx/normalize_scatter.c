/* Operators that read or write at indices, except Gather. */
#include <stdlib.h>
#include <string.h>

#include "frontend/onnx/normalize.h"

bool normalize_gather_elements(OnnxNode *node) { return normalize_gather(node); }

bool normalize_gather_nd(OnnxNode *node)
{
    int64_t batch = integer_attribute(node, "batch_dims", 0);
    return set_output(node, 0, emit_along(node, OP_GatherND, node->inputs, 2, "batch_dims", batch));
}

/* The canonical operators take the data, which may be absent there, last. */
static ValueId emit_scatter(OnnxNode *node, Opcode op, Attribute placement)
{
    ValueId inputs[3] = {node->inputs[1], node->inputs[2], node->inputs[0]};
    Attribute attributes[2] = {placement, attribute_string("reduction", string_attribute(node, "reduction", "none"))};
    return emit_with(node, op, inputs, 3, attributes, 2);
}

bool normalize_scatter_elements(OnnxNode *node)
{
    int64_t axis = integer_attribute(node, "axis", 0);
    return check_axis(node, &axis, shape_of(node, node->inputs[0]).rank) &&
           set_output(node, 0, emit_scatter(node, OP_ScatterElements, attribute_integer("axis", axis)));
}

bool normalize_scatter_nd(OnnxNode *node)
{
    return set_output(node, 0, emit_scatter(node, OP_ScatterND, attribute_integer("batch_dims", 0)));
}

bool normalize_arg_max(OnnxNode *node)
{
    int64_t axis = integer_attribute(node, "axis", 0), keep = integer_attribute(node, "keepdims", 1),
            last = integer_attribute(node, "select_last_index", 0);
    if (!check_axis(node, &axis, shape_of(node, node->inputs[0]).rank)) return false;
    Attribute attributes[3] = {attribute_integer("axis", axis), attribute_integer("keepdims", keep),
                               attribute_integer("select_last_index", last)};
    return set_output(node, 0, emit_with(node, OP_ArgMax, node->inputs, 1, attributes, 3));
}

/* The number of elements that are not zero is an extent of the result, so the input must be known. */
bool normalize_non_zero(OnnxNode *node)
{
    Value value;
    if (!known_input(node, 0, &value))
        return node_unsupported(node,
                                "the model chooses elements by a mask, as BART's classifier finds the end of a text: "
                                "export it without that head, or let it choose by an index",
                                "how many elements it finds depends on the model's inputs");
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

/* Of one row of a constant: where its `count` largest or smallest elements stand, equal ones in their order. */
static void select_top(const Value *values, int64_t first, int64_t stride, int64_t extent, bool largest, int64_t count,
                       int64_t *places)
{
    FREED bool *taken = memory_allocate((size_t)extent);
    for (int64_t k = 0; k < count; k++) {
        int64_t best = -1;
        for (int64_t i = 0; i < extent; i++) {
            if (taken[i]) continue;
            double x = element_as_double(values->dtype, values->data, first + i * stride);
            double y = best < 0 ? 0 : element_as_double(values->dtype, values->data, first + best * stride);
            if (best < 0 || (largest ? x > y : x < y)) best = i;
        }
        taken[best] = true;
        places[k] = best;
    }
}

/* Of constants only: exports pick positions with it. */
bool normalize_top_k(OnnxNode *node)
{
    int64_t axis = integer_attribute(node, "axis", -1);
    bool largest = integer_attribute(node, "largest", 1);
    Value values;
    ignore_attribute(node, "sorted");
    if (!constant_input(node, 0, &values)) return false;
    int64_t count = node->opset >= 10 ? (int64_t)constant_scalar(node, 1, 0) : integer_attribute(node, "k", 0);
    if (!check_axis(node, &axis, values.shape.rank)) return false;
    Shape shape = values.shape;
    int64_t extent = shape.dim[axis], stride = 1, rows = 1;
    if (count < 0 || count > extent) return node_error(node, NULL, "takes more elements than the axis has");
    shape.dim[axis] = count;
    for (int i = (int)axis + 1; i < shape.rank; i++) stride *= shape.dim[i];
    for (int i = 0; i < axis; i++) rows *= shape.dim[i];
    void *tops, *indices;
    ValueId top = emit_constant(node, values.dtype, &shape, &tops);
    ValueId index = emit_constant(node, DTYPE_I64, &shape, &indices);
    if (!top || !index) return false;
    int64_t *places = arena_new_array(&node->importer->arena, int64_t, (size_t)count);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t s = 0; s < stride; s++) {
            int64_t first = r * extent * stride + s;
            select_top(&values, first, stride, extent, largest, count, places);
            for (int64_t k = 0; k < count; k++) {
                int64_t place = (r * count + k) * stride + s, source = first + places[k] * stride;
                ((int64_t *)indices)[place] = places[k];
                size_t size = dtype_size(values.dtype);
                memcpy((char *)tops + (size_t)place * size, (const char *)values.data + (size_t)source * size, size);
            }
        }
    return set_output(node, 0, top) && set_output(node, 1, index);
}
