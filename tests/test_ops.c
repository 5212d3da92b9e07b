/* Every operator, declared once in the table below: its result against an independent reference in C, in several types
 * and memory layouts, and its gradient against central differences. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>

#include "graph/autodiff.h"
#include "graph/operator.h"
#include "runtime/program.h"
#include "tests/graph_evaluator.h"

enum { MAX_INPUTS = 5, MAX_OUTPUTS = 3, MAX_ELEMENTS = 4096 };

typedef struct Tensor {
    Shape shape;
    double *data;
} Tensor;

typedef enum InputKind {
    NONE,
    REAL,     /* of the type under test, in [low, high] */
    CONSTANT, /* the same, but a constant */
    WHOLE,    /* int64 in low ... high */
    TRUTH,    /* bool */
    SCALARS   /* the scalars of a step */
} InputKind;

typedef struct InputSpec {
    InputKind kind;
    Shape shape;
    double low, high;
} InputSpec;

typedef struct Case Case;
typedef void Reference(const Case *test, const Tensor *input, Tensor *output);

struct Case {
    Opcode op;
    InputSpec inputs[MAX_INPUTS];
    Attribute attributes[4];
    Reference *reference;
    union {
        double (*unary)(double);
        double (*binary)(double, double);
    };
    bool differentiable;
    double tolerance; /* 0: the usual one */
};

/* --- Elements and indices
 * ---------------------------------------------------------------------------------------------- */

static uint64_t random_state;

static double random_between(double low, double high)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return low + (high - low) * (double)(random_state >> 11) * 0x1p-53;
}

/* The coordinates of element `i` of a tensor of this shape. */
static void coordinates(const Shape *shape, int64_t i, int64_t *at)
{
    for (int axis = shape->rank - 1; axis >= 0; axis--) {
        at[axis] = i % shape->dim[axis];
        i /= shape->dim[axis];
    }
}

/* The element of `tensor` that broadcasting puts at `at` of a tensor of rank `rank`. */
static double *element(const Tensor *tensor, const int64_t *at, int rank)
{
    int64_t index = 0;
    for (int axis = 0; axis < tensor->shape.rank; axis++) {
        int64_t coordinate = at[axis + rank - tensor->shape.rank];
        index = index * tensor->shape.dim[axis] + (tensor->shape.dim[axis] == 1 ? 0 : coordinate);
    }
    return &tensor->data[index];
}

static int64_t integer_attribute(const Case *test, const char *name, int64_t absent)
{
    Node node = {.attributes = (Attribute *)test->attributes, .attribute_count = 4};
    for (int i = 0; i < 4; i++)
        if (!test->attributes[i].name) node.attribute_count = i < node.attribute_count ? i : node.attribute_count;
    return node_integer(&node, name, absent);
}

#define FOR_EACH_ELEMENT(i, tensor)                                                                                    \
    for (int64_t i = 0, at[MAX_RANK], count_ = shape_elements(&(tensor)->shape);                                       \
         i < count_ && (coordinates(&(tensor)->shape, i, at), true); i++)

/* --- References
 * -------------------------------------------------------------------------------------------------------- */

static void reference_unary(const Case *test, const Tensor *input, Tensor *output)
{
    FOR_EACH_ELEMENT(i, output) output->data[i] = test->unary(input->data[i]);
}

static void reference_binary(const Case *test, const Tensor *input, Tensor *output)
{
    int rank = output->shape.rank;
    FOR_EACH_ELEMENT(i, output)
    output->data[i] = test->binary(*element(&input[0], at, rank), *element(&input[1], at, rank));
}

static void reference_where(const Case *test, const Tensor *input, Tensor *output)
{
    (void)test;
    int rank = output->shape.rank;
    FOR_EACH_ELEMENT(i, output)
    output->data[i] = *element(&input[*element(&input[0], at, rank) != 0 ? 1 : 2], at, rank);
}

static void reference_same(const Case *test, const Tensor *input, Tensor *output)
{
    (void)test;
    FOR_EACH_ELEMENT(i, output) output->data[i] = input->data[i];
}

static void reference_expand(const Case *test, const Tensor *input, Tensor *output)
{
    (void)test;
    FOR_EACH_ELEMENT(i, output) output->data[i] = *element(input, at, output->shape.rank);
}

static void reference_transpose(const Case *test, const Tensor *input, Tensor *output)
{
    FOR_EACH_ELEMENT(i, output)
    {
        int64_t from[MAX_RANK];
        for (int axis = 0; axis < output->shape.rank; axis++) from[test->attributes[0].integers[axis]] = at[axis];
        output->data[i] = *element(input, from, output->shape.rank);
    }
}

static void reference_slice(const Case *test, const Tensor *input, Tensor *output)
{
    FOR_EACH_ELEMENT(i, output)
    {
        for (int axis = 0; axis < output->shape.rank; axis++)
            at[axis] = test->attributes[0].integers[axis] + at[axis] * test->attributes[1].integers[axis];
        output->data[i] = *element(input, at, output->shape.rank);
    }
}

static void reference_slice_gradient(const Case *test, const Tensor *input, Tensor *output)
{
    FOR_EACH_ELEMENT(i, input)
    {
        for (int axis = 0; axis < output->shape.rank; axis++)
            at[axis] = test->attributes[0].integers[axis] + at[axis] * test->attributes[1].integers[axis];
        *element(output, at, output->shape.rank) = input->data[i];
    }
}

static void reference_concat(const Case *test, const Tensor *input, Tensor *output)
{
    int64_t axis = integer_attribute(test, "axis", 0);
    FOR_EACH_ELEMENT(i, output)
    {
        int from = 0;
        while (at[axis] >= input[from].shape.dim[axis]) at[axis] -= input[from++].shape.dim[axis];
        output->data[i] = *element(&input[from], at, output->shape.rank);
    }
}

/* The place in the data that a gather reads for `at` of its result. */
static void gathered(const Tensor *data, const Tensor *indices, int64_t axis, const int64_t *at, int64_t *from)
{
    int rank = indices->shape.rank;
    for (int i = 0; i < data->shape.rank; i++) from[i] = i < axis ? at[i] : at[i + rank - 1];
    int64_t index = (int64_t)*element(indices, at + axis, rank);
    from[axis] = index < 0 ? index + data->shape.dim[axis] : index;
}

