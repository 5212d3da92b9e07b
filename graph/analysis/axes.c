#include "graph/analysis/axes.h"

#include "graph/ops/operator.h"

static const Shape *shape_of(const Graph *graph, ValueId value) { return &graph_value(graph, value)->shape; }

/* The axis of `input` that broadcasting brings to `axis` of a result of rank `rank`; -1 if it does not move there. */
int axis_broadcast(const Shape *input, int rank, int axis)
{
    int at = axis - (rank - input->rank);
    return at >= 0 && input->dim[at] != 1 ? at : -1;
}

/* The dimension of `shape` that a reshape keeps as `axis` of `result`; -1 if it is split or merged. */
static int reshaped_axis(const Shape *shape, const Shape *result, int axis)
{
    int64_t behind = 1, seen = 1;
    for (int i = axis + 1; i < result->rank; i++) behind *= result->dim[i];
    for (int i = shape->rank - 1; i >= 0; i--) {
        if (seen == behind && shape->dim[i] == result->dim[axis]) return i;
        seen *= shape->dim[i];
    }
    return -1;
}

static bool broadcasts(Opcode op) { return operator_is_map(op) || op == OP_Gelu || op == OP_Expand; }

static bool matmul_axes(const Graph *graph, const Node *node, int axis, int *axes)
{
    const Shape *a = shape_of(graph, node->inputs[0]), *b = shape_of(graph, node->inputs[1]);
    int rank = shape_of(graph, node->outputs[0])->rank;
    if (a->rank < 2 || b->rank < 2) return false;
    axes[0] = axis == rank - 1 ? -1 : axis == rank - 2 ? a->rank - 2 : axis_broadcast(a, rank, axis);
    axes[1] = axis == rank - 2 ? -1 : axis == rank - 1 ? b->rank - 1 : axis_broadcast(b, rank, axis);
    return true;
}

/* Through a Gather or Slice on other axes. */
static bool selection_axes(const Graph *graph, const Node *node, int axis, int *axes)
{
    const Shape *shape = shape_of(graph, node->inputs[0]), *result = shape_of(graph, node->outputs[0]);
    if (node->op == OP_Slice) {
        Shape starts, steps;
        axes[0] = axis;
        return node_shape(node, "starts", &starts) && node_shape(node, "steps", &steps) && starts.dim[axis] == 0 &&
               steps.dim[axis] == 1 && result->dim[axis] == shape->dim[axis];
    }
    int64_t gathered = node_integer(node, "axis", 0);
    int index_rank = shape_of(graph, node->inputs[1])->rank;
    normalize_axis(&gathered, shape->rank, false);
    bool indexed = axis >= gathered && axis < gathered + index_rank;
    axes[0] = indexed ? -1 : axis < gathered ? axis : axis - index_rank + 1;
    axes[1] = indexed ? axis - (int)gathered : -1;
    return true;
}

static bool reduced_axis(const Graph *graph, const Node *node, int axis, int *from)
{
    const Attribute *list = node_attribute(node, "axes");
    int rank = shape_of(graph, node->inputs[0])->rank, seen = 0;
    bool keeps = node_integer(node, "keepdims", 1);
    for (int i = 0; list && list->count && i < rank; i++) {
        bool reduced = false;
        for (int k = 0; k < list->count; k++) reduced |= list->integers[k] == i || list->integers[k] + rank == i;
        if (reduced && !keeps) continue;
        if (seen++ == axis) {
            *from = i;
            return !reduced;
        }
    }
    return false;
}

bool axes_of_inputs(const Graph *graph, const Node *node, int axis, int *axes)
{
    const Shape *shape = shape_of(graph, node->inputs[0]), *result = shape_of(graph, node->outputs[0]);
    for (int i = 0; i < node->input_count; i++) axes[i] = -1;
    if (broadcasts(node->op)) {
        for (int i = 0; i < node->input_count; i++)
            axes[i] = axis_broadcast(shape_of(graph, node->inputs[i]), result->rank, axis);
        return true;
    }
    switch (node->op) {
    case OP_MatMul: return matmul_axes(graph, node, axis, axes);
    case OP_Slice:
    case OP_Gather: return selection_axes(graph, node, axis, axes);
    case OP_ReduceSum:
    case OP_ReduceMean:
    case OP_ReduceMax:
    case OP_ReduceMin: return reduced_axis(graph, node, axis, &axes[0]);
    case OP_Softmax:
    case OP_LogSoftmax:
    case OP_LayerNormalization: axes[0] = axis; return axis != result->rank - 1;
    case OP_Dropout: axes[0] = axis; return true;
    case OP_Reshape: axes[0] = reshaped_axis(shape, result, axis); return axes[0] >= 0;
    case OP_Transpose: {
        const Attribute *perm = node_attribute(node, "perm");
        axes[0] = perm ? (int)perm->integers[axis] : result->rank - 1 - axis;
        return true;
    }
    case OP_Concat: {
        int64_t joined = node_integer(node, "axis", 0);
        normalize_axis(&joined, result->rank, false);
        for (int i = 0; i < node->input_count; i++) axes[i] = axis;
        return axis != joined;
    }
    default: return false;
    }
}
