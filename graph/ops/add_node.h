/* New nodes, with the types of their outputs inferred. */
#ifndef GRAPH_OPS_ADD_NODE_H
#define GRAPH_OPS_ADD_NODE_H

#include "graph/graph.h"

/* Where a new node comes from. The first four are copied into it; the last two are for diagnostics alone. */
typedef struct NodeOrigin {
    const char *name;
    Phase phase;
    NodeId differentiates;
    int layer;
    const char *made_for; /* what a diagnostic names instead of the node: a node of the model's file; NULL: the node */
    const char *hint;     /* where a rule has none of its own: what helps if shapes do not fit; NULL: none */
} NodeOrigin;

/* Appends a node and infers the dtypes and shapes of its outputs. `outputs` receives `output_count` value ids (it may
 * be NULL for none). Returns 0 after reporting when the operator rejects its inputs. Inputs and attributes are copied.
 * A node whose inputs are constants stays a node until it is folded (graph/passes/fold.h). */
NodeId graph_add_node(Graph *graph, Opcode op, NodeOrigin origin, const ValueId *inputs, int input_count,
                      const Attribute *attributes, int attribute_count, ValueId *outputs, int output_count,
                      Diagnostics *diagnostics);

/* Building nodes of one origin, each with one output, which is returned: 0 after reporting, or where an input is 0. */
typedef struct Builder {
    Graph *graph;
    NodeOrigin origin;
    Diagnostics *diagnostics; /* NULL: a node that its operator refuses is a bug */
    /* In place of graph_add_node, or NULL. */
    ValueId (*add)(const struct Builder *b, Opcode op, const ValueId *inputs, int input_count,
                   const Attribute *attributes, int attribute_count);
    void *context; /* of add */
} Builder;

ValueId build_node(const Builder *b, Opcode op, const ValueId *inputs, int input_count, const Attribute *attributes,
                   int attribute_count);
ValueId build_along(const Builder *b, Opcode op, const ValueId *inputs, int input_count, const char *name,
                    int64_t number); /* with one attribute */
ValueId build_unary(const Builder *b, Opcode op, ValueId x);
ValueId build_binary(const Builder *b, Opcode op, ValueId x, ValueId y);
ValueId build_where(const Builder *b, ValueId condition, ValueId x, ValueId y);
/* These are x itself where they would change nothing. */
ValueId build_cast(const Builder *b, ValueId x, DType dtype);
ValueId build_reshape(const Builder *b, ValueId x, const Shape *shape);
ValueId build_expand(const Builder *b, ValueId x, const Shape *shape);
ValueId build_transpose(const Builder *b, ValueId x, const int64_t *perm);
ValueId build_part(const Builder *b, ValueId x, int axis, int64_t start, int64_t count); /* a slice along one axis */
ValueId build_gather(const Builder *b, ValueId table, ValueId rows);                     /* along the first axis */

/* Appends a Dropout of `x`. Which elements it drops depends on the origin's name, so that it is the same wherever the
 * node stands; a name that a Dropout has already gets random numbers of its own. Elements belong to rows of the batch
 * in the order in which they stand: the batch, the first dimension of the first graph input, is the leading one.
 * Returns the output; 0 after reporting. */
ValueId graph_add_dropout(Graph *graph, ValueId x, double ratio, NodeOrigin origin, Diagnostics *diagnostics);

/* Whether the inputs of all nodes are what their operators take, and their outputs what these make; reports the first
 * that is not: for graphs that others built, as a test that reads a text does. */
bool graph_check_types(Graph *graph, Diagnostics *diagnostics);

#endif