static void reference_gather(const Case *test, const Tensor *input, Tensor *output)
{
    FOR_EACH_ELEMENT(i, output)
    {
        int64_t from[MAX_RANK];
        gathered(&input[0], &input[1], integer_attribute(test, "axis", 0), at, from);
        output->data[i] = *element(&input[0], from, input[0].shape.rank);
    }
}

static void reference_gather_gradient(const Case *test, const Tensor *input, Tensor *output)
{
    FOR_EACH_ELEMENT(i, &input[1])
    {
        int64_t to[MAX_RANK];
        gathered(output, &input[0], integer_attribute(test, "axis", 0), at, to);
        *element(output, to, output->shape.rank) += input[1].data[i];
    }
}

static void reference_reduce(const Case *test, const Tensor *input, Tensor *output)
{
    unsigned reduced = 0;
    for (int i = 0; i < test->attributes[0].count; i++)
        reduced |= 1u << (test->attributes[0].integers[i] + input->shape.rank) % input->shape.rank;
    if (!reduced) reduced = (1u << input->shape.rank) - 1;
    Tensor kept = {.data = output->data, .shape = input->shape};
    for (int i = 0; i < kept.shape.rank; i++)
        if (reduced >> i & 1) kept.shape.dim[i] = 1;
    double count = (double)shape_elements(&input->shape) / (double)shape_elements(&kept.shape);
    double start = test->op == OP_ReduceMax ? -INFINITY : test->op == OP_ReduceMin ? INFINITY : 0;
    for (int64_t i = 0; i < shape_elements(&kept.shape); i++) kept.data[i] = start;
    FOR_EACH_ELEMENT(i, input)
    {
        double *result = element(&kept, at, input->shape.rank), x = input->data[i];
        if (test->op == OP_ReduceMax)
            *result = fmax(*result, x);
        else if (test->op == OP_ReduceMin)
            *result = fmin(*result, x);
        else
            *result += test->op == OP_ReduceMean ? x / count : x;
    }
}

static void reference_matmul(const Case *test, const Tensor *input, Tensor *output)
{
    (void)test;
    Tensor a = input[0], b = input[1], c = *output;
    if (a.shape.rank == 1) a.shape = (Shape){2, {1, a.shape.dim[0]}};
    if (input[0].shape.rank == 1) { /* give the result its row back */
        int columns = input[1].shape.rank > 1;
        for (int i = c.shape.rank; i > c.shape.rank - columns; i--) c.shape.dim[i] = c.shape.dim[i - 1];
        c.shape.dim[c.shape.rank - columns] = 1;
        c.shape.rank++;
    }
    if (b.shape.rank == 1) {
        b.shape = (Shape){2, {b.shape.dim[0], 1}};
        c.shape.dim[c.shape.rank++] = 1;
    }
    int rank = c.shape.rank;
    FOR_EACH_ELEMENT(i, &c)
    {
        c.data[i] = 0;
        for (int64_t k = 0; k < a.shape.dim[a.shape.rank - 1]; k++) {
            int64_t left[MAX_RANK], right[MAX_RANK];
            memcpy(left, at, sizeof left);
            memcpy(right, at, sizeof right);
            left[rank - 1] = right[rank - 2] = k;
            c.data[i] += *element(&a, left, rank) * *element(&b, right, rank);
        }
    }
}

static void reference_softmax(const Case *test, const Tensor *input, Tensor *output)
{
    int64_t width = input->shape.dim[input->shape.rank - 1], count = shape_elements(&input->shape);
    for (int64_t row = 0; row < count; row += width) {
        double sum = 0;
        for (int64_t i = 0; i < width; i++) sum += exp(input->data[row + i]);
        for (int64_t i = 0; i < width; i++)
            output->data[row + i] =
                test->op == OP_Softmax ? exp(input->data[row + i]) / sum : input->data[row + i] - log(sum);
    }
}

static void reference_layer_norm(const Case *test, const Tensor *input, Tensor *output)
{
    int64_t width = input->shape.dim[input->shape.rank - 1], count = shape_elements(&input->shape);
    double epsilon = test->attributes[0].number;
    for (int64_t row = 0; row < count / width; row++) {
        const double *x = input->data + row * width;
        double mean = 0, variance = 0;
        for (int64_t i = 0; i < width; i++) mean += x[i] / (double)width;
        for (int64_t i = 0; i < width; i++) variance += (x[i] - mean) * (x[i] - mean) / (double)width;
        output[1].data[row] = mean;
        output[2].data[row] = 1 / sqrt(variance + epsilon);
        for (int64_t i = 0; i < width; i++)
            output[0].data[row * width + i] =
                (x[i] - mean) / sqrt(variance + epsilon) * input[1].data[i] + (input[2].data ? input[2].data[i] : 0);
    }
}

static void reference_cross_entropy(const Case *test, const Tensor *input, Tensor *output)
{
    int64_t rows = input->shape.dim[0], classes = input->shape.dim[1];
    int64_t ignored = integer_attribute(test, "ignore_index", -100);
    output[0].data[0] = 0;
    for (int64_t row = 0; row < rows; row++) {
        double sum = 0;
        for (int64_t i = 0; i < classes; i++) sum += exp(input->data[row * classes + i]);
        output[1].data[row] = log(sum);
        int64_t label = (int64_t)input[1].data[row];
        if (label != ignored)
            output[0].data[0] += (log(sum) - input->data[row * classes + label]) * input[2].data[SKY_STEP_LOSS_SCALE];
    }
}

static void reference_scale_loss(const Case *test, const Tensor *input, Tensor *output)
{
    (void)test;
    FOR_EACH_ELEMENT(i, output) output->data[i] = input->data[i] * input[1].data[SKY_STEP_LOSS_SCALE];
}

static double negate(double x) { return -x; }
static double sign(double x) { return (x > 0) - (x < 0); }
static double reciprocal(double x) { return 1 / x; }
static double sigmoid(double x) { return 1 / (1 + exp(-x)); }
static double relu(double x) { return x > 0 ? x : 0; }
static double logical_not(double x) { return x == 0; }
static double is_nan(double x) { return isnan(x); }
static double to_integer(double x) { return trunc(x); }
static double gelu(double x) { return x * 0.5 * erfc(-x / sqrt(2)); }
static double gelu_tanh(double x) { return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }
static double add(double a, double b) { return a + b; }
static double subtract(double a, double b) { return a - b; }
static double multiply(double a, double b) { return a * b; }
static double divide(double a, double b) { return a / b; }
static double divide_whole(double a, double b) { return trunc(a / b); }
static double floor_remainder(double a, double b) { return a - floor(a / b) * b; }
static double both(double a, double b) { return a && b; }
static double either(double a, double b) { return a || b; }
static double equal(double a, double b) { return a == b; }
static double less(double a, double b) { return a < b; }
static double less_equal(double a, double b) { return a <= b; }
static double greater(double a, double b) { return a > b; }
static double greater_equal(double a, double b) { return a >= b; }

