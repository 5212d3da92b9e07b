/* Dropout (Srivastava et al., JMLR 15, 2014), scaled by 1 / (1 - ratio) in training so that evaluation is the identity.
 *
 * Nothing is stored: whether an element is kept is a function of the step's random key, of the node's own key, and of
 * the element's position in the tensor of the whole batch. Forward and backward compute it anew. The ratio is rounded
 * to a multiple of 1 / RANDOM_ELEMENT_RANGE, and the scale is that of the rounded one. */
#include <math.h>

#include "base/random.h"
#include "graph/ops/add_node.h"
#include "graph/ops/lower.h"
#include "graph/ops/operator.h"
#include "runtime/program/step_scalars.h"

bool infer_dropout(InferContext *context)
{
    const Value *key = infer_input(context, 1), *scalars = infer_input(context, 2);
    const Attribute *positions = node_attribute(context->node, "positions");
    double ratio = node_float(context->node, "ratio", 0);
    if (!infer_float_inputs(context, 1)) return false;
    if (key->dtype != DTYPE_I64 || shape_elements(&key->shape) != 1)
        return operator_error(context, NULL, "its key is not one int64");
    if (scalars->dtype != DTYPE_F32 || scalars->shape.rank != 1 || scalars->shape.dim[0] != SKY_STEP_SCALARS)
        return operator_error(context, NULL, "its last input is not the scalars of a step");
    if (!(ratio >= 0 && ratio < 1)) return operator_error(context, NULL, "the ratio %g is not in [0, 1)", ratio);
    if (!positions || positions->count != 1 + infer_input(context, 0)->shape.rank)
        return operator_error(context, NULL, "its positions do not fit the input");
    Shape shape;
    const Value *first = context->node->input_count > 3 ? infer_input(context, 3) : NULL;
    if (first &&
        (first->dtype != DTYPE_I64 || !shape_broadcast(&infer_input(context, 0)->shape, &first->shape, &shape) ||
         !shape_equal(&shape, &infer_input(context, 0)->shape)))
        return operator_error(context, NULL, "its first elements do not fit the input");
    return infer_same(context);
}

bool axes_dropout(const Graph *graph, const Node *node, int output, int axis, int *axes)
{
    const Shape *result = &graph_value(graph, node->outputs[output])->shape;
    axes[0] = axis;
    if (node->input_count > 3) axes[3] = axis_broadcast(&graph_value(graph, node->inputs[3])->shape, result, axis);
    return true;
}

bool differentiate_dropout(Differentiation *d, const Node *node)
{
    if (!gradient_wanted(d, node->inputs[0])) return true;
    ValueId inputs[4] = {gradient_of(d, node->outputs[0]), node->inputs[1], node->inputs[2]};
    if (node->input_count > 3) inputs[3] = node->inputs[3];
    gradient_add(d, node->inputs[0],
                 build_node(d->b, OP_Dropout, inputs, node->input_count, node->attributes, node->attribute_count));
    return true;
}

/* A scalar of the step, or the int64 that stands in the place of two. */
static Register load_step(Lowering *lowering, ValueId scalars, int element, DType dtype)
{
    View view = lower_view(lowering, scalars);
    view.offset += element;
    int operand = lower_operand(lowering, &view, (int64_t[KERNEL_MAX_AXES]){0});
    lowering->kernel->operands[operand].dtype = dtype;
    return kernel_load(lowering->kernel, operand);
}

/* How many numbers of RANDOM_ELEMENT_RANGE mean that an element is dropped. */
static int64_t dropped_numbers(const Node *node)
{
    int64_t numbers = llround(node_float(node, "ratio", 0) * RANDOM_ELEMENT_RANGE);
    return numbers < RANDOM_ELEMENT_RANGE ? numbers : RANDOM_ELEMENT_RANGE - 1;
}

