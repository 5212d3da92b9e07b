/* Lowering: nodes become kernels over views of buffers.
 *
 * A view reads a value at strides of the buffer that really holds the elements: Reshape, Transpose, Expand, Slice and
 * Identity cost nothing wherever their strides can be expressed, nor does a Cast to the type in which kernels compute
 * what the buffer holds. A lowering rule asks for views of its inputs, builds
 * kernels over them, and names the value each operand reads or writes. */
#ifndef GRAPH_OPS_LOWER_H
#define GRAPH_OPS_LOWER_H

#include "graph/graph.h"
#include "graph/kernel/kernel.h"

typedef struct View {
    ValueId base;   /* the value whose buffer this is, and whose type its elements have in memory */
    int64_t offset; /* elements */
    Shape shape;
    int64_t stride[MAX_RANK]; /* elements per step of each dimension; 0 where broadcast */
} View;

/* Where one operand of a call lies: `offset` elements into the buffer of `value`. */
typedef struct CallOperand {
    ValueId value;
    int64_t offset;
} CallOperand;

typedef struct LoweredCall {
    Kernel *kernel;
    CallOperand operands[KERNEL_MAX_OPERANDS];
    NodeId node;
    bool dead; /* fused into another call */
} LoweredCall;

typedef struct Lowering {
    Graph *graph;
    Arena arena;
    LoweredCall *calls;
    size_t call_count, call_capacity;
    View **views; /* pages of VIEW_PAGE value ids, NULL where none was asked for; base 0: not yet known */
    /* For the call being built. */
    Kernel *kernel;
    CallOperand operands[KERNEL_MAX_OPERANDS];
    NodeId node;
} Lowering;

void lowering_begin(Lowering *lowering, Graph *graph);
/* Declares that `value` has a buffer of its own that is filled elsewhere (received from another stage, kept from the
 * forward pass): views stop there instead of looking through its producer. */
void lowering_stop_at(Lowering *lowering, ValueId value);
/* Appends calls for the nodes, in order. Views look through view nodes inside and outside the list; a view that cannot
 * be expressed as strides is computed by a copying kernel. May be called again with further nodes. */
void lowering_run(Lowering *lowering, const NodeId *nodes, size_t node_count);
/* Makes sure that the value's elements stand densely in a buffer of its own, copying them there if it is a view. */
void lowering_materialize(Lowering *lowering, ValueId value);
void lowering_free(Lowering *lowering);

/* ---- For lowering rules ---- */

/* The view through which a value is read. */
View lower_view(Lowering *lowering, ValueId value);
/* The dense row-major view in which a node's output is written. */
View lower_output(Lowering *lowering, ValueId value);
/* Starts a call whose kernel has these axes, the last being the inner one. */
Kernel *lower_begin(Lowering *lowering, const char *label, int axis_count, const int64_t *extent);
/* The same for the axes of a tensor of this shape. */
Kernel *lower_begin_over(Lowering *lowering, const char *label, const Shape *shape);
/* The shape's dimensions as axes; a scalar gets one axis of extent 1. Returns the axis count. */
int lower_axes(const Shape *shape, int64_t *extent);
/* An operand over `view`, with explicit strides per axis of the kernel. */
int lower_operand(Lowering *lowering, const View *view, const int64_t *stride);
/* An operand whose dimensions align, right-adjusted, with the axes of the kernel, broadcasting as numpy does. */
int lower_operand_broadcast(Lowering *lowering, const View *view);
/* That of the view through which `value` is read. */
int lower_operand_of(Lowering *lowering, ValueId value);
/* The value of a broadcast operand. Constants of one element become part of the kernel instead of an operand. */
Register lower_load(Lowering *lowering, const View *view);
/* Whether all elements of the view are one constant, and which. */
bool lower_constant(const Lowering *lowering, const View *view, double *number);
/* An operand for register-indexed accesses: it starts at element 0 of the view's buffer, whose size goes to *elements;
 * the view's offset is the rule's to add. */
int lower_operand_indexed(Lowering *lowering, const View *view, const int64_t *stride, int64_t *elements);
/* Kernels over the elements of the node's output: begun; what an input has there; ended with what the output gets. */
Kernel *lower_begin_map(Lowering *lowering, const Node *node);
Register lower_load_input(Lowering *lowering, const Node *node, int i);
void lower_end_map(Lowering *lowering, const Node *node, Register value);
/* A whole call: `to` = `from`, element by element; the shapes are equal. */
void lower_copy(Lowering *lowering, const char *label, const View *from, const View *to);
/* A whole call: every element of `to` = `number`. */
void lower_fill(Lowering *lowering, const View *to, double number);
/* Of how many elements a part is, where a tensor of so many is summed up in equal parts. */
int64_t lower_part(int64_t elements);
/* An index into an axis, made safe: negative ones count from the end, and it ends up in 0 ... extent - 1. */
Register lower_index(Kernel *kernel, Register index, int64_t extent);
Register lower_scaled(Kernel *kernel, Register index, int64_t stride, int64_t offset); /* index * stride + offset */
/* Where a tuple of indices, the last dimension of `indices`, points to: the offset, the view's own included, of the
 * element at those positions of dimensions first ... of `view`. `stride` is that of `indices` per axis of the
 * kernel. */
Register lower_tuple(Lowering *lowering, const View *view, int first, const View *indices, const int64_t *stride);
/* The rule of operators whose output is a view of their input: no call, or a copy if strides cannot express it. */
void lower_movement(Lowering *lowering, const Node *node);
void lower_end(Lowering *lowering);

/* ---- Views ---- */

/* From the view of the node's first input to that of its output; false if the operator does not only move elements, or
 * strides cannot express it. */
bool movement_view(const Graph *graph, const Node *node, View *view);

/* The permutation of a transposition, reversing the dimensions where it says none. False if it is none. */
bool movement_permutation(const Node *node, int rank, int *perm);
/* The part of a tensor that a slice names. */
typedef struct SliceBounds {
    Shape starts, steps, shape;
} SliceBounds;
bool slice_bounds(const Node *node, SliceBounds *bounds);
void view_slice(View *view, const SliceBounds *bounds, const Shape *part);

void view_set_dense(View *view); /* the strides of a dense row-major tensor */
/* The stride of dimensions first ... first + count - 1 taken as one; false if they do not stand regularly. */
bool view_merge(const View *view, int first, int count, int64_t *stride);
/* A view of `value` whose dimensions merge; the value is materialised where they do not. */
View lower_view_merged(Lowering *lowering, ValueId value, int first, int count);

#endif