/* --- The table
 * --------------------------------------------------------------------------------------------------------- */

#define SHAPE(...)                                                                                                     \
    {                                                                                                                  \
        sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), { __VA_ARGS__ }                                            \
    }
#define INTEGERS(text, ...)                                                                                            \
    {                                                                                                                  \
        .name = text, .kind = ATTRIBUTE_INTEGERS, .count = sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t),         \
        .integers = (const int64_t[])                                                                                  \
        {                                                                                                              \
            __VA_ARGS__                                                                                                \
        }                                                                                                              \
    }
#define INTEGER(text, value)                                                                                           \
    {                                                                                                                  \
        .name = text, .kind = ATTRIBUTE_INTEGER, .integer = value                                                      \
    }
#define FLOAT(text, value)                                                                                             \
    {                                                                                                                  \
        .name = text, .kind = ATTRIBUTE_FLOAT, .number = value                                                         \
    }

#define UNARY(name, function, from, to)                                                                                \
    {                                                                                                                  \
        .op = OP_##name, .inputs = {{REAL, SHAPE(2, 3, 5), from, to}}, .reference = reference_unary,                   \
        .unary = function, .differentiable = true                                                                      \
    }
#define BINARY(name, function, from, to)                                                                               \
    {                                                                                                                  \
        .op = OP_##name, .inputs = {{REAL, SHAPE(2, 3, 4), from, to}, {REAL, SHAPE(3, 1), from, to}},                  \
        .reference = reference_binary, .binary = function, .differentiable = true                                      \
    }
#define BINARY_OF(name, function, type, from, to)                                                                      \
    {                                                                                                                  \
        .op = OP_##name, .inputs = {{type, SHAPE(4, 1, 3), from, to}, {type, SHAPE(5, 3), from, to}},                  \
        .reference = reference_binary, .binary = function                                                              \
    }
#define REDUCE(name, ...)                                                                                              \
    {                                                                                                                  \
        .op = OP_##name, .inputs = {{REAL, SHAPE(3, 4, 2, 5), -2, 2}},                                                 \
        .attributes = {INTEGERS("axes", __VA_ARGS__), INTEGER("keepdims", 0)}, .reference = reference_reduce,          \
        .differentiable = true                                                                                         \
    }
#define MATMUL(left, right)                                                                                            \
    {                                                                                                                  \
        .op = OP_MatMul, .inputs = {{REAL, left, -1, 1}, {REAL, right, -1, 1}}, .reference = reference_matmul,         \
        .differentiable = true                                                                                         \
    }

