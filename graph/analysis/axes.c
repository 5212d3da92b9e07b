#include "graph/analysis/axes.h"

#include <string.h>

#include "graph/ops/operator.h"

static bool equal_elements(const Value *value, int64_t a, int64_t b)
{
    size_t size = dtype_size(value->dtype);
    const char *data = value->data;
    return memcmp(data + (size_t)a * size, data + (size_t)b * size, size) == 0;
}

static bool constant_is_uniform(const Value *value, int axis)
{
    int64_t stride = shape_stride(&value->shape, axis), extent = value->shape.dim[axis];
    int64_t elements = shape_elements(&value->shape);
    for (int64_t i = 0; i < elements; i++)
        if (i / stride % extent && !equal_elements(value, i, i - stride)) return false;
    return true;
}

static bool constant_is_toeplitz(const Value *value, int axis_a, int axis_b)
{
    int64_t a = shape_stride(&value->shape, axis_a), b = shape_stride(&value->shape, axis_b);
    int64_t elements = shape_elements(&value->shape);
    for (int64_t i = 0; i < elements; i++) {
        bool inside = i / a % value->shape.dim[axis_a] && i / b % value->shape.dim[axis_b];
        if (inside && !equal_elements(value, i, i - a - b)) return false;
    }
    return true;
}

enum { MOST_INPUTS = MAX_RANK };

/* The node that makes the value, if what it makes can be followed along the axis. */
static const Node *followed(const Graph *graph, ValueId value, int axis, int *axes)
{
    const Node *node = graph_producer(graph, value);
    bool known = node->op != OP_NONE && !operator_has(node->op, IS_RANDOM) && node->input_count <= MOST_INPUTS &&
                 node->outputs[0] == value && axes_of_inputs(graph, node, axis, axes);
    return known ? node : NULL;
}

bool value_is_uniform(const Graph *graph, ValueId id, int axis)
{
    const Value *value = graph_value(graph, id);
    int axes[MOST_INPUTS];
    if (value->shape.dim[axis] == 1) return true;
    if (value->role == ROLE_CONSTANT) return constant_is_uniform(value, axis);
    const Node *node = followed(graph, id, axis, axes);
    for (int i = 0; node && i < node->input_count; i++)
        if (node->inputs[i] && axes[i] >= 0 && !value_is_uniform(graph, node->inputs[i], axes[i])) return false;
    return node;
}

bool value_is_toeplitz(const Graph *graph, ValueId id, int axis_a, int axis_b)
{
    const Value *value = graph_value(graph, id);
    int a[MOST_INPUTS], b[MOST_INPUTS];
    if (value->role == ROLE_CONSTANT) return constant_is_toeplitz(value, axis_a, axis_b);
    const Node *node = followed(graph, id, axis_a, a);
    if (!node || !followed(graph, id, axis_b, b)) return false;
    for (int i = 0; i < node->input_count; i++) {
        ValueId input = node->inputs[i];
        if (!input || (a[i] < 0 && b[i] < 0)) continue;
        bool fits = a[i] < 0   ? value_is_uniform(graph, input, b[i])
                    : b[i] < 0 ? value_is_uniform(graph, input, a[i])
                               : value_is_toeplitz(graph, input, a[i], b[i]);
        if (!fits) return false;
    }
    return true;
}
