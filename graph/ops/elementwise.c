/* Maps with numpy broadcasting. */
#include <math.h>

#include "graph/ops/add_node.h"
#include "graph/ops/lower.h"
#include "graph/ops/operator.h"

/* ---- One input ---- */

static bool is_float_function(Opcode op)
{
    switch (op) {
    case OP_Exp:
    case OP_Log:
    case OP_Sqrt:
    case OP_Reciprocal:
    case OP_Sin:
    case OP_Cos:
    case OP_Erf:
    case OP_Tanh:
    case OP_Sigmoid:
    case OP_IsNaN: return true;
    default: return false;
    }
}

bool axes_broadcast(const Graph *graph, const Node *node, int output, int axis, int *axes)
{
    const Shape *result = &graph_value(graph, node->outputs[output])->shape;
    for (int i = 0; i < node->input_count; i++)
        if (node->inputs[i]) axes[i] = axis_broadcast(&graph_value(graph, node->inputs[i])->shape, result, axis);
    return true;
}

bool infer_unary(InferContext *context)
{
    Opcode op = context->node->op;
    if (is_float_function(op) && !infer_float_inputs(context, 1)) return false;
    DType dtype = infer_input(context, 0)->dtype;
    if (op != OP_Identity && (op == OP_Not) != (dtype == DTYPE_BOOL))
        return operator_error(context, NULL, "does not take an input of type %s", dtype_name(dtype));
    infer_same(context);
    if (op == OP_IsNaN) context->dtype[0] = DTYPE_BOOL;
    return true;
}

/* The derivative at x, or 0 where the operator has none; y is the result. */
static ValueId unary_derivative(Differentiation *d, Opcode op, ValueId x, ValueId y)
{
    DType dtype = graph_value(d->graph, x)->dtype;
    switch (op) {
    case OP_Neg: return graph_constant_scalar(d->graph, dtype, -1);
    case OP_Abs: return build_unary(d->b, OP_Sign, x);
    case OP_Exp: return y;
    case OP_Log: return build_unary(d->b, OP_Reciprocal, x);
    case OP_Sqrt: return build_binary(d->b, OP_Div, graph_constant_scalar(d->graph, dtype, 0.5), y);
    case OP_Reciprocal: return build_unary(d->b, OP_Neg, build_binary(d->b, OP_Mul, y, y));
    case OP_Sin: return build_unary(d->b, OP_Cos, x);
    case OP_Cos: return build_unary(d->b, OP_Neg, build_unary(d->b, OP_Sin, x));
    case OP_Erf: {
        ValueId square = build_unary(d->b, OP_Neg, build_binary(d->b, OP_Mul, x, x));
        ValueId bell = build_unary(d->b, OP_Exp, square);
        return build_binary(d->b, OP_Mul, bell, graph_constant_scalar(d->graph, dtype, M_2_SQRTPI));
    }
    case OP_Tanh: {
        ValueId one = graph_constant_scalar(d->graph, dtype, 1);
        return build_binary(d->b, OP_Sub, one, build_binary(d->b, OP_Mul, y, y));
    }
    case OP_Sigmoid: {
        ValueId one = graph_constant_scalar(d->graph, dtype, 1);
        return build_binary(d->b, OP_Mul, y, build_binary(d->b, OP_Sub, one, y));
    }
    default: return 0;
    }
}

bool differentiate_unary(Differentiation *d, const Node *node)
{
    const Graph *graph = d->graph;
    ValueId x = node->inputs[0], y = node->outputs[0], dy = gradient_of(d, y);
    if (node->op == OP_Identity) {
        gradient_add(d, x, dy);
    } else if (node->op == OP_Relu) {
        DType dtype = graph_value(graph, x)->dtype;
        ValueId zero = graph_constant_scalar(d->graph, dtype, 0);
        ValueId passes = build_binary(d->b, OP_Less, zero, y);
        gradient_add(d, x, build_where(d->b, passes, dy, zero));
    } else if (node->op != OP_Sign) { /* whose derivative is 0 wherever it has one */
        ValueId derivative = unary_derivative(d, node->op, x, y);
        if (!derivative) return false;
        gradient_add(d, x, build_binary(d->b, OP_Mul, dy, derivative));
    }
    return true;
}