static const Case cases[] = {
    {.op = OP_Identity, .inputs = {{REAL, SHAPE(2, 3), -2, 2}}, .reference = reference_same, .differentiable = true},
    UNARY(Neg, negate, -2, 2),
    UNARY(Abs, fabs, -2, 2),
    UNARY(Sign, sign, -2, 2),
    UNARY(Exp, exp, -2, 2),
    UNARY(Log, log, 0.5, 3),
    UNARY(Sqrt, sqrt, 0.5, 3),
    UNARY(Reciprocal, reciprocal, 0.5, 3),
    UNARY(Sin, sin, -4, 4),
    UNARY(Cos, cos, -4, 4),
    UNARY(Erf, erf, -2, 2),
    UNARY(Tanh, tanh, -2, 2),
    UNARY(Sigmoid, sigmoid, -4, 4),
    UNARY(Relu, relu, -2, 2),
    {.op = OP_Not, .inputs = {{TRUTH, SHAPE(3, 4), 0, 1}}, .reference = reference_unary, .unary = logical_not},
    {.op = OP_IsNaN, .inputs = {{REAL, SHAPE(3, 4), -1, 1}}, .reference = reference_unary, .unary = is_nan},
    {.op = OP_Neg, .inputs = {{WHOLE, SHAPE(3, 4), -9, 9}}, .reference = reference_unary, .unary = negate},
    {.op = OP_Cast,
     .inputs = {{REAL, SHAPE(3, 4), -2, 2}},
     .attributes = {INTEGER("to", DTYPE_F64)},
     .reference = reference_same,
     .differentiable = true},
    {.op = OP_Cast,
     .inputs = {{REAL, SHAPE(3, 4), -9, 9}},
     .attributes = {INTEGER("to", DTYPE_I32)},
     .reference = reference_unary,
     .unary = to_integer},
    {.op = OP_Cast,
     .inputs = {{WHOLE, SHAPE(3, 4), -9, 9}},
     .attributes = {INTEGER("to", DTYPE_F32)},
     .reference = reference_same},
    BINARY(Add, add, -2, 2),
    BINARY(Sub, subtract, -2, 2),
    BINARY(Mul, multiply, -2, 2),
    BINARY(Div, divide, 0.5, 2),
    BINARY(Pow, pow, 0.5, 2),
    BINARY(Min, fmin, -2, 2),
    BINARY(Max, fmax, -2, 2),
    {.op = OP_Mod,
     .inputs = {{REAL, SHAPE(2, 3, 4), -5, 5}, {REAL, SHAPE(3, 1), 0.6, 1}},
     .attributes = {INTEGER("fmod", 1)},
     .reference = reference_binary,
     .binary = fmod,
     .differentiable = true},
    {.op = OP_Mul, /* both outer dimensions broadcast */
     .inputs = {{REAL, SHAPE(2, 1, 4, 1), -1, 1}, {REAL, SHAPE(3, 1, 5), -1, 1}},
     .reference = reference_binary,
     .binary = multiply,
     .differentiable = true},
    {.op = OP_Pow, /* a known exponent */
     .inputs = {{REAL, SHAPE(2, 3), -2, 2}, {CONSTANT, {0}, 2, 2}},
     .reference = reference_binary,
     .binary = pow,
     .differentiable = true},
    {.op = OP_Pow,
     .inputs = {{REAL, SHAPE(2, 3), -2, 2}, {CONSTANT, SHAPE(1), 3, 3}},
     .reference = reference_binary,
     .binary = pow,
     .differentiable = true},
    {.op = OP_Div,
     .inputs = {{REAL, SHAPE(2, 3), -2, 2}, {CONSTANT, {0}, 8, 8}},
     .reference = reference_binary,
     .binary = divide,
     .differentiable = true},
    BINARY_OF(Add, add, WHOLE, -9, 9),
    BINARY_OF(Div, divide_whole, WHOLE, 1, 9),
    BINARY_OF(Mod, floor_remainder, WHOLE, -9, -1),
    BINARY_OF(And, both, TRUTH, 0, 1),
    BINARY_OF(Or, either, TRUTH, 0, 1),
    BINARY_OF(Equal, equal, WHOLE, 0, 3),
    BINARY_OF(Less, less, WHOLE, 0, 3),
    BINARY_OF(LessOrEqual, less_equal, WHOLE, 0, 3),
    BINARY_OF(Greater, greater, WHOLE, 0, 3),
    BINARY_OF(GreaterOrEqual, greater_equal, WHOLE, 0, 3),
    BINARY_OF(Less, less, REAL, 0, 3),
    {.op = OP_Where,
     .inputs = {{TRUTH, SHAPE(4, 1), 0, 1}, {REAL, SHAPE(3, 1, 5), -2, 2}, {REAL, SHAPE(4, 5), -2, 2}},
     .reference = reference_where,
     .differentiable = true},
    {.op = OP_Gelu,
     .inputs = {{REAL, SHAPE(3, 7), -4, 4}},
     .reference = reference_unary,
     .unary = gelu,
     .differentiable = true},
    {.op = OP_Gelu,
     .inputs = {{REAL, SHAPE(3, 7), -4, 4}},
     .attributes = {INTEGER("tanh", 1)},
     .reference = reference_unary,
     .unary = gelu_tanh,
     .differentiable = true},
    {.op = OP_Reshape,
     .inputs = {{REAL, SHAPE(2, 3, 4), -2, 2}},
     .attributes = {INTEGERS("shape", 4, -1, 2)},
     .reference = reference_same,
     .differentiable = true},
    {.op = OP_Reshape,
     .inputs = {{REAL, SHAPE(2, 3, 4), -2, 2}},
     .attributes = {INTEGERS("shape", 0, 1, 12, 1)},
     .reference = reference_same,
     .differentiable = true},
    {.op = OP_Transpose,
     .inputs = {{REAL, SHAPE(2, 3, 4), -2, 2}},
     .attributes = {INTEGERS("perm", 1, 2, 0)},
     .reference = reference_transpose,
     .differentiable = true},
    {.op = OP_Expand,
     .inputs = {{REAL, SHAPE(3, 1), -2, 2}},
     .attributes = {INTEGERS("shape", 2, 1, 4)},
     .reference = reference_expand,
     .differentiable = true},
    {.op = OP_Slice,
     .inputs = {{REAL, SHAPE(5, 6, 3), -2, 2}},
     .attributes = {INTEGERS("starts", 4, 1, 2), INTEGERS("steps", -2, 2, 1), INTEGERS("shape", 3, 2, 1)},
     .reference = reference_slice,
     .differentiable = true},
    {.op = OP_SliceGradient,
     .inputs = {{REAL, SHAPE(3, 2, 1), -2, 2}},
     .attributes = {INTEGERS("starts", 4, 1, 2), INTEGERS("steps", -2, 2, 1), INTEGERS("shape", 5, 6, 3)},
     .reference = reference_slice_gradient,
     .differentiable = true},
    {.op = OP_Concat,
     .inputs = {{REAL, SHAPE(2, 1, 3), -2, 2}, {REAL, SHAPE(2, 4, 3), -2, 2}, {REAL, SHAPE(2, 2, 3), -2, 2}},
     .attributes = {INTEGER("axis", 1)},
     .reference = reference_concat,
     .differentiable = true},
    {.op = OP_Gather,
     .inputs = {{REAL, SHAPE(6, 5), -2, 2}, {WHOLE, SHAPE(2, 4), -6, 5}},
     .attributes = {INTEGER("axis", 0)},
     .reference = reference_gather,
     .differentiable = true},
    {.op = OP_Gather,
     .inputs = {{REAL, SHAPE(3, 4, 2, 2), -2, 2}, {WHOLE, SHAPE(5), -4, 3}},
     .attributes = {INTEGER("axis", 1)},
     .reference = reference_gather,
     .differentiable = true},
    {.op = OP_Gather,
     .inputs = {{REAL, SHAPE(3, 4), -2, 2}, {WHOLE, {0}, 2, 2}},
     .attributes = {INTEGER("axis", 1)},
     .reference = reference_gather,
     .differentiable = true},
    {.op = OP_GatherGradient,
     .inputs = {{WHOLE, SHAPE(2, 3), -4, 3}, {REAL, SHAPE(3, 2, 3, 2), -2, 2}},
     .attributes = {INTEGER("axis", 1), INTEGERS("shape", 3, 4, 2)},
     .reference = reference_gather_gradient,
     .differentiable = true},
    REDUCE(ReduceSum, 3),
    REDUCE(ReduceSum, 0, 1),
    REDUCE(ReduceSum, 0, 2),
    REDUCE(ReduceSum, 1, -1),
    REDUCE(ReduceMean, 1, 2, 3),
    REDUCE(ReduceMean, 0, 3),
    REDUCE(ReduceMax, 1),
    REDUCE(ReduceMin, 0, 2),
    {.op = OP_ReduceSum,
     .inputs = {{WHOLE, SHAPE(3, 4), -9, 9}},
     .attributes = {INTEGERS("axes", 0)},
     .reference = reference_reduce},
    MATMUL(SHAPE(4, 6), SHAPE(6, 5)),
    MATMUL(SHAPE(2, 3, 6), SHAPE(6, 5)),
    MATMUL(SHAPE(2, 3, 4, 6), SHAPE(2, 3, 6, 5)),
    MATMUL(SHAPE(2, 1, 4, 6), SHAPE(3, 6, 5)),
    MATMUL(SHAPE(4, 6), SHAPE(2, 6, 5)),
    MATMUL(SHAPE(6), SHAPE(6, 5)),
    MATMUL(SHAPE(6), SHAPE(2, 6, 5)),
    MATMUL(SHAPE(2, 4, 6), SHAPE(6)),
    MATMUL(SHAPE(6), SHAPE(6)),
    {.op = OP_MatMul,
     .inputs = {{WHOLE, SHAPE(2, 3), -9, 9}, {WHOLE, SHAPE(3, 4), -9, 9}},
     .reference = reference_matmul},
    {.op = OP_Softmax,
     .inputs = {{REAL, SHAPE(2, 3, 5), -3, 3}},
     .reference = reference_softmax,
     .differentiable = true},
    {.op = OP_LogSoftmax,
     .inputs = {{REAL, SHAPE(2, 3, 5), -3, 3}},
     .reference = reference_softmax,
     .differentiable = true},
    {.op = OP_LayerNormalization,
     .inputs = {{REAL, SHAPE(2, 3, 8), -2, 2}, {REAL, SHAPE(8), 0.5, 1.5}, {REAL, SHAPE(8), -1, 1}},
     .attributes = {FLOAT("epsilon", 1e-3)},
     .reference = reference_layer_norm,
     .differentiable = true},
    {.op = OP_LayerNormalization,
     .inputs = {{REAL, SHAPE(4, 8), -2, 2}, {REAL, SHAPE(8), 0.5, 1.5}},
     .attributes = {FLOAT("epsilon", 1e-3)},
     .reference = reference_layer_norm,
     .differentiable = true},
    {.op = OP_CrossEntropy,
     .inputs = {{REAL, SHAPE(6, 4), -2, 2}, {WHOLE, SHAPE(6), 0, 3}, {SCALARS, SHAPE(SKY_STEP_SCALARS), 0, 1}},
     .attributes = {INTEGER("ignore_index", 2)},
     .reference = reference_cross_entropy,
     .differentiable = true},
    {.op = OP_ScaleLoss,
     .inputs = {{REAL, SHAPE(2, 2), -2, 2}, {SCALARS, SHAPE(SKY_STEP_SCALARS), 0, 1}},
     .reference = reference_scale_loss,
     .differentiable = true},
};

