/* Views of buffers, and what movements make of them. */
#include "graph/ops/lower.h"
#include "graph/ops/operator.h"

void view_set_dense(View *view)
{
    int64_t stride = 1;
    for (int i = view->shape.rank - 1; i >= 0; i--) {
        view->stride[i] = stride;
        stride *= view->shape.dim[i];
    }
}

bool view_merge(const View *view, int first, int count, int64_t *stride)
{
    bool found = false;
    int64_t next = 0;
    *stride = 0;
    for (int i = first + count - 1; i >= first; i--) {
        if (view->shape.dim[i] == 1) continue;
        if (found && view->stride[i] != next) return false;
        if (!found) *stride = view->stride[i];
        found = true;
        next = view->stride[i] * view->shape.dim[i];
    }
    return true;
}

/* ---- Attributes ---- */

bool movement_permutation(const Node *node, int rank, int *perm)
{
    Shape list;
    if (!node_shape(node, "perm", &list)) {
        for (int i = 0; i < rank; i++) perm[i] = rank - 1 - i;
        return !node_attribute(node, "perm");
    }
    unsigned seen = 0;
    for (int i = 0; i < list.rank; i++) {
        if (list.dim[i] < 0 || list.dim[i] >= rank) return false;
        perm[i] = (int)list.dim[i];
        seen |= 1u << perm[i];
    }
    return list.rank == rank && seen == (1u << rank) - 1;
}

bool slice_bounds(const Node *node, SliceBounds *bounds)
{
    return node_shape(node, "starts", &bounds->starts) && node_shape(node, "steps", &bounds->steps) &&
           node_shape(node, "shape", &bounds->shape) && bounds->starts.rank == bounds->shape.rank &&
           bounds->steps.rank == bounds->shape.rank && shape_elements(&bounds->shape) >= 0;
}

/* ---- Movements ---- */

/* A single index that is known is a slice without its dimension, or with as many dimensions of 1 as the index has. */
static bool index_view(const Graph *graph, const Node *node, View *view)
{
    const Value *index = graph_value(graph, node->inputs[1]);
    if (index->role != ROLE_CONSTANT || shape_elements(&index->shape) != 1) return false;
    const View from = *view;
    int64_t axis = node_integer(node, "axis", 0), at = element_as_integer(index->dtype, index->data, 0);
    normalize_axis(&axis, from.shape.rank);
    int64_t extent = from.shape.dim[axis];
    at = at < 0 ? at + extent : at;
    at = at < 0 ? 0 : at >= extent ? extent - 1 : at;
    *view = (View){.base = from.base, .offset = from.offset + at * from.stride[axis]};
    for (int i = 0; i < from.shape.rank; i++) {
        for (int k = 0; k < index->shape.rank && i == axis; k++) view->shape.dim[view->shape.rank++] = 1;
        if (i == axis) continue;
        view->stride[view->shape.rank] = from.stride[i];
        view->shape.dim[view->shape.rank++] = from.shape.dim[i];
    }
    return true;
}

/* Splits and merges dimensions; false if elements that become neighbours do not stand regularly. */
static bool reshape_view(View *view, const Shape *shape)
{
    View result = {.base = view->base, .offset = view->offset, .shape = *shape};
    if (shape_elements(shape) == 0) {
        view_set_dense(&result);
        *view = result;
        return true;
    }
    int from = 0, to = 0;
    while (from < view->shape.rank || to < shape->rank) {
        /* The shortest runs of dimensions with equal products. */
        int from_end = from, to_end = to;
        int64_t have = 1, need = 1;
        do {
            if (from_end < view->shape.rank && (have <= need || to_end == shape->rank))
                have *= view->shape.dim[from_end++];
            else
                need *= shape->dim[to_end++];
        } while (have != need);
        int64_t stride;
        if (!view_merge(view, from, from_end - from, &stride)) return false;
        for (int i = to_end - 1; i >= to; i--) {
            result.stride[i] = stride;
            stride *= shape->dim[i];
        }
        from = from_end;
        to = to_end;
    }
    *view = result;
    return true;
}

static void transpose_view(View *view, const Node *node)
{
    View from = *view;
    int perm[MAX_RANK];
    movement_permutation(node, from.shape.rank, perm);
    for (int i = 0; i < from.shape.rank; i++) {
        view->shape.dim[i] = from.shape.dim[perm[i]];
        view->stride[i] = from.stride[perm[i]];
    }
}

static void expand_view(View *view, const Shape *shape)
{
    View from = *view;
    view->shape = *shape;
    int added = shape->rank - from.shape.rank;
    for (int i = 0; i < shape->rank; i++)
        view->stride[i] = i < added || from.shape.dim[i - added] == 1 ? 0 : from.stride[i - added];
}

void view_slice(View *view, const SliceBounds *bounds, const Shape *part)
{
    bool empty = shape_elements(part) == 0; /* whose starts may lie anywhere */
    view->shape = *part;
    for (int i = 0; i < part->rank && !empty; i++) {
        view->offset += bounds->starts.dim[i] * view->stride[i];
        view->stride[i] = part->dim[i] == 1 ? 0 : view->stride[i] * bounds->steps.dim[i];
    }
}

/* Whether loads of the one type give what the other one holds: kernels compute bf16 and float16 as float32, and all
 * integers as int64. */
static bool loads_as(DType stored, DType type) { return stored == type || kernel_register_type(stored) == type; }

bool movement_view(const Graph *graph, const Node *node, View *view)
{
    const Value *output = graph_value(graph, node->outputs[0]);
    SliceBounds bounds;
    switch (node->op) {
    case OP_Cast: return loads_as(graph_value(graph, node->inputs[0])->dtype, output->dtype);
    case OP_Identity: return true;
    case OP_Reshape: return reshape_view(view, &output->shape);
    case OP_Transpose: transpose_view(view, node); return true;
    case OP_Expand: expand_view(view, &output->shape); return true;
    case OP_Gather: return index_view(graph, node, view);
    case OP_Slice:
        slice_bounds(node, &bounds);
        view_slice(view, &bounds, &output->shape);
        return true;
    default: return false;
    }
}
