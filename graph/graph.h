/* The graph: SSA over static shapes, with 32-bit ids into arrays; id 0 is none.
 *
 * Nodes stand in topological order: a node's inputs are produced by nodes with smaller ids. Passes only append nodes,
 * overwrite a node in place with one whose inputs still precede it, or mark nodes dead (op == OP_NONE). Everything is
 * owned by the graph's arena, except the bytes of large parameters, which may lie in a mapped file that the importer
 * keeps open for as long as the graph lives. */
#ifndef GRAPH_GRAPH_H
#define GRAPH_GRAPH_H

#include "base/arena.h"
#include "base/diagnostics.h"
#include "base/dtype.h"
#include "graph/opcodes.h"
#include "runtime/program/packing.h"
#include "runtime/program/step_scalars.h"

typedef uint32_t ValueId;
typedef uint32_t NodeId;

typedef enum ValueRole {
    ROLE_ACTIVATION, /* produced by a node */
    ROLE_INPUT,      /* graph input: differs from micro-batch to micro-batch */
    ROLE_PARAMETER,  /* trained; `data` holds the initial value, NULL where the file has none */
    ROLE_CONSTANT,   /* `data` is always there */
    ROLE_STATE,      /* optimiser state of `parameter`, zero at the start */
    ROLE_SCALARS     /* float32 [SKY_STEP_SCALARS]: what the runtime sets before every step, see
                        runtime/program/step_scalars.h */
} ValueRole;

/* How a value grows with the lines of a micro-batch (runtime/program/packing.h). */
typedef enum LineGrowth {
    LINES_FIXED, /* not at all */
    LINES_FIRST, /* in its first dimension that is not 1: what belongs to a line is contiguous, line after line */
    LINES_MIXED  /* otherwise */
} LineGrowth;

typedef struct Value {
    const char *name; /* the ONNX name, or a made one; unique among inputs, parameters, states and outputs */
    DType dtype;
    ValueRole role;
    Shape shape;
    NodeId producer;  /* 0 unless produced by a node */
    const void *data; /* constants and parameters: row-major elements */
    const void
        *stored_from;   /* parameters whose dtype is a form that is made when values are needed: in place of data, */
    DType stored_type;  /* elements of that type, */
    bool stored_turned; /* a matrix with its dimensions exchanged (analysis/parameter_values.h) */
    ValueId parameter;  /* ROLE_STATE, and the accumulated gradient of a parameter: the parameter; a further use of a
                          parameter (sharing.h): the parameter; else 0 */
    const char *use;    /* parameters: what its only use is called, where that says more than `name`; else NULL */
    bool frozen;        /* parameters: keeps its value, so it has no gradient; constants: was learned all the same, as
                          quantised weights were */
    SkyFill fill;       /* inputs: what the runtime puts there */
    int line_axis;      /* 1 + the dimension that counts lines, times what each line has along it; 0: none does;
                          LINES_SPREAD: one grows with them otherwise. Set by pack_rows.h, handed on by the axes rules
                          of nodes; 0 where a micro-batch has one line */
    bool by_token; /* where lines stand first: what each has is one piece per token, in their order. Set likewise */
} Value;

enum { LINES_SPREAD = -1 };

typedef enum Phase { PHASE_FORWARD, PHASE_BACKWARD, PHASE_UPDATE } Phase;

typedef enum AttributeKind { ATTRIBUTE_INTEGER, ATTRIBUTE_FLOAT, ATTRIBUTE_INTEGERS, ATTRIBUTE_STRING } AttributeKind;

typedef struct Attribute {
    const char *name;
    AttributeKind kind;
    int count; /* ATTRIBUTE_INTEGERS */
    union {
        int64_t integer;
        double number;
        const int64_t *integers;
        const char *string;
    };
} Attribute;

/* Constructors for attribute lists: (Attribute[]){attribute_integer("axis", 1), ...}. */
static inline Attribute attribute_integer(const char *name, int64_t value)
{
    return (Attribute){.name = name, .kind = ATTRIBUTE_INTEGER, .integer = value};
}
static inline Attribute attribute_float(const char *name, double value)
{
    return (Attribute){.name = name, .kind = ATTRIBUTE_FLOAT, .number = value};
}
static inline Attribute attribute_integers(const char *name, const int64_t *values, int count)
{
    return (Attribute){.name = name, .kind = ATTRIBUTE_INTEGERS, .count = count, .integers = values};
}
static inline Attribute attribute_string(const char *name, const char *value)
{
    return (Attribute){.name = name, .kind = ATTRIBUTE_STRING, .string = value};
}

enum { LAYER_NONE = -1 };

typedef struct Node {
    Opcode op;
    Phase phase;
    int input_count, output_count, attribute_count;
    ValueId *inputs;  /* 0: an optional input that is absent */
    ValueId *outputs; /* 0: an optional output that nobody reads */
    Attribute *attributes;
    const char *name;      /* of the ONNX node this came from: every diagnostic uses it; never NULL */
    NodeId differentiates; /* backward nodes: the forward node; else 0 */
    int layer;             /* set by layer assignment; LAYER_NONE: recomputed wherever it is needed */
} Node;

typedef struct NamedValue {
    const char *name;
    ValueId value;
} NamedValue;

/* A way in which losses read an input that they compare with; see SkyLabels of runtime/program/program.h. */
typedef struct Labels {
    ValueId input;
    SkyLabelKind kind;
    int64_t ignore_index; /* labels with this value do not count; 0 and without meaning for SKY_LABELS_NUMBERS */
    ValueId weights;      /* a float32 constant [classes]: what a label of each class counts; 0: 1 */
    bool shifted;         /* labels of position 0, of dimension 1, do not count */
} Labels;