enum { CASE_COUNT = sizeof cases / sizeof cases[0] };

/* --- Graphs of one operator
 * -------------------------------------------------------------------------------------------- */

typedef struct Subject {
    const Case *test;
    DType dtype;
    bool transposed; /* inputs of several dimensions lie in memory in reversed order */
    Graph graph;
    Diagnostics diagnostics;
    int input_count;
    ValueId stored[MAX_INPUTS], outputs[MAX_OUTPUTS];
    Tensor input[MAX_INPUTS]; /* as the operator sees them */
} Subject;

static DType input_type(const Subject *subject, InputKind kind)
{
    switch (kind) {
    case WHOLE: return DTYPE_I64;
    case TRUTH: return DTYPE_BOOL;
    case SCALARS: return DTYPE_F32;
    default: return subject->dtype;
    }
}

/* Random elements, rounded to the type that holds them. */
static Tensor random_tensor(const InputSpec *spec, DType dtype)
{
    int64_t count = shape_elements(&spec->shape);
    Tensor tensor = {spec->shape, memory_allocate((size_t)(count + 1) * sizeof(double))};
    for (int64_t i = 0; i < count; i++) {
        double value = random_between(spec->low, spec->high), rounded = 0;
        if (spec->kind == WHOLE) value = floor(random_between(spec->low, spec->high + 1));
        if (spec->kind == TRUTH) value = random_between(0, 1) < 0.5;
        if (spec->kind == SCALARS) value = 0.25 + (double)i;
        element_store_double(dtype, &rounded, 0, value);
        tensor.data[i] = element_as_double(dtype, &rounded, 0);
    }
    return tensor;
}

/* The elements as they are stored: in reversed order of dimensions where the subject says so. */
static void store_tensor(const Subject *subject, int i, void *data)
{
    const Tensor *tensor = &subject->input[i];
    DType dtype = input_type(subject, subject->test->inputs[i].kind);
    Shape reversed = tensor->shape;
    for (int axis = 0; axis < reversed.rank; axis++) reversed.dim[axis] = tensor->shape.dim[reversed.rank - 1 - axis];
    Tensor stored = {subject->transposed ? reversed : tensor->shape, tensor->data};
    FOR_EACH_ELEMENT(index, &stored)
    {
        int64_t from[MAX_RANK];
        for (int axis = 0; axis < reversed.rank; axis++)
            from[axis] = at[subject->transposed ? reversed.rank - 1 - axis : axis];
        element_store_double(dtype, data, index, *element(tensor, from, reversed.rank));
    }
}

static ValueId add_input(Subject *subject, int i)
{
    const InputSpec *spec = &subject->test->inputs[i];
    DType dtype = input_type(subject, spec->kind);
    subject->input[i] = random_tensor(spec, dtype);
    char name[32];
    snprintf(name, sizeof name, "input%d", i);
    Shape shape = spec->shape;
    bool reversed = subject->transposed && shape.rank > 1;
    for (int axis = 0; axis < shape.rank && reversed; axis++) shape.dim[axis] = spec->shape.dim[shape.rank - 1 - axis];
    size_t bytes = (size_t)shape_elements(&shape) * dtype_size(dtype);
    void *data = arena_allocate(&subject->graph.arena, bytes);
    store_tensor(subject, i, data);
    ValueId value;
    if (spec->kind == CONSTANT)
        value = graph_add_constant(&subject->graph, NULL, dtype, &shape, data);
    else
        value = graph_add_parameter(&subject->graph, name, dtype, &shape, data);
    subject->stored[i] = value;
    if (reversed)
        graph_add_node(&subject->graph, OP_Transpose, (NodeOrigin){.name = "layout"}, &value, 1, NULL, 0, &value, 1,
                       &subject->diagnostics);
    return value;
}

static void build(Subject *subject)
{
    const Case *test = subject->test;
    graph_init(&subject->graph, "test");
    random_state = (uint64_t)test->op;
    ValueId inputs[MAX_INPUTS];
    while (subject->input_count < MAX_INPUTS && test->inputs[subject->input_count].kind != NONE) {
        inputs[subject->input_count] = add_input(subject, subject->input_count);
        subject->input_count++;
    }
    int attribute_count = 0;
    while (attribute_count < 4 && test->attributes[attribute_count].name) attribute_count++;
    NodeId node = graph_add_node(&subject->graph, test->op, (NodeOrigin){.name = "subject"}, inputs,
                                 subject->input_count, test->attributes, attribute_count, subject->outputs,
                                 operators[test->op].outputs, &subject->diagnostics);
    if (!node) diagnostics_print(&subject->diagnostics, stderr);
    assert_true(node);
}