/* Whether the element is dropped; `active`: whether any is. */
static Register draw(Lowering *lowering, const Node *node, int axes, Register active)
{
    Kernel *kernel = lowering->kernel;
    const int64_t *positions = node_attribute(node, "positions")->integers;
    int64_t stride[KERNEL_MAX_AXES] = {0};
    for (int i = 0; i < axes && node_attribute(node, "positions")->count > 1; i++) stride[i] = positions[1 + i];
    View scalars = lower_view(lowering, node->inputs[2]), own = lower_view(lowering, node->inputs[1]);
    int place = lower_operand(lowering, &scalars, stride);
    /* The node's own key is an operand, not a constant of the kernel: nodes share code. */
    Register own_key = kernel_load(kernel, lower_operand(lowering, &own, (int64_t[KERNEL_MAX_AXES]){0}));
    Register step_key = load_step(lowering, node->inputs[2], SKY_STEP_RANDOM_KEY, DTYPE_I64);
    Register key = kernel_add(kernel, own_key, step_key);
    Register row;
    if (node->input_count > 3) {
        View given = lower_view(lowering, node->inputs[3]);
        row = kernel_load(kernel, lower_operand_broadcast(lowering, &given));
    } else {
        row = load_step(lowering, node->inputs[2], SKY_STEP_FIRST_ROW, DTYPE_I64);
    }
    Register first = lower_scaled(kernel, row, node_integer(node, "row", 0), positions[0]);
    Register bound = kernel_constant_integer(kernel, dropped_numbers(node)), none = kernel_constant_integer(kernel, 0);
    return kernel_random(kernel, place, key, first, kernel_select(kernel, active, bound, none));
}

/* y = dropped ? 0 : x / (1 - ratio), where the ratio is 0 outside training. */
void lower_dropout(Lowering *lowering, const Node *node)
{
    View x = lower_view(lowering, node->inputs[0]), y = lower_output(lowering, node->outputs[0]);
    double kept = 1 - (double)dropped_numbers(node) / RANDOM_ELEMENT_RANGE;
    Kernel *kernel = lower_begin_over(lowering, opcodes[node->op].name, &y.shape);
    Register value = lower_load(lowering, &x);
    Register active = load_step(lowering, node->inputs[2], SKY_STEP_DROPOUT, DTYPE_F32);
    active = kernel_convert(kernel, DTYPE_BOOL, active);
    Register dropped = draw(lowering, node, kernel->axis_count, active);
    DType type = kernel_type(kernel, value);
    Register scale = kernel_constant(kernel, type, type == DTYPE_F32 ? (float)(1 / kept) : 1 / kept);
    scale = kernel_select(kernel, active, scale, kernel_constant(kernel, type, 1));
    Register scaled = kernel_multiply(kernel, value, scale), zero = kernel_constant(kernel, type, 0);
    kernel_store(kernel, lower_operand_broadcast(lowering, &y), kernel_select(kernel, dropped, zero, scaled));
    lower_end(lowering);
}

/* ---- New nodes ---- */

/* Whether a Dropout of the graph has this key. */
static bool key_is_taken(const Graph *graph, int64_t key)
{
    for (NodeId n = 1; n < graph->node_count; n++) {
        const Node *node = graph_node(graph, n);
        if (node->op == OP_Dropout && *(const int64_t *)graph_value(graph, node->inputs[1])->data == key) return true;
    }
    return false;
}

static int64_t new_key(const Graph *graph, const char *name)
{
    RandomStream stream = random_stream(0, name);
    while (key_is_taken(graph, (int64_t)stream.stream)) stream = random_substream(stream, 1);
    return (int64_t)stream.stream;
}

/* Elements of a tensor of this shape that belong to one row of the batch; 0 if it is the same for all rows. */
static int64_t row_elements(const Graph *graph, const Shape *shape)
{
    const Shape *input = graph->input_count ? &graph_value(graph, graph->inputs[0])->shape : NULL;
    int64_t rows = input && input->rank ? input->dim[0] : 1, elements = shape_elements(shape);
    if (shape->rank && shape->dim[0] == 1 && rows > 1) return 0;
    return rows > 0 && elements % rows == 0 ? elements / rows : elements;
}

ValueId graph_add_dropout(Graph *graph, ValueId x, double ratio, NodeOrigin origin, Diagnostics *diagnostics)
{
    Shape shape = graph_value(graph, x)->shape;
    int64_t key = new_key(graph, origin.name), positions[1 + MAX_RANK] = {0}, stride = 1;
    for (int i = shape.rank - 1; i >= 0; i--) {
        positions[1 + i] = stride;
        stride *= shape.dim[i];
    }
    Attribute attributes[3] = {attribute_float("ratio", ratio), attribute_integer("row", row_elements(graph, &shape)),
                               attribute_integers("positions", positions, 1 + shape.rank)};
    ValueId inputs[3] = {x, graph_constant_integers(graph, &key, 1), graph_step_scalars(graph)}, y;
    return graph_add_node(graph, OP_Dropout, origin, inputs, 3, attributes, 3, &y, 1, diagnostics) ? y : 0;
}
