/* Normalisation: an ONNX node of any opset becomes canonical nodes of the graph. Internal to the importer.
 *
 * Rules are expressions of emitters. A value of 0 means that an earlier emitter failed and reported; emitters pass it
 * on. */
#ifndef FRONTEND_ONNX_NORMALIZE_H
#define FRONTEND_ONNX_NORMALIZE_H

#include "frontend/onnx/importer.h"
#include "graph/ops/add_node.h"

typedef struct OnnxNode {
    Importer *importer;
    Graph *graph;
    const SourceNode *source;
    const char *place; /* "node 'NAME' (OP, opset N)": what diagnostics name instead of what it becomes */
    const struct Normalization *rule;
    int64_t opset;
    const ValueId *inputs; /* 0: an optional input that is absent */
    int input_count;
    ValueId *outputs; /* to be filled; every output that somebody reads */
    int output_count;
    int errors;               /* of the import before this node */
    Builder b;                /* of the nodes that it becomes */
    uint64_t attributes_used; /* a bit per attribute that the rule asked for */
} OnnxNode;

typedef bool NormalizeRule(OnnxNode *node);

typedef enum GradientOutputs { PASSES_GRADIENTS, STOPS_GRADIENTS } GradientOutputs;

typedef struct Normalization {
    const char *domain, *op;
    NormalizeRule *apply;
    Opcode opcode;                 /* for rules that several operators share */
    int least_inputs, most_inputs; /* -1: any number */
    GradientOutputs gradients;
} Normalization;

/* NULL if the operator is not supported. */
const Normalization *normalization_find(const char *domain, const char *op);
/* Sets errors and b. */
void begin_node(OnnxNode *node);
/* Imports the node; false after reporting. */
bool normalize_node(OnnxNode *node);

/* ---- Errors: return false. A node reports its first one; after it emitters do nothing, and the rule fails ---- */

static inline Place onnx_place(const OnnxNode *node)
{
    return (Place){.file = node->graph->file, .object = node->place};
}
static inline bool node_failed(const OnnxNode *node) { return node->importer->diagnostics->errors > node->errors; }