static void destroy(Subject *subject)
{
    for (int i = 0; i < subject->input_count; i++) free(subject->input[i].data);
    graph_free(&subject->graph);
    diagnostics_free(&subject->diagnostics);
}

static const char *describe(const Subject *subject)
{
    static char text[128];
    snprintf(text, sizeof text, "case %d, %s, %s%s", (int)(subject->test - cases), operators[subject->test->op].name,
             dtype_name(subject->dtype), subject->transposed ? ", transposed" : "");
    return text;
}

/* --- Results
 * ----------------------------------------------------------------------------------------------------------- */

static double tolerance_of(const Subject *subject)
{
    if (subject->dtype == DTYPE_F64) return 1e-12;
    return subject->dtype == DTYPE_F32 ? 1e-6 : 4e-3;
}

static void check_forward(const Case *test, DType dtype, bool transposed)
{
    Subject subject = {.test = test, .dtype = dtype, .transposed = transposed};
    build(&subject);
    for (int i = 0; i < operators[test->op].outputs; i++) graph_add_output(&subject.graph, "y", subject.outputs[i]);
    Evaluator evaluator;
    evaluator_init(&evaluator, &subject.graph);
    assert_true(evaluator_run(&evaluator));

    static double expected[MAX_OUTPUTS][MAX_ELEMENTS];
    memset(expected, 0, sizeof expected);
    Tensor output[MAX_OUTPUTS];
    for (int i = 0; i < operators[test->op].outputs; i++) {
        output[i] = (Tensor){graph_value(&subject.graph, subject.outputs[i])->shape, expected[i]};
        assert_true(shape_elements(&output[i].shape) <= MAX_ELEMENTS);
    }
    test->reference(test, subject.input, output);
    for (int i = 0; i < operators[test->op].outputs; i++) {
        DType type = graph_value(&subject.graph, subject.outputs[i])->dtype;
        for (int64_t k = 0; k < shape_elements(&output[i].shape); k++) {
            double got = element_as_double(type, evaluator.buffer[subject.outputs[i]], k), want = expected[i][k];
            if (!(fabs(got - want) <= tolerance_of(&subject) * fmax(1, fabs(want))))
                fail_msg("%s: element %lld of output %d is %.17g, not %.17g", describe(&subject), (long long)k, i, got,
                         want);
        }
    }
    evaluator_free(&evaluator);
    destroy(&subject);
}

static bool seen[OP_COUNT]; /* checked in a forward case, or part of a gradient that was checked */

static void results_match_the_references(void **state)
{
    (void)state;
    for (int i = 0; i < CASE_COUNT; i++) {
        seen[cases[i].op] = true;
        for (int transposed = 0; transposed < 2; transposed++) {
            check_forward(&cases[i], DTYPE_F64, transposed);
            check_forward(&cases[i], DTYPE_F32, transposed);
            check_forward(&cases[i], DTYPE_F16, transposed);
        }
    }
}

/* --- Gradients
 * --------------------------------------------------------------------------------------------------------- */

/* The loss is a sum of all elements of the first output, each with a weight of its own, so that no mistake cancels. */
static ValueId add_loss(Subject *subject)
{
    Graph *graph = &subject->graph;
    Shape shape = graph_value(graph, subject->outputs[0])->shape;
    InputSpec spec = {CONSTANT, shape, 0.5, 1.5};
    Tensor weights = random_tensor(&spec, DTYPE_F64);
    ValueId weight = graph_add_constant(graph, NULL, DTYPE_F64, &shape, weights.data), loss = subject->outputs[0];
    free(weights.data);
    NodeOrigin origin = {.name = "loss"};
    Attribute keep = attribute_integer("keepdims", 0);
    assert_true(
        graph_add_node(graph, OP_Mul, origin, (ValueId[]){loss, weight}, 2, NULL, 0, &loss, 1, &subject->diagnostics));
    assert_true(graph_add_node(graph, OP_ReduceSum, origin, &loss, 1, &keep, 1, &loss, 1, &subject->diagnostics));
    return loss;
}

static double loss_at(Evaluator *evaluator, ValueId input, int64_t k, double value)
{
    double *data = evaluator->buffer[input], old = data[k];
    data[k] = value;
    assert_true(evaluator_run(evaluator));
    data[k] = old;
    return *(double *)evaluator->buffer[evaluator->graph->loss];
}

static void check_gradient(const Case *test, bool transposed)
{
    Subject subject = {.test = test, .dtype = DTYPE_F64, .transposed = transposed};
    build(&subject);
    subject.graph.loss = add_loss(&subject);
    Evaluator forward;
    evaluator_init(&forward, &subject.graph);
    bool ok = differentiate(&subject.graph, &subject.diagnostics);
    if (!ok) diagnostics_print(&subject.diagnostics, stderr);
    assert_true(ok);
    graph_verify(&subject.graph);
    Evaluator evaluator;
    evaluator_init(&evaluator, &subject.graph);
    assert_true(evaluator_run(&evaluator));
    for (NodeId n = 1; n < subject.graph.node_count; n++) seen[graph_node(&subject.graph, n)->op] = true;

    for (int i = 0; i < subject.input_count; i++) {
        if (test->inputs[i].kind != REAL) continue;
        ValueId input = subject.stored[i], gradient = subject.graph.gradients[input];
        if (test->op == OP_Sign) { /* flat wherever it is smooth */
            assert_int_equal(gradient, 0);
            continue;
        }
        assert_true(gradient);
        const double *got = evaluator.buffer[gradient];
        int64_t count = shape_elements(&graph_value(&subject.graph, input)->shape);
        for (int64_t k = 0; k < count; k++) {
            double x = ((double *)forward.buffer[input])[k], h = 1e-5;
            double want = (loss_at(&forward, input, k, x + h) - loss_at(&forward, input, k, x - h)) / (2 * h);
            if (!(fabs(got[k] - want) <= 1e-6 * fmax(1, fabs(want))))
                fail_msg("%s: derivative by element %lld of input %d is %.10g, not %.10g", describe(&subject),
                         (long long)k, i, got[k], want);
        }
    }
    evaluator_free(&forward);
    evaluator_free(&evaluator);
    destroy(&subject);
}

static void gradients_match_finite_differences(void **state)
{
    (void)state;
    for (int i = 0; i < CASE_COUNT; i++)
        for (int transposed = 0; transposed < 2 && cases[i].differentiable; transposed++)
            check_gradient(&cases[i], transposed);
}

