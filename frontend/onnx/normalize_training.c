/* The optimisers of ai.onnx.preview.training as operators of a graph: one step for any number of tensors. Inputs are
 * the rate, the number of steps done, then for all tensors their values, their gradients and what is remembered of
 * former ones; outputs are the new values, then what is remembered now. */
#include <string.h>

#include "frontend/onnx/normalize.h"

typedef struct UpdateNode {
    OnnxNode *node;
    ValueId rate, step; /* step: int64 */
    int tensors, memories;
    double norm; /* what weight decay adds of the value to the gradient */
    double alpha, beta, epsilon;
} UpdateNode;

static bool read_update(UpdateNode *update, int memories)
{
    OnnxNode *node = update->node;
    int kinds = 2 + memories;
    update->memories = memories;
    update->tensors = (node->input_count - 2) / kinds;
    if (update->tensors < 1 || 2 + kinds * update->tensors != node->input_count)
        return node_error(node, NULL, "has %d inputs, which is no whole number of tensors", node->input_count);
    for (int i = 0; i < node->input_count; i++)
        if (!node->inputs[i]) return node_error(node, NULL, "input %d is missing", i);
    update->rate = node->inputs[0];
    update->step = node->inputs[1];
    return read_float(node, "norm_coefficient", 0, &update->norm);
}

/* Input `kind` of tensor `i`: 0 its value, 1 its gradient, 2 ... what is remembered. */
static ValueId tensor(const UpdateNode *update, int kind, int i)
{
    return update->node->inputs[2 + kind * update->tensors + i];
}

static bool set_tensor(const UpdateNode *update, int kind, int i, ValueId value)
{
    return set_output(update->node, kind * update->tensors + i, value);
}

static ValueId scaled(const UpdateNode *update, ValueId value, double factor)
{
    OnnxNode *node = update->node;
    if (!value || factor == 1) return value;
    return emit_binary(node, OP_Mul, value, emit_scalar(node, dtype_of(node, value), factor));
}

/* gradient + norm * value */
static ValueId regularized(const UpdateNode *update, int i)
{
    if (update->norm == 0) return tensor(update, 1, i);
    return emit_binary(update->node, OP_Add, tensor(update, 1, i), scaled(update, tensor(update, 0, i), update->norm));
}

/* a * x + b * y */
static ValueId blend(const UpdateNode *update, double a, ValueId x, double b, ValueId y)
{
    ValueId first = scaled(update, x, a);
    return emit_binary(update->node, OP_Add, first, scaled(update, y, b));
}

/* value - rate * direction */
static ValueId stepped(const UpdateNode *update, int i, ValueId rate, ValueId direction)
{
    return emit_binary(update->node, OP_Sub, tensor(update, 0, i), emit_binary(update->node, OP_Mul, rate, direction));
}

/* sqrt(x) + epsilon */
static ValueId root_of(const UpdateNode *update, ValueId x)
{
    if (!x) return 0;
    ValueId epsilon = emit_scalar(update->node, dtype_of(update->node, x), update->epsilon);
    return emit_binary(update->node, OP_Add, emit_unary(update->node, OP_Sqrt, x), epsilon);
}

static ValueId first_step(const UpdateNode *update)
{
    return emit_binary(update->node, OP_Equal, update->step, emit_scalar(update->node, DTYPE_I64, 0));
}

/* 1 - factor^step */
static ValueId correction(const UpdateNode *update, double factor)
{
    OnnxNode *node = update->node;
    DType type = dtype_of(node, update->rate);
    ValueId power = emit_binary(node, OP_Pow, emit_scalar(node, type, factor), emit_cast(node, update->step, type));
    return emit_binary(node, OP_Sub, emit_scalar(node, type, 1), power);
}

bool normalize_adam(OnnxNode *node)
{
    UpdateNode update = {.node = node};
    double post;
    if (!read_update(&update, 2) || !read_float(node, "alpha", 0.9f, &update.alpha) ||
        !read_float(node, "beta", 0.999f, &update.beta) || !read_float(node, "epsilon", 1e-6f, &update.epsilon) ||
        !read_float(node, "norm_coefficient_post", 0, &post))
        return false;
    ValueId rate = emit_binary(node, OP_Mul, update.rate, emit_unary(node, OP_Sqrt, correction(&update, update.beta)));
    rate = emit_where(node, first_step(&update), update.rate,
                      emit_binary(node, OP_Div, rate, correction(&update, update.alpha)));
    for (int i = 0; i < update.tensors; i++) {
        ValueId gradient = regularized(&update, i), square = emit_binary(node, OP_Mul, gradient, gradient);
        ValueId mean = blend(&update, update.alpha, tensor(&update, 2, i), 1 - update.alpha, gradient);
        ValueId spread = blend(&update, update.beta, tensor(&update, 3, i), 1 - update.beta, square);
        ValueId direction = emit_binary(node, OP_Div, mean, root_of(&update, spread));
        ValueId value = scaled(&update, stepped(&update, i, rate, direction), 1 - post);
        if (!set_tensor(&update, 0, i, value) || !set_tensor(&update, 1, i, mean) || !set_tensor(&update, 2, i, spread))
            return false;
    }
    return true;
}

bool normalize_adagrad(OnnxNode *node)
{
    UpdateNode update = {.node = node};
    double decay;
    if (!read_update(&update, 1) || !read_float(node, "decay_factor", 0, &decay) ||
        !read_float(node, "epsilon", 1e-6f, &update.epsilon))
        return false;
    DType type = dtype_of(node, update.rate);
    ValueId slowing = scaled(&update, emit_cast(node, update.step, type), decay);
    ValueId rate =
        emit_binary(node, OP_Div, update.rate, emit_binary(node, OP_Add, emit_scalar(node, type, 1), slowing));
    for (int i = 0; i < update.tensors; i++) {
        ValueId gradient = regularized(&update, i), square = emit_binary(node, OP_Mul, gradient, gradient);
        ValueId sum = emit_binary(node, OP_Add, tensor(&update, 2, i), square);
        ValueId direction = emit_binary(node, OP_Div, gradient, root_of(&update, sum));
        if (!set_tensor(&update, 0, i, stepped(&update, i, rate, direction)) || !set_tensor(&update, 1, i, sum))
            return false;
    }
    return true;
}

bool normalize_momentum(OnnxNode *node)
{
    UpdateNode update = {.node = node};
    const char *mode;
    if (!read_update(&update, 1) || !read_float(node, "alpha", 0, &update.alpha) ||
        !read_float(node, "beta", 0, &update.beta) || !read_string(node, "mode", "", &mode))
        return false;
    bool nesterov = strcmp(mode, "nesterov") == 0;
    if (!nesterov && strcmp(mode, "standard") != 0)
        return node_error(node, NULL, "the mode '%s' is neither nesterov nor standard", mode);
    DType type = dtype_of(node, update.rate);
    ValueId weight =
        emit_where(node, first_step(&update), emit_scalar(node, type, 1), emit_scalar(node, type, update.beta));
    for (int i = 0; i < update.tensors; i++) {
        ValueId gradient = regularized(&update, i), kept = scaled(&update, tensor(&update, 2, i), update.alpha);
        ValueId velocity = emit_binary(node, OP_Add, kept, emit_binary(node, OP_Mul, weight, gradient));
        ValueId direction = nesterov ? blend(&update, 1, gradient, update.alpha, velocity) : velocity;
        if (!set_tensor(&update, 0, i, stepped(&update, i, update.rate, direction)) ||
            !set_tensor(&update, 1, i, velocity))
            return false;
    }
    return true;
}
