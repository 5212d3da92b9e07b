#include "graph/ops/operator.h"

#include <string.h>

bool axes_of_inputs(const Graph *graph, const Node *node, int axis, int *axes)
{
    for (int i = 0; i < node->input_count; i++) axes[i] = -1;
    return operators[node->op].axes(graph, node, 0, axis, axes);
}

int axis_broadcast(const Shape *input, const Shape *result, int axis)
{
    int at = axis - (result->rank - input->rank);
    return at >= 0 && (input->dim[at] != 1 || result->dim[axis] == 1) ? at : -1;
}

bool differentiate_none(Differentiation *d, const Node *node)
{
    (void)d, (void)node;
    return false;
}

bool axes_none(const Graph *graph, const Node *node, int output, int axis, int *axes)
{
    (void)graph, (void)node, (void)output, (void)axis, (void)axes;
    return false;
}

void node_change_attribute(Graph *graph, Node *node, const char *name, int at, int64_t number)
{
    node->attributes =
        arena_copy(&graph->arena, node->attributes, (size_t)node->attribute_count * sizeof *node->attributes);
    for (int i = 0; i < node->attribute_count; i++) {
        Attribute *attribute = &node->attributes[i];
        if (strcmp(attribute->name, name) != 0) continue;
        int64_t *list = arena_copy(&graph->arena, attribute->integers, (size_t)attribute->count * sizeof *list);
        list[at] = number;
        attribute->integers = list;
    }
}

bool operator_error(const InferContext *context, const char *hint, const char *format, ...)
{
    char object[512], text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    Place place = node_place(context->graph, context->node, object);
    if (context->made_for) place.object = context->made_for;
    return diagnostics_error(context->diagnostics, EXIT_BAD_INPUT, place, hint ? hint : context->hint, "%s", text);
}

bool infer_same(InferContext *context)
{
    context->dtype[0] = infer_input(context, 0)->dtype;
    context->shape[0] = infer_input(context, 0)->shape;
    return true;
}

bool infer_float_inputs(const InferContext *context, int count)
{
    for (int i = 0; i < count; i++) {
        if (!context->node->inputs[i]) continue;
        DType dtype = infer_input(context, i)->dtype;
        if (!dtype_is_float(dtype))
            return operator_error(context, NULL, "input %d is %s, not of a floating-point type", i, dtype_name(dtype));
        if (dtype != infer_input(context, 0)->dtype)
            return operator_error(context, "insert a Cast", "inputs have different types, %s and %s",
                                  dtype_name(infer_input(context, 0)->dtype), dtype_name(dtype));
    }
    return true;
}

bool infer_float_same(InferContext *context) { return infer_float_inputs(context, 1) && infer_same(context); }

bool shape_broadcast(const Shape *a, const Shape *b, Shape *result)
{
    Shape shape = {.rank = a->rank > b->rank ? a->rank : b->rank};
    for (int i = 1; i <= shape.rank; i++) {
        int64_t left = i <= a->rank ? a->dim[a->rank - i] : 1, right = i <= b->rank ? b->dim[b->rank - i] : 1;
        if (left != right && left != 1 && right != 1) return false;
        shape.dim[shape.rank - i] = left == 1 ? right : left;
    }
    *result = shape;
    return true;
}

bool normalize_axis(int64_t *axis, int rank)
{
    if (*axis < -rank || *axis >= rank) return false;
    if (*axis < 0) *axis += rank;
    return true;
}

bool node_shape(const Node *node, const char *name, Shape *shape)
{
    const Attribute *attribute = node_attribute(node, name);
    if (!attribute || attribute->kind != ATTRIBUTE_INTEGERS || attribute->count > MAX_RANK) return false;
    *shape = (Shape){.rank = attribute->count};
    for (int i = 0; i < attribute->count; i++) shape->dim[i] = attribute->integers[i];
    return true;
}