/* --- Updates
 * ----------------------------------------------------------------------------------------------------------- */

enum { PARAMETERS = 300, STEPS = 3 };

typedef struct Training {
    double parameter, first, second; /* of one weight; momentum's velocity is `first` */
} Training;

static const double RATE = 0.01, BETA1 = 0.9, BETA2 = 0.99, EPSILON = 1e-6, DECAY = 0.1, SCALE = 0.5;

/* One step as torch.optim describes it. */
static void reference_update(Opcode op, bool decoupled, int step, double gradient, Training *weight)
{
    gradient *= SCALE;
    if (decoupled)
        weight->parameter *= 1 - RATE * DECAY;
    else
        gradient += DECAY * weight->parameter;
    if (op == OP_SgdUpdate) {
        weight->parameter -= RATE * gradient;
    } else if (op == OP_MomentumUpdate) {
        weight->first = BETA1 * weight->first + gradient;
        weight->parameter -= RATE * weight->first;
    } else {
        weight->first = BETA1 * weight->first + (1 - BETA1) * gradient;
        weight->second = BETA2 * weight->second + (1 - BETA2) * gradient * gradient;
        double mean = weight->first / (1 - pow(BETA1, step)), square = weight->second / (1 - pow(BETA2, step));
        weight->parameter -= RATE * mean / (sqrt(square) + EPSILON);
    }
}

static void check_update(Opcode op, bool decoupled)
{
    Graph graph;
    Diagnostics diagnostics = {0};
    graph_init(&graph, "test");
    InputSpec spec = {REAL, SHAPE(3, PARAMETERS / 3), -1, 1};
    Tensor start = random_tensor(&spec, DTYPE_F64), slope = random_tensor(&spec, DTYPE_F64);
    ValueId parameter = graph_add_parameter(&graph, "w", DTYPE_F64, &spec.shape, start.data);
    ValueId gradient = graph_add_input(&graph, "g", DTYPE_F64, &spec.shape), scalars = graph_step_scalars(&graph);
    ValueId inputs[5] = {parameter, gradient, scalars, graph_add_state(&graph, "m", parameter),
                         graph_add_state(&graph, "v", parameter)};
    Attribute attribute = attribute_integer("decoupled", decoupled);
    NodeOrigin origin = {.name = "update", .phase = PHASE_UPDATE};
    assert_true(
        graph_add_node(&graph, op, origin, inputs, operators[op].least_inputs, &attribute, 1, NULL, 0, &diagnostics));
    seen[op] = true;
    Evaluator evaluator;
    evaluator_init(&evaluator, &graph);
    Training weights[PARAMETERS];
    for (int i = 0; i < PARAMETERS; i++) weights[i] = (Training){.parameter = start.data[i]};
    for (int t = 1; t <= STEPS; t++) {
        float *scalar = evaluator.buffer[scalars];
        scalar[SKY_STEP_LEARNING_RATE] = (float)RATE;
        scalar[SKY_STEP_BETA1] = (float)BETA1;
        scalar[SKY_STEP_BETA2] = (float)BETA2;
        scalar[SKY_STEP_EPSILON] = (float)EPSILON;
        scalar[SKY_STEP_WEIGHT_DECAY] = (float)DECAY;
        scalar[SKY_STEP_CORRECTION1] = (float)(1 / (1 - pow(BETA1, t)));
        scalar[SKY_STEP_CORRECTION2] = (float)(1 / (1 - pow(BETA2, t)));
        scalar[SKY_STEP_GRADIENT_SCALE] = (float)SCALE;
        for (int i = 0; i < PARAMETERS; i++) {
            double value = slope.data[i] * t;
            ((double *)evaluator.buffer[gradient])[i] = value;
            reference_update(op, decoupled, t, value, &weights[i]);
        }
        assert_true(evaluator_run(&evaluator));
        for (int i = 0; i < PARAMETERS; i++)
            assert_true(fabs(((double *)evaluator.buffer[parameter])[i] - weights[i].parameter) < 1e-6 * t);
    }
    evaluator_free(&evaluator);
    graph_free(&graph);
    diagnostics_free(&diagnostics);
    free(start.data), free(slope.data);
}

static void updates_match_torch(void **state)
{
    (void)state;
    check_update(OP_SgdUpdate, false);
    check_update(OP_MomentumUpdate, false);
    check_update(OP_AdamUpdate, false);
    check_update(OP_AdamUpdate, true);
}

static void every_operator_was_checked(void **state)
{
    (void)state;
    for (int op = OP_NONE + 1; op < OP_COUNT; op++)
        if (!seen[op]) fail_msg("%s has no case", operators[op].name);
}

/* --- What lowering promises
 * -------------------------------------------------------------------------------------------- */

/* Adds a node of one output to a graph under test. */
static ValueId node(Graph *graph, Opcode op, const ValueId *inputs, int count, const Attribute *attributes,
                    int attribute_count)
{
    Diagnostics diagnostics = {0};
    ValueId output = 0;
    assert_true(graph_add_node(graph, op, (NodeOrigin){.name = "n"}, inputs, count, attributes, attribute_count,
                               &output, 1, &diagnostics));
    return output;
}

static void attention_heads_are_views(void **state)
{
    (void)state;
    Graph graph;
    graph_init(&graph, "test");
    Shape tokens = SHAPE(2, 16, 32);
    ValueId q = graph_add_input(&graph, "q", DTYPE_F32, &tokens), k = graph_add_input(&graph, "k", DTYPE_F32, &tokens);
    Attribute heads = INTEGERS("shape", 2, 16, 4, 8), by_head = INTEGERS("perm", 0, 2, 1, 3);
    Attribute columns = INTEGERS("perm", 0, 2, 3, 1);
    q = node(&graph, OP_Reshape, &q, 1, &heads, 1);
    q = node(&graph, OP_Transpose, &q, 1, &by_head, 1);
    k = node(&graph, OP_Reshape, &k, 1, &heads, 1);
    k = node(&graph, OP_Transpose, &k, 1, &columns, 1);
    ValueId scores = node(&graph, OP_MatMul, (ValueId[]){q, k}, 2, NULL, 0);
    Attribute flat = INTEGERS("shape", 2, 64, 16);
    node(&graph, OP_Reshape, &scores, 1, &flat, 1);
    Evaluator evaluator;
    evaluator_init(&evaluator, &graph);
    assert_int_equal(evaluator.lowering.call_count, 1);
    const Kernel *kernel = evaluator.lowering.calls[0].kernel;
    assert_int_equal(kernel_classify(kernel), KERNEL_CLASS_GEMM);
    assert_int_equal(kernel->axis_count, 5);
    evaluator_free(&evaluator);
    graph_free(&graph);
}

