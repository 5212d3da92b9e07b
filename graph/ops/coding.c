/* Codecs on links (base/codec_rows.h) as operators: Encode makes the bytes that travel of a float32 tensor, row by row
 * of its last dimension, and Decode makes the tensor again, or nearly.
 *
 * They stand in differentiated graphs only (graph/passes/code_cuts.h). What passes between them there is the value, as
 * if it had not been coded (straight through; Bengio, Leonard, Courville 2013): the gradient is that of the graph
 * without them, and has codings of its own. */
#include "graph/ops/lower.h"
#include "graph/ops/operator.h"
#include "runtime/program/step_scalars.h"

static bool codec_of(const Node *node, Codec *codec)
{
    const Attribute *name = node_attribute(node, "codec");
    return name && name->kind == ATTRIBUTE_STRING && codec_from_name(name->string, codec) && *codec != CODEC_NONE;
}

static bool infer_draws(const InferContext *context)
{
    const Value *key = infer_input(context, 1), *scalars = infer_input(context, 2);
    if (key->dtype != DTYPE_I64 || shape_elements(&key->shape) != 1)
        return operator_error(context, NULL, "its key is not one int64");
    if (scalars->dtype != DTYPE_F32 || scalars->shape.rank != 1 || scalars->shape.dim[0] != SKY_STEP_SCALARS)
        return operator_error(context, NULL, "its third input is not the scalars of a step");
    if (context->node->input_count < 4) return true;
    const Value *first = infer_input(context, 3), *x = infer_input(context, 0);
    Shape rows = x->shape, shape;
    rows.dim[rows.rank - 1] = 1;
    if (first->dtype != DTYPE_I64 || !shape_broadcast(&rows, &first->shape, &shape) || !shape_equal(&shape, &rows))
        return operator_error(context, NULL, "its first numbers do not fit the input");
    return true;
}

bool axes_coding(const Graph *graph, const Node *node, int output, int axis, int *axes)
{
    axes[0] = axis;
    return axis != graph_value(graph, node->outputs[output])->shape.rank - 1;
}

bool infer_encode(InferContext *context)
{
    const Value *x = infer_input(context, 0);
    Codec codec;
    if (!codec_of(context->node, &codec)) return operator_error(context, NULL, "it names no codec");
    if (x->dtype != DTYPE_F32 || x->shape.rank < 1)
        return operator_error(context, NULL, "only float32 tensors of one dimension or more have codecs");
    if (context->node->input_count == 2) return operator_error(context, NULL, "it has a key without scalars");
    if (context->node->input_count > 2 && !infer_draws(context)) return false;
    context->dtype[0] = DTYPE_U8;
    context->shape[0] = x->shape;
    context->shape[0].dim[x->shape.rank - 1] = codec_row_bytes(codec, x->shape.dim[x->shape.rank - 1]);
    return true;
}

bool infer_decode(InferContext *context)
{
    const Value *bytes = infer_input(context, 0);
    int64_t columns = node_integer(context->node, "columns", -1);
    Codec codec;
    if (!codec_of(context->node, &codec)) return operator_error(context, NULL, "it names no codec");
    if (bytes->dtype != DTYPE_U8 || bytes->shape.rank < 1 || columns < 0 || columns > INT32_MAX ||
        bytes->shape.dim[bytes->shape.rank - 1] != codec_row_bytes(codec, columns))
        return operator_error(context, NULL, "its input is not rows of %lld coded columns", (long long)columns);
    context->dtype[0] = DTYPE_F32;
    context->shape[0] = bytes->shape;
    context->shape[0].dim[bytes->shape.rank - 1] = columns;
    return true;
}

/* The view of a value whose rows are dense. */
static View view_of_rows(Lowering *lowering, ValueId value)
{
    View view = lower_view(lowering, value);
    const Graph *graph = lowering->graph;
    bool same_type = graph_value(graph, view.base)->dtype == graph_value(graph, value)->dtype;
    if (same_type && (view.shape.dim[view.shape.rank - 1] <= 1 || view.stride[view.shape.rank - 1] == 1)) return view;
    lowering_materialize(lowering, value);
    return lower_view(lowering, value);
}

/* An operand of coded bytes: its rows are `view`'s. */
static int operand_of_bytes(Lowering *lowering, const View *view)
{
    int64_t stride[KERNEL_MAX_AXES] = {0};
    for (int i = 0; i + 1 < view->shape.rank; i++) stride[i] = view->stride[i];
    return lower_operand(lowering, view, stride);
}

/* A scalar of the step that is an int64 in the place of two. */
static Register load_wide(Lowering *lowering, ValueId scalars, int element)
{
    View view = lower_view(lowering, scalars);
    view.offset += element;
    int operand = lower_operand(lowering, &view, (int64_t[KERNEL_MAX_AXES]){0});
    lowering->kernel->operands[operand].dtype = DTYPE_I64;
    return kernel_load(lowering->kernel, operand);
}

/* The number of the row's first element in the tensor of the whole batch. */
static Register first_number(Lowering *lowering, const Node *node, const Shape *shape)
{
    Kernel *kernel = lowering->kernel;
    if (node->input_count > 3) {
        View first = lower_view(lowering, node->inputs[3]);
        return kernel_load(kernel, lower_operand_broadcast(lowering, &first));
    }
    Register batch_row = load_wide(lowering, node->inputs[2], SKY_STEP_FIRST_ROW);
    Register number = lower_scaled(kernel, batch_row, node_integer(node, "row", 0), 0);
    View dense = {.shape = *shape};
    view_set_dense(&dense);
    for (int axis = 0; axis + 1 < shape->rank; axis++) {
        Register index = kernel_axis(kernel, axis);
        Register further = lower_scaled(kernel, index, dense.stride[axis], 0);
        number = kernel_add(kernel, number, further);
    }
    return number;
}

void lower_encode(Lowering *lowering, const Node *node)
{
    View x = view_of_rows(lowering, node->inputs[0]), bytes = lower_output(lowering, node->outputs[0]);
    Codec codec = CODEC_NONE;
    codec_of(node, &codec);
    Kernel *kernel = lower_begin_over(lowering, opcodes[node->op].name, &x.shape);
    int row = lower_operand(lowering, &x, x.stride), coded = operand_of_bytes(lowering, &bytes);
    Register key = 0, first = 0;
    if (node->input_count > 2) {
        kernel_begin_phase(kernel, false);
        View own = lower_view(lowering, node->inputs[1]);
        /* The node's own key is an operand, not a constant of the kernel: nodes share code. */
        Register own_key = kernel_load(kernel, lower_operand(lowering, &own, (int64_t[KERNEL_MAX_AXES]){0}));
        Register step_key = load_wide(lowering, node->inputs[2], SKY_STEP_RANDOM_KEY);
        key = kernel_add(kernel, own_key, step_key);
        first = first_number(lowering, node, &x.shape);
    }
    kernel_encode(kernel, codec, row, coded, key, first);
    lower_end(lowering);
}

void lower_decode(Lowering *lowering, const Node *node)
{
    View bytes = view_of_rows(lowering, node->inputs[0]), x = lower_output(lowering, node->outputs[0]);
    Codec codec = CODEC_NONE;
    codec_of(node, &codec);
    Kernel *kernel = lower_begin_over(lowering, opcodes[node->op].name, &x.shape);
    int row = lower_operand(lowering, &x, x.stride), coded = operand_of_bytes(lowering, &bytes);
    kernel_decode(kernel, codec, row, coded);
    lower_end(lowering);
}