static KernelOp unary_kernel_op(Opcode op)
{
    switch (op) {
    case OP_Neg: return KERNEL_NEGATE;
    case OP_Abs: return KERNEL_ABSOLUTE;
    case OP_Sign: return KERNEL_SIGN;
    case OP_Exp: return KERNEL_EXP;
    case OP_Log: return KERNEL_LOG;
    case OP_Sqrt: return KERNEL_SQRT;
    case OP_Reciprocal: return KERNEL_RECIPROCAL;
    case OP_Sin: return KERNEL_SIN;
    case OP_Cos: return KERNEL_COS;
    case OP_Erf: return KERNEL_ERF;
    case OP_Tanh: return KERNEL_TANH;
    case OP_Sigmoid: return KERNEL_SIGMOID;
    case OP_Not: return KERNEL_NOT;
    case OP_IsNaN: return KERNEL_IS_NAN;
    default: bug("%s is no map of one input", opcodes[op].name);
    }
}

void lower_unary(Lowering *lowering, const Node *node)
{
    if (node->op == OP_Identity) {
        lower_movement(lowering, node);
        return;
    }
    Kernel *kernel = lower_begin_map(lowering, node);
    Register x = lower_load_input(lowering, node, 0);
    if (node->op == OP_Relu) {
        Register zero = kernel_constant_like(kernel, x, 0);
        lower_end_map(lowering, node, kernel_binary(kernel, KERNEL_MAXIMUM, x, zero));
    } else {
        lower_end_map(lowering, node, kernel_unary(kernel, unary_kernel_op(node->op), x));
    }
}

bool infer_cast(InferContext *context)
{
    int64_t to = node_integer(context->node, "to", DTYPE_NONE);
    if (to <= DTYPE_NONE || to >= DTYPE_COUNT) return operator_error(context, NULL, "there is no type to cast to");
    infer_same(context);
    context->dtype[0] = (DType)to;
    return true;
}

bool differentiate_cast(Differentiation *d, const Node *node)
{
    ValueId x = node->inputs[0], dy = gradient_of(d, node->outputs[0]);
    if (!gradient_wanted(d, x)) return true;
    gradient_add(d, x, build_cast(d->b, dy, graph_value(d->graph, x)->dtype));
    return true;
}

void lower_cast(Lowering *lowering, const Node *node)
{
    DType to = graph_value(lowering->graph, node->outputs[0])->dtype;
    View view = lower_view(lowering, node->inputs[0]);
    if (movement_view(lowering->graph, node, &view)) {
        lower_movement(lowering, node);
        return;
    }
    Kernel *kernel = lower_begin_map(lowering, node);
    lower_end_map(lowering, node,
                  kernel_convert(kernel, kernel_register_type(to), lower_load_input(lowering, node, 0)));
}

/* ---- Two inputs ---- */

static bool is_comparison(Opcode op)
{
    return op == OP_Equal || op == OP_Less || op == OP_LessOrEqual || op == OP_Greater || op == OP_GreaterOrEqual;
}

static bool broadcast_inputs(InferContext *context, int first, int second)
{
    const Shape *a = &infer_input(context, first)->shape, *b = &infer_input(context, second)->shape;
    Shape shape;
    if (!shape_broadcast(a, b, &shape)) {
        char left[256], right[256];
        return operator_error(context, NULL, "shapes %s and %s do not broadcast", shape_format(a, left),
                              shape_format(b, right));
    }
    context->shape[0] = shape;
    return true;
}

bool infer_binary(InferContext *context)
{
    Opcode op = context->node->op;
    DType a = infer_input(context, 0)->dtype, b = infer_input(context, 1)->dtype;
    if (a != b && op != OP_Pow)
        return operator_error(context, "insert a Cast", "inputs have different types, %s and %s", dtype_name(a),
                              dtype_name(b));
    bool logical = op == OP_And || op == OP_Or;
    if ((logical != (a == DTYPE_BOOL) || logical != (b == DTYPE_BOOL)) && op != OP_Equal)
        return operator_error(context, NULL, "does not take inputs of type %s and %s", dtype_name(a), dtype_name(b));
    if (op == OP_Mod && dtype_is_float(a) && !node_integer(context->node, "fmod", 0))
        return operator_error(context, "set fmod to 1", "does not take inputs of type %s without fmod", dtype_name(a));
    context->dtype[0] = is_comparison(op) ? DTYPE_BOOL : a;
    return broadcast_inputs(context, 0, 1);
}

static void gradient_of_power(Differentiation *d, ValueId a, ValueId b, ValueId y, ValueId dy)
{
    const Graph *graph = d->graph;
    DType dtype = graph_value(graph, a)->dtype;
    ValueId zero = graph_constant_scalar(d->graph, dtype, 0), one = graph_constant_scalar(d->graph, dtype, 1);
    if (graph_value(graph, b)->dtype != dtype) b = build_cast(d->b, b, dtype);
    if (gradient_wanted(d, a)) {
        ValueId less = build_binary(d->b, OP_Sub, b, one);
        ValueId slope = build_binary(d->b, OP_Mul, b, build_binary(d->b, OP_Pow, a, less));
        gradient_add(d, a, build_binary(d->b, OP_Mul, dy, slope));
    }
    if (gradient_wanted(d, b)) { /* 0 where a <= 0, as the exponent cannot move there */
        ValueId positive = build_binary(d->b, OP_Less, zero, a);
        ValueId base = build_where(d->b, positive, a, one);
        ValueId slope = build_binary(d->b, OP_Mul, y, build_unary(d->b, OP_Log, base));
        gradient_add(d, b, build_binary(d->b, OP_Mul, dy, slope));
    }
}

