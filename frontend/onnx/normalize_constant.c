#include <math.h>
#include <string.h>

#include "frontend/onnx/normalize.h"
#include "frontend/onnx/importer.h"

static bool read_elements(OnnxNode *node, const Onnx__TensorProto *proto, OnnxTensor *tensor)
{
    if (!onnx_tensor_elements(&node->importer->model->onnx, proto, NULL, node->place, tensor,
                              node->importer->diagnostics))
        return false;
    widen_tensor(node->importer, tensor);
    return true;
}

static bool constant_from_tensor(OnnxNode *node, const Onnx__TensorProto *proto)
{
    OnnxTensor tensor;
    if (!read_elements(node, proto, &tensor)) return false;
    if (!tensor.data && tensor.bytes) return node_error(node, NULL, "the file with the constant's elements is missing");
    if (tensor.shape.rank >= 2 && dtype_is_float(tensor.dtype) && tensor.bytes >= 4096)
        diagnostics_warning(node->importer->diagnostics, onnx_place(node),
                            "to train them, export the model with weights as initializers",
                            "holds a large constant, which is not trained");
    return set_output(node, 0, graph_add_constant(node->graph, NULL, tensor.dtype, &tensor.shape, tensor.data));
}

static bool constant_from_list(OnnxNode *node, const int64_t *integers, const float *floats, int count)
{
    Shape shape = {1, {count}};
    if (count < 0 || !check_size(node, &shape, true)) return false;
    if (integers) return set_output(node, 0, graph_add_constant(node->graph, NULL, DTYPE_I64, &shape, integers));
    return set_output(node, 0, graph_add_constant(node->graph, NULL, DTYPE_F32, &shape, floats));
}

bool normalize_constant(OnnxNode *node)
{
    const int64_t *integers;
    const float *floats;
    if (attribute_present(node, "value")) {
        const Onnx__TensorProto *tensor = tensor_attribute(node, "value");
        return tensor && constant_from_tensor(node, tensor);
    }
    if (attribute_present(node, "value_int")) {
        int64_t integer = integer_attribute(node, "value_int", 0);
        return set_output(node, 0, graph_add_constant(node->graph, NULL, DTYPE_I64, &(Shape){0}, &integer));
    }
    if (attribute_present(node, "value_float"))
        return set_output(node, 0, emit_scalar(node, DTYPE_F32, float_attribute(node, "value_float", 0)));
    if (attribute_present(node, "value_ints")) {
        int count = integers_attribute(node, "value_ints", &integers);
        return constant_from_list(node, integers ? integers : (int64_t[1]){0}, NULL, count);
    }
    if (attribute_present(node, "value_floats")) {
        int count = floats_attribute(node, "value_floats", &floats);
        return constant_from_list(node, NULL, floats, count);
    }
    return node_unsupported(node, NULL, "has no value that is supported: a tensor, or numbers");
}

/* Reads a shape; at most MAX_RANK dimensions, none negative. */
static bool shape_input(OnnxNode *node, int input, Shape *shape)
{
    const int64_t *dims;
    shape->rank = constant_integers(node, input, &dims);
    if (shape->rank < 0) return false;
    if (shape->rank > MAX_RANK) return node_unsupported(node, NULL, "makes a tensor of %d dimensions", shape->rank);
    memcpy(shape->dim, dims, (size_t)shape->rank * sizeof *dims);
    return check_size(node, shape, true);
}

bool normalize_constant_of_shape(OnnxNode *node)
{
    Shape shape;
    if (!shape_input(node, 0, &shape)) return false;
    const Onnx__TensorProto *proto = tensor_attribute(node, "value");
    if (!proto) return set_output(node, 0, emit_expand(node, emit_scalar(node, DTYPE_F32, 0), &shape));
    OnnxTensor tensor;
    if (!read_elements(node, proto, &tensor)) return false;
    if (shape_elements(&tensor.shape) != 1 || !tensor.data)
        return node_error(node, NULL, "its value must be one element");
    ValueId value = graph_add_constant(node->graph, NULL, tensor.dtype, &(Shape){0}, tensor.data);
    return set_output(node, 0, emit_expand(node, value, &shape));
}

/* How many elements a range has; -1 if that is no number. */
static double range_length(double start, double limit, double delta)
{
    double length = ceil((limit - start) / delta);
    return isnan(length) ? -1 : length < 0 ? 0 : length;
}

static bool integer_range(OnnxNode *node, DType type, const Value parts[3])
{
    int64_t start = element_as_integer(type, parts[0].data, 0), limit = element_as_integer(type, parts[1].data, 0),
            delta = element_as_integer(type, parts[2].data, 0);
    if (delta == 0) return node_error(node, NULL, "a range with step 0 has no end");
    /* Wide enough for every difference. */
    __int128 distance = (__int128)limit - start, length = distance / delta + (distance % delta != 0);
    if (distance == 0 || (distance < 0) != (delta < 0)) length = 0;
    Shape shape = {1, {length > MAX_CONSTANT_ELEMENTS ? INT64_MAX : (int64_t)length}};
    void *data;
    ValueId result = emit_constant(node, type, &shape, &data);
    if (!result) return false;
    for (int64_t i = 0; i < shape.dim[0]; i++)
        element_store_integer(type, data, i, (int64_t)((uint64_t)start + (uint64_t)i * (uint64_t)delta));
    return set_output(node, 0, result);
}

bool normalize_range(OnnxNode *node)
{
    Value parts[3];
    for (int i = 0; i < 3; i++) {
        if (!constant_input(node, i, &parts[i])) return false;
        if (shape_elements(&parts[i].shape) != 1) return node_error(node, NULL, "input %d must be a single number", i);
        if (parts[i].dtype != parts[0].dtype) return node_error(node, NULL, "start, limit and delta differ in type");
    }
    DType type = parts[0].dtype;
    if (dtype_is_integer(type)) return integer_range(node, type, parts);
    double start = element_as_double(type, parts[0].data, 0), limit = element_as_double(type, parts[1].data, 0),
           delta = element_as_double(type, parts[2].data, 0), length = range_length(start, limit, delta);
    if (delta == 0 || length < 0) return node_error(node, NULL, "a range with such limits or step has no end");
    Shape shape = {1, {length > (double)MAX_CONSTANT_ELEMENTS ? INT64_MAX : (int64_t)length}};
    void *data;
    ValueId result = emit_constant(node, type, &shape, &data);
    if (!result) return false;
    for (int64_t i = 0; i < shape.dim[0]; i++) element_store_double(type, data, i, start + (double)i * delta);
    return set_output(node, 0, result);
}

/* Clamps a position counted from the end if negative; opset 15. */
static int64_t clamp_position(int64_t position, int rank)
{
    if (position < 0) position += rank;
    return position < 0 ? 0 : position > rank ? rank : position;
}

bool normalize_shape(OnnxNode *node)
{
    Shape shape = shape_of(node, node->inputs[0]);
    int64_t first = clamp_position(integer_attribute(node, "start", 0), shape.rank);
    int64_t last = clamp_position(integer_attribute(node, "end", INT64_MAX), shape.rank);
    int count = last > first ? (int)(last - first) : 0;
    return set_output(node, 0, graph_constant_integers(node->graph, shape.dim + (count ? first : 0), count));
}

bool normalize_size(OnnxNode *node)
{
    Shape shape = shape_of(node, node->inputs[0]);
    int64_t elements = shape_elements(&shape);
    return set_output(node, 0, graph_add_constant(node->graph, NULL, DTYPE_I64, &(Shape){0}, &elements));
}