typedef struct Graph {
    Arena arena;
    const char *file; /* for diagnostics */
    Value *values;    /* [0] is unused */
    size_t value_count, value_capacity;
    Node *nodes; /* [0] is unused */
    size_t node_count, node_capacity;
    ValueId *inputs; /* in the model's order */
    size_t input_count, input_capacity;
    NamedValue *outputs; /* several names may share one value */
    size_t output_count, output_capacity;

    /* What differentiation adds; all 0 before. */
    ValueId loss;                   /* float32 scalar: the micro-batch's share of the loss */
    Labels labels[SKY_MOST_LABELS]; /* the attribute `labels` of losses is a number of this list */
    int label_count;
    /* The parts of the loss are sums over labels, scaled by 1 / (what the labels of the whole batch weigh):
     * micro-batches add up to the loss. Else some part is an average over the micro-batch, scaled by 1 /
     * micro-batches. */
    bool loss_is_summed;
    bool whole_batches; /* the loss cannot tell a row that lacks from others: every batch must be whole */
    ValueId scalars;    /* ROLE_SCALARS */
    ValueId *gradients; /* per value id up to gradient_count; read with graph_gradient */
    size_t gradient_count;

    SkyPacking packing; /* how rows share lines; slots 0: they do not */

    const char **layer_names; /* set by layer assignment */
    int layer_count;
} Graph;

void graph_init(Graph *graph, const char *file);
void graph_free(Graph *graph);
/* An imported graph again, to run passes on. It points into `from`, which must live longer; arrays that passes change
 * are its own. */
void graph_copy(Graph *to, const Graph *from);
/* Takes the node list away, to be freed, and leaves that of an empty graph: for building it again from the old nodes.
 */
Node *graph_take_nodes(Graph *graph, size_t *count);
/* Appends the node, which makes its outputs from now on; nothing is copied. */
void graph_push_node(Graph *graph, Node node);
/* Marks, in node order, what is computed from a marked value: [value]. */
void graph_mark_dependent(const Graph *graph, bool *marked);

static inline Value *graph_value(const Graph *graph, ValueId id) { return &graph->values[id]; }
LineGrowth value_growth(const Value *value);
static inline Node *graph_node(const Graph *graph, NodeId id) { return &graph->nodes[id]; }
/* The node that makes the value; where none does, node 0, which has no operator. */
static inline Node *graph_producer(const Graph *graph, ValueId value)
{
    return graph_node(graph, graph_value(graph, value)->producer);
}
/* The parameter of which `value` is a further use, or `value` itself. */
static inline ValueId shared_parameter(const Graph *graph, ValueId value)
{
    const Value *parameter = graph_value(graph, value);
    return parameter->role == ROLE_PARAMETER && parameter->parameter ? parameter->parameter : value;
}
/* The accumulated gradient of a parameter; 0: the loss does not depend on it, or nothing was differentiated yet. */
static inline ValueId graph_gradient(const Graph *graph, ValueId parameter)
{
    return parameter < graph->gradient_count ? graph->gradients[parameter] : 0;
}

/* New values. Names are copied. */
ValueId graph_add_input(Graph *graph, const char *name, DType dtype, const Shape *shape);
/* Optimiser state of the shape and dtype of `parameter`. */
ValueId graph_add_state(Graph *graph, const char *name, ValueId parameter);
/* The scalars that the runtime sets before every step, SKY_STEP_SCALARS of them; made on first use. */
ValueId graph_step_scalars(Graph *graph);
/* The number of this way to read labels, which is added to the list if it is new; -1 if the list is full or the input
 * is there with another kind or ignore_index. */
int graph_label_number(Graph *graph, const Labels *labels);
ValueId graph_add_parameter(Graph *graph, const char *name, DType dtype, const Shape *shape, const void *data);
/* `data` is copied; NULL gives zeros that the caller fills through the returned value's data. */
ValueId graph_add_constant(Graph *graph, const char *name, DType dtype, const Shape *shape, const void *data);
ValueId graph_constant_scalar(Graph *graph, DType dtype, double value);          /* rank 0 */
ValueId graph_constant_integers(Graph *graph, const int64_t *values, int count); /* int64 [count] */
void graph_add_output(Graph *graph, const char *name, ValueId value);

/* Appends a copy of `node`, of whose outputs it takes the number, with new values of these types as outputs. Nothing is
 * checked: graph/ops/add_node.h does that, and finds the types. */
NodeId graph_append(Graph *graph, const Node *node, const DType *dtypes, const Shape *shapes);

/* Puts the nodes into the given order, in which `order` names every one of 1 ... node_count - 1 once, makers before
 * readers. Their ids change, those of values do not. */
void graph_reorder(Graph *graph, const NodeId *order);

/* Attribute access; absent ones give the default. */
const Attribute *node_attribute(const Node *node, const char *name); /* NULL if absent */
int64_t node_integer(const Node *node, const char *name, int64_t absent);
double node_float(const Node *node, const char *name, double absent);

/* "node 'NAME' (Op)" as the object of a diagnostic's place. */
Place node_place(const Graph *graph, const Node *node, char text[static 512]);

/* Marks nodes dead that no output, loss, gradient or update needs. */
void graph_remove_dead(Graph *graph);

/* Structural invariants of this header; calls bug() on the first violation. Run after every pass. */
void graph_verify(const Graph *graph);
/* A readable text, one line a node, the same for the same graph; tests/graph/parse.h defines it and reads it back. */
struct Buffer;
void graph_print(const Graph *graph, struct Buffer *buffer);

#endif
