#include "graph/ops/lower.h"

#include <stdlib.h>
#include <string.h>

#include "graph/ops/operator.h"

enum { VIEW_PAGE = 64 };

void lowering_begin(Lowering *lowering, Graph *graph)
{
    *lowering = (Lowering){.graph = graph};
    lowering->views = memory_allocate((graph->value_count / VIEW_PAGE + 1) * sizeof *lowering->views);
}

/* The entry of a value, in a page made on first use: a stage looks at few of the values of its graph, mostly at
 * neighbours, so most pages are never needed. */
static View *known_view(Lowering *lowering, ValueId value)
{
    View **page = &lowering->views[value / VIEW_PAGE];
    if (!*page) *page = arena_new_array(&lowering->arena, View, VIEW_PAGE);
    return &(*page)[value % VIEW_PAGE];
}

void lowering_free(Lowering *lowering)
{
    free(lowering->views);
    free(lowering->calls);
    arena_free(&lowering->arena);
    *lowering = (Lowering){0};
}

static View dense_view(const Graph *graph, ValueId value)
{
    View view = {.base = value, .shape = graph_value(graph, value)->shape};
    view_set_dense(&view);
    return view;
}

void lowering_stop_at(Lowering *lowering, ValueId value)
{
    *known_view(lowering, value) = dense_view(lowering->graph, value);
}

View lower_view(Lowering *lowering, ValueId value)
{
    View *view = known_view(lowering, value);
    if (!view->base) {
        const Graph *graph = lowering->graph;
        const Node *node = graph_producer(graph, value); /* node 0 has no operator */
        bool moves = operator_has(node->op, IS_MOVEMENT | CONVERTS | SELECTS);
        View found = moves ? lower_view(lowering, node->inputs[0]) : (View){0};
        *view = moves && movement_view(graph, node, &found) ? found : dense_view(graph, value);
    }
    return *view;
}

View lower_output(Lowering *lowering, ValueId value)
{
    View *view = known_view(lowering, value);
    *view = dense_view(lowering->graph, value);
    return *view;
}

View lower_view_merged(Lowering *lowering, ValueId value, int first, int count)
{
    View view = lower_view(lowering, value);
    int64_t stride;
    if (view_merge(&view, first, count, &stride)) return view;
    lowering_materialize(lowering, value);
    return lower_view(lowering, value);
}

/* ---- Calls ---- */

Kernel *lower_begin(Lowering *lowering, const char *label, int axis_count, const int64_t *extent)
{
    lowering->kernel = arena_new(&lowering->arena, Kernel);
    kernel_begin(lowering->kernel, label, axis_count, extent);
    return lowering->kernel;
}

int lower_axes(const Shape *shape, int64_t *extent)
{
    extent[0] = 1;
    for (int i = 0; i < shape->rank; i++) extent[i] = shape->dim[i];
    return shape->rank ? shape->rank : 1;
}

Kernel *lower_begin_over(Lowering *lowering, const char *label, const Shape *shape)
{
    int64_t extent[KERNEL_MAX_AXES];
    return lower_begin(lowering, label, lower_axes(shape, extent), extent);
}

int lower_operand(Lowering *lowering, const View *view, const int64_t *stride)
{
    DType dtype = graph_value(lowering->graph, view->base)->dtype;
    int number = kernel_operand(lowering->kernel, dtype, stride);
    lowering->operands[number] = (CallOperand){view->base, view->offset};
    return number;
}

int lower_operand_broadcast(Lowering *lowering, const View *view)
{
    int64_t stride[KERNEL_MAX_AXES] = {0};
    int missing = lowering->kernel->axis_count - view->shape.rank;
    for (int i = 0; i < view->shape.rank; i++)
        if (view->shape.dim[i] != 1) stride[missing + i] = view->stride[i];
    return lower_operand(lowering, view, stride);
}

int lower_operand_of(Lowering *lowering, ValueId value)
{
    View view = lower_view(lowering, value);
    return lower_operand_broadcast(lowering, &view);
}

bool lower_constant(const Lowering *lowering, const View *view, double *number)
{
    const Value *value = graph_value(lowering->graph, view->base);
    if (value->role != ROLE_CONSTANT) return false;
    for (int i = 0; i < view->shape.rank; i++)
        if (view->shape.dim[i] == 0 || (view->shape.dim[i] > 1 && view->stride[i])) return false;
    *number = element_as_double(value->dtype, value->data, view->offset);
    /* A double does not hold every integer beyond 2^53: these are loaded. */
    return dtype_is_float(value->dtype) || (*number > -0x1p53 && *number < 0x1p53);
}

Register lower_load(Lowering *lowering, const View *view)
{
    double number;
    if (lower_constant(lowering, view, &number)) {
        DType type = kernel_register_type(graph_value(lowering->graph, view->base)->dtype);
        return kernel_constant(lowering->kernel, type, number);
    }
    return kernel_load(lowering->kernel, lower_operand_broadcast(lowering, view));
}

int lower_operand_indexed(Lowering *lowering, const View *view, const int64_t *stride, int64_t *elements)
{
    View whole = {.base = view->base};
    *elements = shape_elements(&graph_value(lowering->graph, view->base)->shape);
    return lower_operand(lowering, &whole, stride);
}

