/* What the parts of the operator tests share: one case of an operator, and tensors as the references see them. */
#ifndef TESTS_GRAPH_OPS_OPERATOR_CASES_H
#define TESTS_GRAPH_OPS_OPERATOR_CASES_H

#include "graph/ops/add_node.h"

enum { MAX_INPUTS = 5, MAX_OUTPUTS = 4, MAX_ELEMENTS = 4096 };

typedef struct Tensor {
    Shape shape;
    double *data;
} Tensor;

typedef enum InputKind {
    NONE,
    REAL,     /* of the type under test, in [low, high] */
    SPARSE,   /* the same, but every third element is 0 */
    CONSTANT, /* the same, but a constant */
    WHOLE,    /* int64 in low ... high */
    KNOWN,    /* the same, but a constant */
    ORDER,    /* int64: the numbers of the elements, backwards */
    TRUTH,    /* bool */
    SCALARS   /* the scalars of a step */
} InputKind;

typedef struct InputSpec {
    InputKind kind;
    Shape shape;
    double low, high;
} InputSpec;

typedef struct Case Case;
/* Computes the outputs, which start as zeros, from the inputs; the data of an absent input is NULL. */
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
};

/* For initialisers. */
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
#define STRING(text, value)                                                                                            \
    {                                                                                                                  \
        .name = text, .kind = ATTRIBUTE_STRING, .string = value                                                        \
    }
#define FLOAT(text, value)                                                                                             \
    {                                                                                                                  \
        .name = text, .kind = ATTRIBUTE_FLOAT, .number = value                                                         \
    }

extern const Case operator_cases[];
extern const int operator_case_count;

/* The coordinates of element `i` of a tensor of this shape. */
static inline void coordinates(const Shape *shape, int64_t i, int64_t *at)
{
    for (int axis = shape->rank - 1; axis >= 0; axis--) {
        at[axis] = i % shape->dim[axis];
        i /= shape->dim[axis];
    }
}

/* The element of `tensor` that broadcasting puts at `at` of a tensor of rank `rank`. */
static inline double *element(const Tensor *tensor, const int64_t *at, int rank)
{
    int64_t index = 0;
    for (int axis = 0; axis < tensor->shape.rank; axis++) {
        int64_t coordinate = at[axis + rank - tensor->shape.rank];
        index = index * tensor->shape.dim[axis] + (tensor->shape.dim[axis] == 1 ? 0 : coordinate);
    }
    return &tensor->data[index];
}

#define FOR_EACH_ELEMENT(i, tensor)                                                                                    \
    for (int64_t i = 0, at[MAX_RANK], count_ = shape_elements(&(tensor)->shape);                                       \
         i < count_ && (coordinates(&(tensor)->shape, i, at), true); i++)

/* ---- References (operator_references.c) ---- */

Reference reference_unary, reference_binary, reference_where, reference_same, reference_expand, reference_transpose,
    reference_slice, reference_slice_gradient, reference_concat, reference_gather, reference_gather_gradient,
    reference_gather_elements, reference_gather_nd, reference_scatter, reference_arg_max, reference_reduce,
    reference_matmul, reference_softmax, reference_layer_norm, reference_cross_entropy, reference_sliced_cross_entropy,
    reference_scale_loss, reference_dropout, reference_binary_cross_entropy;

/* Of one and of two elements. */
double scalar_negate(double x), scalar_sign(double x), scalar_reciprocal(double x), scalar_sigmoid(double x),
    scalar_relu(double x), scalar_logical_not(double x), scalar_is_nan(double x), scalar_to_integer(double x),
    scalar_gelu(double x), scalar_gelu_tanh(double x), scalar_softsign(double x);
double scalar_add(double a, double b), scalar_subtract(double a, double b), scalar_multiply(double a, double b),
    scalar_divide(double a, double b), scalar_divide_whole(double a, double b),
    scalar_floor_remainder(double a, double b), scalar_both(double a, double b), scalar_either(double a, double b),
    scalar_equal(double a, double b), scalar_less(double a, double b), scalar_less_equal(double a, double b),
    scalar_greater(double a, double b), scalar_greater_equal(double a, double b);

#endif