static void linear_layers_merge_their_rows(void **state)
{
    (void)state;
    Graph graph;
    graph_init(&graph, "test");
    Shape tokens = SHAPE(2, 16, 32), matrix = SHAPE(32, 8);
    ValueId x = graph_add_input(&graph, "x", DTYPE_F32, &tokens);
    ValueId w = graph_add_parameter(&graph, "w", DTYPE_F32, &matrix, NULL);
    node(&graph, OP_MatMul, (ValueId[]){x, w}, 2, NULL, 0);
    Evaluator evaluator;
    evaluator_init(&evaluator, &graph);
    const Kernel *kernel = evaluator.lowering.calls[0].kernel;
    assert_int_equal(kernel->axis_count, 3);
    assert_int_equal(kernel->extent[0], 32);
    evaluator_free(&evaluator);
    graph_free(&graph);
}

static void a_view_that_strides_cannot_express_is_copied(void **state)
{
    (void)state;
    Graph graph;
    graph_init(&graph, "test");
    Shape shape = SHAPE(2, 3, 4);
    ValueId x = graph_add_input(&graph, "x", DTYPE_F32, &shape);
    Attribute perm = INTEGERS("perm", 0, 2, 1), flat = INTEGERS("shape", 24);
    ValueId turned = node(&graph, OP_Transpose, &x, 1, &perm, 1);
    ValueId y = node(&graph, OP_Reshape, &turned, 1, &flat, 1);
    graph_add_output(&graph, "y", y);
    graph_add_output(&graph, "turned", turned);
    Evaluator evaluator;
    evaluator_init(&evaluator, &graph);
    assert_int_equal(evaluator.lowering.call_count, 2); /* one for the reshape, one for the output that is a view */
    for (int i = 0; i < 24; i++) ((float *)evaluator.buffer[x])[i] = (float)i;
    assert_true(evaluator_run(&evaluator));
    for (int i = 0; i < 24; i++) {
        float expected = (float)(i / 12 * 12 + i % 3 * 4 + i / 3 % 4);
        assert_true(((float *)evaluator.buffer[y])[i] == expected);
        assert_true(((float *)evaluator.buffer[turned])[i] == expected);
    }
    evaluator_free(&evaluator);
    graph_free(&graph);
}

static void views_stop_at_received_values(void **state)
{
    (void)state;
    Graph graph;
    graph_init(&graph, "test");
    Shape shape = SHAPE(2, 3);
    ValueId x = graph_add_input(&graph, "x", DTYPE_F32, &shape);
    ValueId turned = node(&graph, OP_Transpose, &x, 1, NULL, 0);
    ValueId y = node(&graph, OP_Neg, &turned, 1, NULL, 0);
    NodeId last = graph_value(&graph, y)->producer;
    for (int stop = 0; stop < 2; stop++) {
        Lowering lowering;
        lowering_begin(&lowering, &graph);
        if (stop) lowering_stop_at(&lowering, turned);
        lowering_run(&lowering, &last, 1);
        assert_int_equal(lowering.call_count, 1);
        assert_int_equal(lowering.calls[0].operands[0].value, stop ? turned : x);
        lowering_free(&lowering);
    }
    graph_free(&graph);
}

static void wrong_inputs_are_diagnosed(void **state)
{
    (void)state;
    Graph graph;
    Diagnostics diagnostics = {0};
    graph_init(&graph, "model.onnx");
    Shape left = SHAPE(2, 3), right = SHAPE(4, 5);
    ValueId a = graph_add_input(&graph, "a", DTYPE_F32, &left), b = graph_add_input(&graph, "b", DTYPE_F32, &right);
    ValueId c = graph_add_input(&graph, "c", DTYPE_I64, &left);
    const struct {
        Opcode op;
        int count;
        ValueId inputs[2];
        Attribute attribute;
    } wrong[] = {
        {OP_Add, 2, {a, b}, {0}},
        {OP_Add, 2, {a, c}, {0}},
        {OP_Add, 1, {a, 0}, {0}},
        {OP_MatMul, 2, {a, b}, {0}},
        {OP_Exp, 1, {c, 0}, {0}},
        {OP_Gather, 2, {a, b}, {0}},
        {OP_Gather, 2, {a, c}, INTEGER("axis", 2)},
        {OP_Reshape, 1, {a, 0}, INTEGERS("shape", 4, 2)},
        {OP_Reshape, 1, {a, 0}, INTEGERS("shape", INT64_MAX, INT64_MAX)},
        {OP_Expand, 1, {a, 0}, INTEGERS("shape", 1L << 40, 1L << 40, 2, 3)},
        {OP_Transpose, 1, {a, 0}, INTEGERS("perm", 0, 0)},
        {OP_ReduceSum, 1, {a, 0}, INTEGERS("axes", 2)},
        {OP_Concat, 2, {a, b}, INTEGER("axis", 0)},
        {OP_Cast, 1, {a, 0}, INTEGER("to", 99)},
        {OP_Where, 2, {a, b}, {0}},
    };
    int count = sizeof wrong / sizeof wrong[0];
    for (int i = 0; i < count; i++) {
        ValueId output;
        assert_false(graph_add_node(&graph, wrong[i].op, (NodeOrigin){.name = "n"}, wrong[i].inputs, wrong[i].count,
                                    &wrong[i].attribute, wrong[i].attribute.name != NULL, &output, 1, &diagnostics));
        assert_int_equal(diagnostics.errors, i + 1);
    }
    assert_int_equal(diagnostics.exit_code, EXIT_BAD_INPUT);
    graph_free(&graph);
    diagnostics_free(&diagnostics);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_match_the_references),
        cmocka_unit_test(gradients_match_finite_differences),
        cmocka_unit_test(updates_match_torch),
        cmocka_unit_test(every_operator_was_checked),
        cmocka_unit_test(attention_heads_are_views),
        cmocka_unit_test(linear_layers_merge_their_rows),
        cmocka_unit_test(a_view_that_strides_cannot_express_is_copied),
        cmocka_unit_test(views_stop_at_received_values),
        cmocka_unit_test(wrong_inputs_are_diagnosed),
    };
    return cmocka_run_group_tests_name("ops", tests, NULL, NULL);
}