void lower_end(Lowering *lowering)
{
    Kernel *kernel = lowering->kernel;
    kernel_canonicalize(kernel);
    kernel_verify(kernel);
    LoweredCall call = {.kernel = kernel, .node = lowering->node};
    memcpy(call.operands, lowering->operands, (size_t)kernel->operand_count * sizeof call.operands[0]);
    array_push(lowering->calls, lowering->call_count, lowering->call_capacity, call);
    lowering->kernel = NULL;
}

void lower_copy(Lowering *lowering, const char *label, const View *from, const View *to)
{
    Kernel *kernel = lower_begin_over(lowering, label, &from->shape);
    Register value = lower_load(lowering, from);
    kernel_store(kernel, lower_operand_broadcast(lowering, to), value);
    lower_end(lowering);
}

void lower_fill(Lowering *lowering, const View *to, double number)
{
    Kernel *kernel = lower_begin_over(lowering, "Fill", &to->shape);
    DType type = kernel_register_type(graph_value(lowering->graph, to->base)->dtype);
    Register value = kernel_constant(kernel, type, number);
    kernel_store(kernel, lower_operand_broadcast(lowering, to), value);
    lower_end(lowering);
}

Register lower_index(Kernel *kernel, Register index, int64_t extent)
{
    Register zero = kernel_constant_integer(kernel, 0), end = kernel_constant_integer(kernel, extent);
    Register last = kernel_constant_integer(kernel, extent - 1);
    Register negative = kernel_binary(kernel, KERNEL_LESS, index, zero);
    Register from_end = kernel_add(kernel, index, end);
    index = kernel_select(kernel, negative, from_end, index);
    index = kernel_binary(kernel, KERNEL_MAXIMUM, index, zero);
    return kernel_binary(kernel, KERNEL_MINIMUM, index, last);
}

Register lower_scaled(Kernel *kernel, Register index, int64_t stride, int64_t offset)
{
    Register factor = kernel_constant_integer(kernel, stride);
    Register scaled = kernel_multiply(kernel, index, factor);
    if (!offset) return scaled;
    Register addend = kernel_constant_integer(kernel, offset);
    return kernel_add(kernel, scaled, addend);
}

Register lower_tuple(Lowering *lowering, const View *view, int first, const View *indices, const int64_t *stride)
{
    Kernel *kernel = lowering->kernel;
    int last = indices->shape.rank - 1;
    Register offset = kernel_constant_integer(kernel, view->offset);
    for (int i = 0; i < indices->shape.dim[last]; i++) {
        View part = *indices;
        part.offset += i * indices->stride[last];
        Register index = kernel_load(kernel, lower_operand(lowering, &part, stride));
        index = lower_index(kernel, index, view->shape.dim[first + i]);
        Register step = lower_scaled(kernel, index, view->stride[first + i], 0);
        offset = kernel_add(kernel, offset, step);
    }
    return offset;
}

/* Copies what `view` shows into the value's own buffer, which is dense in the shape of the view. */
static void copy_to_own_buffer(Lowering *lowering, ValueId value, const View *view)
{
    View own = {.base = value, .shape = view->shape};
    view_set_dense(&own);
    const char *label = opcodes[graph_node(lowering->graph, lowering->node)->op].name;
    lower_copy(lowering, label, view, &own);
    *known_view(lowering, value) = dense_view(lowering->graph, value);
}

void lowering_materialize(Lowering *lowering, ValueId value)
{
    View view = lower_view(lowering, value);
    if (view.base == value) return;
    NodeId node = lowering->node;
    lowering->node = graph_value(lowering->graph, value)->producer;
    copy_to_own_buffer(lowering, value, &view);
    lowering->node = node;
}

Kernel *lower_begin_map(Lowering *lowering, const Node *node)
{
    return lower_begin_over(lowering, opcodes[node->op].name, &graph_value(lowering->graph, node->outputs[0])->shape);
}

void lower_end_map(Lowering *lowering, const Node *node, Register value)
{
    View output = lower_output(lowering, node->outputs[0]);
    kernel_store(lowering->kernel, lower_operand_broadcast(lowering, &output), value);
    lower_end(lowering);
}

Register lower_load_input(Lowering *lowering, const Node *node, int i)
{
    View view = lower_view(lowering, node->inputs[i]);
    return lower_load(lowering, &view);
}

void lower_movement(Lowering *lowering, const Node *node)
{
    if (known_view(lowering, node->outputs[0])->base) return;
    const View input = lower_view(lowering, node->inputs[0]);
    View view = input;
    if (movement_view(lowering->graph, node, &view))
        *known_view(lowering, node->outputs[0]) = view;
    else
        copy_to_own_buffer(lowering, node->outputs[0], &input);
}

void lowering_run(Lowering *lowering, const NodeId *nodes, size_t node_count)
{
    for (size_t i = 0; i < node_count; i++) {
        lowering->node = nodes[i];
        const Node *node = graph_node(lowering->graph, nodes[i]);
        operators[node->op].lower(lowering, node);
    }
}