bool node_error(const OnnxNode *node, const char *hint, const char *format, ...) __attribute__((format(printf, 3, 4)));
bool node_unsupported(const OnnxNode *node, const char *hint, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- Attributes: the given default if absent, or after reporting one of another type ---- */

bool attribute_present(const OnnxNode *node, const char *name);
int64_t integer_attribute(OnnxNode *node, const char *name, int64_t absent);
double float_attribute(OnnxNode *node, const char *name, double absent);
const char *string_attribute(OnnxNode *node, const char *name, const char *absent);
/* Return how many there are, -1 where the attribute is absent or wrong. */
int integers_attribute(OnnxNode *node, const char *name, const int64_t **values);
int floats_attribute(OnnxNode *node, const char *name, const float **values);
const Onnx__TensorProto *tensor_attribute(OnnxNode *node, const char *name);
void ignore_attribute(OnnxNode *node, const char *name); /* one that changes nothing here */

/* ---- Inputs ---- */

static inline ValueId optional_input(const OnnxNode *node, int i)
{
    return i < node->input_count ? node->inputs[i] : 0;
}
static inline bool has_input(const OnnxNode *node, int i) { return optional_input(node, i) != 0; }
/* Copies: values move when nodes are added. */
static inline Shape shape_of(const OnnxNode *node, ValueId value) { return graph_value(node->graph, value)->shape; }
static inline DType dtype_of(const OnnxNode *node, ValueId value) { return graph_value(node->graph, value)->dtype; }
/* A copy of an input whose elements are known now: a constant, or a graph input whose tensor was given. Reports others
 * as unsupported. */
bool constant_input(const OnnxNode *node, int input, Value *value);
bool known_input(const OnnxNode *node, int input, Value *value); /* the same, without an error */
/* How many integers a constant input of rank 0 or 1 has, -1 where it is absent or, which is reported, no such list or
 * depends on data. */
int constant_integers(OnnxNode *node, int input, const int64_t **values);
/* The same from an attribute (before opset `since`) or an input (from then on). */
int integers_since(OnnxNode *node, int64_t since, const char *attribute, int input, const int64_t **values);
double constant_scalar(OnnxNode *node, int input, double absent);
/* False after reporting a node that computes with integers of 8 bits, rather than moves or dequantises them. */
bool check_narrow_inputs(const OnnxNode *node);
/* False after reporting former keys or values in inputs `input` and `input` + 1: a cache that is not empty. */
bool check_no_past(OnnxNode *node, int input);
/* False after reporting a constant index outside an axis of `extent` elements. */
/* Makes an axis of `rank` dimensions non-negative, or reports. */
bool check_axis(const OnnxNode *node, int64_t *axis, int rank);
/* Marks the axes; negative and repeated ones are checked. */
bool mark_axes(const OnnxNode *node, const int64_t *axes, int count, int rank, bool marked[MAX_RANK]);

/* ---- Emitters: the value, or 0 after reporting. What depends on constants alone is folded ---- */

#define emit_with(node, ...) build_node(&(node)->b, __VA_ARGS__)
#define emit_along(node, ...) build_along(&(node)->b, __VA_ARGS__)
#define emit_unary(node, ...) build_unary(&(node)->b, __VA_ARGS__)
#define emit_binary(node, ...) build_binary(&(node)->b, __VA_ARGS__)
#define emit_where(node, ...) build_where(&(node)->b, __VA_ARGS__)
#define emit_cast(node, ...) build_cast(&(node)->b, __VA_ARGS__)
#define emit_reshape(node, ...) build_reshape(&(node)->b, __VA_ARGS__)
#define emit_expand(node, ...) build_expand(&(node)->b, __VA_ARGS__)
#define emit_transpose(node, ...) build_transpose(&(node)->b, __VA_ARGS__)
#define emit_part(node, ...) build_part(&(node)->b, __VA_ARGS__)
/* For operators with several outputs; false after reporting. */
bool emit_outputs(OnnxNode *node, Opcode op, const ValueId *inputs, int input_count, const Attribute *attributes,
                  int attribute_count, ValueId *outputs, int output_count);
ValueId emit_concat(OnnxNode *node, ValueId a, ValueId b, int64_t axis);
ValueId emit_lookup(OnnxNode *node, ValueId table, ValueId indices, int64_t axis);
ValueId emit_swap_axes(OnnxNode *node, ValueId a, int first, int second);
ValueId emit_slice(OnnxNode *node, ValueId a, const int64_t *starts, const int64_t *steps, const Shape *shape);
ValueId emit_reduce(OnnxNode *node, Opcode op, ValueId a, const int64_t *axes, int count, bool keepdims);
ValueId emit_scalar(OnnxNode *node, DType dtype, double value);

ValueId emit_scaled(OnnxNode *node, ValueId value, double factor); /* itself where the factor is 1 */
/* A matrix product as numpy has it: vectors are a row on the left, a column on the right. */
ValueId emit_matmul(OnnxNode *node, ValueId a, ValueId b);

/* [batch, length, heads * width] as [batch, heads, length, width], and back. */
ValueId emit_split_heads(OnnxNode *node, ValueId value, int64_t heads);
ValueId emit_join_heads(OnnxNode *node, ValueId value);
/* Pairs of elements of `x`, [batch, heads, length, width] or as an input of RotaryEmbedding has it, turned by angles;
 * the tables' rows are those of `positions`, or of each token where these are 0. `heads` and `width`, how many elements
 * of a head are turned, are 0 where they follow from the shapes. */
ValueId emit_rotation(OnnxNode *node, ValueId x, const ValueId tables[2], ValueId positions, int64_t heads,
                      int64_t width, int64_t interleaved);

/* For a rule's end: sets the output; false if the value is 0. */
bool set_output(OnnxNode *node, int output, ValueId value);

/* Tensors larger than these are refused rather than made: constants are held in memory, the rest may become buffers. */
#define MAX_CONSTANT_ELEMENTS ((int64_t)1 << 28)
#define MAX_ELEMENTS ((int64_t)1 << 36)
/* Reports a shape that is too large for a tensor; `constant`: for one held in memory. */
bool check_size(const OnnxNode *node, const Shape *shape, bool constant);
/* A constant of zeros to be filled through *data; 0 after reporting one that is too large, alone or with those made
 * before. */
ValueId emit_constant(OnnxNode *node, DType dtype, const Shape *shape, void **data);
/* The same of floats that quantised weights become: if each becomes them once, they do not count. */
ValueId emit_dequantized(OnnxNode *node, const Shape *shape, void **data);
/* int64 constants of that shape: `first` and what follows. */
ValueId emit_counting(OnnxNode *node, int64_t first, const Shape *shape);

/* ---- Rules ---- */

NormalizeRule normalize_direct; /* the canonical operator of the table's row, inputs as they are */
NormalizeRule normalize_alias;  /* the first input itself */
NormalizeRule normalize_integer_division, normalize_power, normalize_modulo, normalize_variadic, normalize_mean,
    normalize_clip, normalize_leaky_relu, normalize_softplus, normalize_gelu, normalize_cast, normalize_cast_like,
    normalize_is_infinite, normalize_dropout, normalize_swish, normalize_quick_gelu, normalize_hard_swish,
    normalize_hard_sigmoid, normalize_fused_gemm, normalize_ceil, normalize_floor,
    normalize_round; /* normalize_elementwise.c */
NormalizeRule normalize_constant, normalize_constant_of_shape, normalize_range, normalize_shape,
    normalize_size; /* normalize_constant.c */
NormalizeRule normalize_reshape, normalize_flatten, normalize_squeeze, normalize_unsqueeze, normalize_transpose,
    normalize_expand, normalize_tile, normalize_slice, normalize_split, normalize_concat, normalize_split_to_sequence,
    normalize_sequence_at;                                                            /* normalize_movement.c */
NormalizeRule normalize_pad;                                                          /* normalize_pad.c */
NormalizeRule normalize_gather, normalize_trilu, normalize_cumsum, normalize_one_hot; /* normalize_index.c */
NormalizeRule normalize_gather_elements, normalize_gather_nd, normalize_scatter_elements, normalize_scatter_nd,
    normalize_arg_max, normalize_non_zero; /* normalize_scatter.c */
NormalizeRule normalize_packed_attention, normalize_bias_gelu, normalize_fast_gelu, normalize_fused_matmul,
    normalize_skip_layer_norm, normalize_embed_layer_norm, normalize_multi_head_attention; /* normalize_microsoft.c */
NormalizeRule normalize_attention, normalize_grouped_attention;                            /* normalize_attention.c */
NormalizeRule normalize_rotary, normalize_rotary_microsoft;                                /* normalize_rotary.c */
NormalizeRule normalize_dequantize;                                                        /* normalize_quantized.c */
NormalizeRule normalize_conv;                                                              /* normalize_conv.c */
NormalizeRule normalize_if;            /* the branch that the condition chooses */
NormalizeRule normalize_top_k;         /* normalize_scatter.c */
NormalizeRule normalize_skip_rms_norm; /* normalize_reduce.c */
NormalizeRule normalize_einsum;        /* normalize_einsum.c */
NormalizeRule normalize_reduce, normalize_reduce_l1, normalize_reduce_l2, normalize_reduce_sum_square,
    normalize_softmax, normalize_layer_norm, normalize_rms_norm; /* normalize_reduce.c */
NormalizeRule normalize_matmul, normalize_gemm;                  /* normalize_linear.c */
NormalizeRule normalize_cross_entropy, normalize_likelihood;     /* normalize_loss.c */

#endif