static void gradient_of_quotient(Differentiation *d, ValueId a, ValueId b, ValueId y, ValueId dy)
{
    ValueId da = build_binary(d->b, OP_Div, dy, b);
    gradient_add(d, a, da);
    if (gradient_wanted(d, b)) {
        ValueId product = build_binary(d->b, OP_Mul, da, y);
        gradient_add(d, b, build_unary(d->b, OP_Neg, product));
    }
}

/* d Mod(a, b) = da - trunc(a / b) db; the quotient is recovered as (a - y) / b. */
static void gradient_of_remainder(Differentiation *d, ValueId a, ValueId b, ValueId y, ValueId dy)
{
    gradient_add(d, a, dy);
    if (gradient_wanted(d, b)) {
        ValueId quotient = build_binary(d->b, OP_Div, build_binary(d->b, OP_Sub, y, a), b);
        gradient_add(d, b, build_binary(d->b, OP_Mul, dy, quotient));
    }
}

/* Where both are equal the gradient goes to the first: so clipping passes it on at the bounds. */
static void gradient_of_extreme(Differentiation *d, Opcode op, ValueId a, ValueId b, ValueId dy)
{
    ValueId zero = graph_constant_scalar(d->graph, graph_value(d->graph, a)->dtype, 0);
    ValueId first = op == OP_Min ? build_binary(d->b, OP_LessOrEqual, a, b) : build_binary(d->b, OP_LessOrEqual, b, a);
    if (gradient_wanted(d, a)) gradient_add(d, a, build_where(d->b, first, dy, zero));
    if (gradient_wanted(d, b)) gradient_add(d, b, build_where(d->b, first, zero, dy));
}

bool differentiate_binary(Differentiation *d, const Node *node)
{
    ValueId a = node->inputs[0], b = node->inputs[1], y = node->outputs[0], dy = gradient_of(d, y);
    switch (node->op) {
    case OP_Add:
        gradient_add(d, a, dy);
        gradient_add(d, b, dy);
        return true;
    case OP_Sub:
        gradient_add(d, a, dy);
        if (gradient_wanted(d, b)) gradient_add(d, b, build_unary(d->b, OP_Neg, dy));
        return true;
    case OP_Mul:
        if (gradient_wanted(d, a)) gradient_add(d, a, build_binary(d->b, OP_Mul, dy, b));
        if (gradient_wanted(d, b)) gradient_add(d, b, build_binary(d->b, OP_Mul, dy, a));
        return true;
    case OP_Div: gradient_of_quotient(d, a, b, y, dy); return true;
    case OP_Pow: gradient_of_power(d, a, b, y, dy); return true;
    case OP_Mod: gradient_of_remainder(d, a, b, y, dy); return true;
    case OP_Min:
    case OP_Max: gradient_of_extreme(d, node->op, a, b, dy); return true;
    default: return false;
    }
}

/* Small exponents that are known become products and roots. */
static Register power_of_constant(Kernel *kernel, Register x, double exponent)
{
    if (exponent == 1) return x;
    if (exponent == 2) return kernel_multiply(kernel, x, x);
    if (exponent == 3) return kernel_multiply(kernel, kernel_multiply(kernel, x, x), x);
    if (exponent == 0.5) return kernel_unary(kernel, KERNEL_SQRT, x);
    if (exponent == -1) return kernel_unary(kernel, KERNEL_RECIPROCAL, x);
    return 0;
}

static Register lower_power(Lowering *lowering, const Node *node)
{
    Kernel *kernel = lowering->kernel;
    Register x = lower_load_input(lowering, node, 0);
    View exponent = lower_view(lowering, node->inputs[1]);
    double number;
    DType type = kernel_type(kernel, x);
    if (dtype_is_float(type) && lower_constant(lowering, &exponent, &number)) {
        Register result = power_of_constant(kernel, x, number);
        if (result) return result;
    }
    Register y = lower_load(lowering, &exponent);
    /* An integer to a fraction is computed in floating point. */
    if (dtype_is_float(kernel_type(kernel, y)) && !dtype_is_float(type)) type = DTYPE_F64;
    x = kernel_convert(kernel, type, x);
    return kernel_binary(kernel, KERNEL_POWER, x, kernel_convert(kernel, type, y));
}

