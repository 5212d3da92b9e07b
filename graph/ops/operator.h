/* What every operator provides: a shape rule, a gradient rule and a lowering, found through one table. */
#ifndef GRAPH_OPS_OPERATOR_H
#define GRAPH_OPS_OPERATOR_H

#include "graph/graph.h"

/* Sets dtype and shape of the node's outputs from its inputs and attributes. Reports and returns false if they do not
 * fit; use operator_error. */
typedef struct InferContext {
    Graph *graph;
    const Node *node;
    DType dtype[4]; /* to be filled: one per output */
    Shape shape[4];
    const char *made_for, *hint; /* see NodeOrigin of graph/ops/add_node.h */
    Diagnostics *diagnostics;
} InferContext;
typedef bool InferRule(InferContext *context);

/* Adds gradient nodes for the inputs that need one. See graph/ops/autodiff.h. Returns false, having added nothing, if
 * the node is not differentiable. */
typedef struct Differentiation {
    Graph *graph;
    struct Builder *b; /* add_node.h: of backward nodes of the node being differentiated; what it refuses is a bug */
    Diagnostics *diagnostics;
    ValueId *gradient; /* per forward value: the sum of the contributions so far */
    bool *wanted;      /* per forward value: depends on a parameter */
    int *pending;      /* per forward value: uses whose contribution is still to come */
    size_t forward_values;
} Differentiation;
typedef bool GradientRule(Differentiation *d, const Node *node); /* a copy: its graph grows */

/* Appends the kernels that compute the node, or makes its output a view of its input. See graph/ops/lower.h. */
typedef struct Lowering Lowering;
typedef void LowerRule(Lowering *lowering, const Node *node);

/* If every index of `axis` of the node's output number `output` depends on the same index of its inputs only: writes
 * their axes, or -1 for inputs that do not move along it, to axes[0 ... input_count - 1], which holds -1 before. Of
 * random numbers it says the same. */
typedef bool AxesRule(const Graph *graph, const Node *node, int output, int axis, int *axes);

/* The rules of an operator; its name, traits and the numbers of its inputs and outputs are in `opcodes`. */
typedef struct Operator {
    InferRule *infer;
    GradientRule *gradient;
    LowerRule *lower;
    AxesRule *axes;
} Operator;

extern const Operator operators[OP_COUNT];

#define OPERATOR(name, shape, gradient, lowering, axes, least, most, outputs, traits)                                  \
    InferRule infer_##shape;                                                                                           \
    GradientRule differentiate_##gradient;                                                                             \
    LowerRule lower_##lowering;                                                                                        \
    AxesRule axes_##axes;
OPERATORS
#undef OPERATOR

/* ---- For passes ---- */

/* The axes rule of the node, of its first output. */
bool axes_of_inputs(const Graph *graph, const Node *node, int axis, int *axes);

/* Indices start ... start + count - 1 of one axis. */
typedef struct AxisPart {
    int axis;
    int64_t start, count;
} AxisPart;

/* Whether the node reads one part of its first input along one axis, and no more. */
bool operator_selects(const Graph *graph, const Node *node, AxisPart *part);
/* Has the node, whose first input became that part, take all of it. */
void operator_select_all(Graph *graph, Node *node, const AxisPart *part);
/* Changes one number of an attribute that is a list; the node gets attributes of its own. */
void node_change_attribute(Graph *graph, Node *node, const char *name, int at, int64_t number);

/* ---- For axes rules ---- */

/* The axis of `input` that broadcasting brings to `axis` of `result`; -1 if it does not move there. */
int axis_broadcast(const Shape *input, const Shape *result, int axis);

/* ---- For shape rules ---- */

static inline const Value *infer_input(const InferContext *context, int i)
{
    return graph_value(context->graph, context->node->inputs[i]);
}
/* The first output is as the first input. */
bool infer_same(InferContext *context);
bool infer_float_same(InferContext *context); /* which is of a floating-point type */
/* Whether the first `count` inputs, where present, have the same floating-point type; reports if not. */
bool infer_float_inputs(const InferContext *context, int count);
enum { MOST_ROWS_LEFT_OUT = 16 }; /* rows of a Gather that get no gradient: an instruction or three each */

/* An attribute of integers as a shape (or as another list of at most MAX_RANK numbers); false if there is none. */
bool node_shape(const Node *node, const char *name, Shape *shape);
/* Reports against the node, or what it is made for; returns false. */
bool operator_error(const InferContext *context, const char *hint, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Numpy broadcasting of two shapes; false if they do not fit. */
bool shape_broadcast(const Shape *a, const Shape *b, Shape *result);
/* A negative axis counts from the end; false if it is outside -rank ... rank-1. */
bool normalize_axis(int64_t *axis, int rank);

/* ---- For gradient rules (graph/ops/autodiff.c) ---- */

/* Whether the gradient of this value is wanted: it depends on a parameter. */
bool gradient_wanted(const Differentiation *d, ValueId value);
/* The gradient that reached output `i` of the node; 0 if none did. */
ValueId gradient_of(const Differentiation *d, ValueId value);
/* The contribution summed over the axes along which `shape` was broadcast to it, in `shape`. */
ValueId gradient_unbroadcast(Differentiation *d, ValueId contribution, const Shape *shape);
/* Adds a contribution to the gradient of `value` (unbroadcasting it to the value's shape). Ignored if not wanted. */
void gradient_add(Differentiation *d, ValueId value, ValueId contribution);

#endif