/* Division by a power of two is multiplication by another, exactly. */
static Register lower_quotient(Lowering *lowering, const Node *node)
{
    Kernel *kernel = lowering->kernel;
    Register a = lower_load_input(lowering, node, 0);
    View divisor = lower_view(lowering, node->inputs[1]);
    double number;
    int exponent;
    if (dtype_is_float(kernel_type(kernel, a)) && lower_constant(lowering, &divisor, &number) &&
        fabs(frexp(number, &exponent)) == 0.5 && exponent > -120 && exponent < 120) {
        Register factor = kernel_constant_like(kernel, a, 1 / number);
        return kernel_multiply(kernel, a, factor);
    }
    return kernel_binary(kernel, KERNEL_DIVIDE, a, lower_load(lowering, &divisor));
}

/* With the sign of the dividend for fmod, else of the divisor. */
static Register lower_remainder(Kernel *kernel, const Node *node, Register a, Register b)
{
    if (dtype_is_float(kernel_type(kernel, a)) || !node_integer(node, "fmod", 0))
        return kernel_binary(kernel, KERNEL_REMAINDER, a, b);
    Register whole = kernel_multiply(kernel, kernel_binary(kernel, KERNEL_DIVIDE, a, b), b);
    return kernel_subtract(kernel, a, whole);
}

void lower_binary(Lowering *lowering, const Node *node)
{
    static const unsigned char kernel_ops[OP_COUNT] = {
        [OP_Add] = KERNEL_ADD,
        [OP_Sub] = KERNEL_SUBTRACT,
        [OP_Mul] = KERNEL_MULTIPLY,
        [OP_Min] = KERNEL_MINIMUM,
        [OP_Max] = KERNEL_MAXIMUM,
        [OP_And] = KERNEL_AND,
        [OP_Or] = KERNEL_OR,
        [OP_Equal] = KERNEL_EQUAL,
        [OP_Less] = KERNEL_LESS,
        [OP_Greater] = KERNEL_LESS,
        [OP_LessOrEqual] = KERNEL_LESS_EQUAL,
        [OP_GreaterOrEqual] = KERNEL_LESS_EQUAL,
    };
    Kernel *kernel = lower_begin_map(lowering, node);
    Register result;
    if (node->op == OP_Pow) {
        result = lower_power(lowering, node);
    } else if (node->op == OP_Div) {
        result = lower_quotient(lowering, node);
    } else {
        Register a = lower_load_input(lowering, node, 0), b = lower_load_input(lowering, node, 1);
        bool swapped = node->op == OP_Greater || node->op == OP_GreaterOrEqual;
        result = node->op == OP_Mod
                     ? lower_remainder(kernel, node, a, b)
                     : kernel_binary(kernel, (KernelOp)kernel_ops[node->op], swapped ? b : a, swapped ? a : b);
    }
    lower_end_map(lowering, node, result);
}

/* ---- Where ---- */

bool infer_where(InferContext *context)
{
    DType a = infer_input(context, 1)->dtype, b = infer_input(context, 2)->dtype;
    if (infer_input(context, 0)->dtype != DTYPE_BOOL) return operator_error(context, NULL, "the condition is not bool");
    if (a != b)
        return operator_error(context, "insert a Cast", "inputs have different types, %s and %s", dtype_name(a),
                              dtype_name(b));
    context->dtype[0] = a;
    if (!broadcast_inputs(context, 1, 2)) return false;
    Shape both = context->shape[0];
    if (!shape_broadcast(&infer_input(context, 0)->shape, &both, &context->shape[0]))
        return operator_error(context, NULL, "the shapes of the inputs do not broadcast");
    return true;
}

bool differentiate_where(Differentiation *d, const Node *node)
{
    const Graph *graph = d->graph;
    ValueId condition = node->inputs[0], dy = gradient_of(d, node->outputs[0]);
    ValueId zero = graph_constant_scalar(d->graph, graph_value(graph, dy)->dtype, 0);
    for (int i = 1; i <= 2; i++) {
        if (!gradient_wanted(d, node->inputs[i])) continue;
        ValueId inputs[3] = {condition, i == 1 ? dy : zero, i == 1 ? zero : dy};
        gradient_add(d, node->inputs[i], build_node(d->b, OP_Where, inputs, 3, NULL, 0));
    }
    return true;
}

void lower_where(Lowering *lowering, const Node *node)
{
    Kernel *kernel = lower_begin_map(lowering, node);
    Register condition = lower_load_input(lowering, node, 0);
    Register a = lower_load_input(lowering, node, 1), b = lower_load_input(lowering, node, 2);
    lower_end_map(lowering, node, kernel_select(kernel, condition, a, b));
}
