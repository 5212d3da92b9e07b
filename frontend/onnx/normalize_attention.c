/* ONNX Attention (opsets 23 and 24) and com.microsoft's GroupQueryAttention, spelled out: softmax(softcap(scale * Q K')
 * + mask) V, where several query heads may share a head of keys and values, past keys and values may precede the
 * present ones, and fully masked rows give zeros. */
#include <math.h>

#include "frontend/onnx/normalize.h"
#include "frontend/onnx/importer.h"

enum { INPUT_Q, INPUT_K, INPUT_V, INPUT_MASK, INPUT_PAST_KEY, INPUT_PAST_VALUE, INPUT_LENGTHS };
enum { OUTPUT_Y, OUTPUT_KEY, OUTPUT_VALUE, OUTPUT_SCORES };
enum { SCORES_RAW, SCORES_CAPPED, SCORES_MASKED, SCORES_SOFTMAX };

typedef struct AttentionNode {
    OnnxNode *node;
    ValueId query, key, value; /* [batch, heads, length, width] */
    ValueId mask;              /* 0: none */
    ValueId lengths;           /* of the keys of each row, as int64 [batch, 1, 1, 1]; 0: all */
    bool ends_together;        /* the last query is aligned with the last key that the lengths allow */
    int64_t batch, query_heads, key_heads, queries, keys, past;
    bool by_token; /* inputs and result are [batch, length, heads * width] */
    int64_t causal, mode, precision;
    double scale, cap;
    bool masked; /* some score may be minus infinity */
} AttentionNode;

static bool read_heads(AttentionNode *attention)
{
    OnnxNode *node = attention->node;
    ValueId *values[3] = {&attention->query, &attention->key, &attention->value};
    int64_t query_heads = integer_attribute(node, "q_num_heads", 0),
            key_heads = integer_attribute(node, "kv_num_heads", 0);
    int rank = shape_of(node, node->inputs[INPUT_Q]).rank;
    attention->by_token = rank == 3;
    for (int i = 0; i < 3; i++) {
        *values[i] = node->inputs[i];
        if (shape_of(node, *values[i]).rank != rank || (rank != 3 && rank != 4))
            return node_error(node, NULL, "takes queries, keys and values of 3 or of 4 dimensions");
        if (rank == 3) *values[i] = emit_split_heads(node, *values[i], i == 0 ? query_heads : key_heads);
        if (!*values[i]) return false;
    }
    return true;
}

/* Puts the past before `value` along the sequence. */
static ValueId with_past(OnnxNode *node, int input, ValueId value)
{
    return has_input(node, input) ? emit_concat(node, node->inputs[input], value, 2) : value;
}

static bool measure_heads(AttentionNode *attention)
{
    OnnxNode *node = attention->node;
    Shape query = shape_of(node, attention->query), key = shape_of(node, attention->key);
    attention->batch = query.dim[0];
    attention->query_heads = query.dim[1];
    attention->queries = query.dim[2];
    attention->key_heads = key.dim[1];
    attention->keys = key.dim[2];
    if (attention->key_heads >= 1 && attention->query_heads % attention->key_heads == 0) return true;
    return node_error(node, NULL, "has %lld query heads for %lld heads of keys", (long long)attention->query_heads,
                      (long long)attention->key_heads);
}

static ValueId row_lengths(const AttentionNode *attention, ValueId lengths)
{
    Shape rows = {4, {attention->batch, 1, 1, 1}};
    return emit_reshape(attention->node, emit_cast(attention->node, lengths, DTYPE_I64), &rows);
}

static bool read_attention(AttentionNode *attention)
{
    OnnxNode *node = attention->node;
    if (!read_heads(attention)) return false;
    if (has_input(node, INPUT_PAST_KEY) != has_input(node, INPUT_PAST_VALUE))
        return node_error(node, NULL, "has a past of keys without one of values, or the other way round");
    if (has_input(node, INPUT_PAST_KEY)) attention->past = shape_of(node, node->inputs[INPUT_PAST_KEY]).dim[2];
    attention->key = with_past(node, INPUT_PAST_KEY, attention->key);
    attention->value = with_past(node, INPUT_PAST_VALUE, attention->value);
    if (!attention->key || !attention->value) return false;
    if (!measure_heads(attention)) return false;
    if (has_input(node, INPUT_MASK)) attention->mask = node->inputs[INPUT_MASK];
    if (has_input(node, INPUT_LENGTHS) && !(attention->lengths = row_lengths(attention, node->inputs[INPUT_LENGTHS])))
        return false;
    attention->ends_together = true;
    attention->causal = integer_attribute(node, "is_causal", 0);
    attention->mode = integer_attribute(node, "qk_matmul_output_mode", SCORES_RAW);
    attention->precision = integer_attribute(node, "softmax_precision", 0);
    attention->scale = float_attribute(node, "scale", 1 / sqrt((double)shape_of(node, attention->query).dim[3]));
    attention->cap = float_attribute(node, "softcap", 0);
    return !node_failed(node);
}

/* A product per query head, grouped by the head of keys that it uses: [batch, key heads, sharing, rows, columns]. */
static ValueId multiply_heads(const AttentionNode *attention, ValueId rows, ValueId shared)
{
    OnnxNode *node = attention->node;
    if (!rows || !shared) return 0;
    Shape left = shape_of(node, rows), right = shape_of(node, shared);
    int64_t sharing = attention->query_heads / attention->key_heads;
    if (sharing == 1) return emit_binary(node, OP_MatMul, rows, shared);
    Shape grouped = {5, {left.dim[0], attention->key_heads, sharing, left.dim[2], left.dim[3]}};
    Shape once = {5, {right.dim[0], right.dim[1], 1, right.dim[2], right.dim[3]}};
    Shape flat = {4, {left.dim[0], left.dim[1], left.dim[2], right.dim[3]}};
    ValueId product =
        emit_binary(node, OP_MatMul, emit_reshape(node, rows, &grouped), emit_reshape(node, shared, &once));
    return emit_reshape(node, product, &flat);
}

/* The scores where `allowed` holds, minus infinity elsewhere. */
static ValueId restrict_scores(AttentionNode *attention, ValueId scores, ValueId allowed)
{
    if (!scores || !allowed) return 0;
    attention->masked = true;
    ValueId forbidden = emit_scalar(attention->node, dtype_of(attention->node, scores), -INFINITY);
    return emit_where(attention->node, allowed, scores, forbidden);
}

/* The given mask; it may be shorter than the keys, which forbids the rest. */
static ValueId apply_mask(AttentionNode *attention, ValueId scores)
{
    OnnxNode *node = attention->node;
    if (!attention->mask) return scores;
    ValueId mask = attention->mask;
    DType type = dtype_of(node, mask);
    Shape shape = shape_of(node, mask);
    int last = shape.rank - 1;
    if (last >= 0 && shape.dim[last] < attention->keys && shape.dim[last] != 1) {
        shape.dim[last] = attention->keys - shape.dim[last];
        if (!check_size(node, &shape, true)) return 0;
        ValueId rest = emit_expand(node, emit_scalar(node, type, type == DTYPE_BOOL ? 0 : -INFINITY), &shape);
        mask = emit_concat(node, mask, rest, last);
    }
    if (type == DTYPE_BOOL) return restrict_scores(attention, scores, mask);
    attention->masked = true;
    return emit_binary(node, OP_Add, scores, mask);
}

/* Masks keys after the length of their row and, for causal attention, keys after the query. */
static ValueId apply_positions(AttentionNode *attention, ValueId scores)
{
    OnnxNode *node = attention->node;
    if (!attention->causal && !attention->lengths) return scores;
    ValueId keys = emit_counting(node, 0, &(Shape){1, {attention->keys}});
    ValueId queries = emit_counting(node, 0, &(Shape){2, {attention->queries, 1}});
    ValueId first = emit_scalar(node, DTYPE_I64, (double)attention->past);
    if (attention->lengths) {
        ValueId count = emit_scalar(node, DTYPE_I64, (double)attention->queries);
        if (attention->ends_together) first = emit_binary(node, OP_Sub, attention->lengths, count);
        scores = restrict_scores(attention, scores, emit_binary(node, OP_Less, keys, attention->lengths));
    }
    if (!attention->causal) return scores;
    ValueId own = emit_binary(node, OP_Add, queries, first);
    return restrict_scores(attention, scores, emit_binary(node, OP_LessOrEqual, keys, own));
}

/* Rows without any key become zeros. Their softmax does not matter, but must be finite. */
static ValueId softmax(const AttentionNode *attention, ValueId scores)
{
    OnnxNode *node = attention->node;
    if (!scores) return 0;
    DType type = dtype_of(node, scores);
    ValueId empty = 0, zero = emit_scalar(node, type, 0);
    if (attention->masked) {
        int64_t last = 3;
        ValueId most = emit_reduce(node, OP_ReduceMax, scores, &last, 1, true);
        empty = emit_binary(node, OP_Equal, most, emit_scalar(node, type, -INFINITY));
        scores = emit_where(node, empty, zero, scores);
    }
    DType precision = attention->precision > 0 ? imported_dtype(node->importer, (int32_t)attention->precision) : type;
    if (!dtype_is_float(precision))
        return node_error(node, NULL, "has a softmax precision that is not a float type"), 0;
    ValueId weights = emit_unary(node, OP_Softmax, emit_cast(node, scores, precision));
    weights = emit_cast(node, weights, type);
    return attention->masked ? emit_where(node, empty, zero, weights) : weights;
}

/* softcap * tanh(scores / softcap) */
static ValueId cap_scores(const AttentionNode *attention, ValueId scores)
{
    OnnxNode *node = attention->node;
    if (attention->cap <= 0 || !scores) return scores;
    ValueId cap = emit_scalar(node, dtype_of(node, scores), attention->cap);
    return emit_binary(node, OP_Mul, emit_unary(node, OP_Tanh, emit_binary(node, OP_Div, scores, cap)), cap);
}

/* Fills the scores at every stage and returns the result, [batch, heads, length, width]. */
static ValueId attend(AttentionNode *attention, ValueId stages[static 4])
{
    OnnxNode *node = attention->node;
    ValueId root = emit_scalar(node, dtype_of(node, attention->query), sqrt(attention->scale));
    ValueId key = emit_transpose(node, attention->key, (int64_t[]){0, 1, 3, 2});
    stages[SCORES_RAW] = multiply_heads(attention, emit_binary(node, OP_Mul, attention->query, root),
                                        emit_binary(node, OP_Mul, key, root));
    stages[SCORES_CAPPED] = cap_scores(attention, stages[SCORES_RAW]);
    stages[SCORES_MASKED] = apply_positions(attention, apply_mask(attention, stages[SCORES_CAPPED]));
    stages[SCORES_SOFTMAX] = softmax(attention, stages[SCORES_MASKED]);
    return multiply_heads(attention, stages[SCORES_SOFTMAX], attention->value);
}

bool normalize_attention(OnnxNode *node)
{
    AttentionNode attention = {.node = node};
    ValueId stages[4];
    if (!read_attention(&attention)) return false;
    ValueId result = attend(&attention, stages);
    if (attention.by_token) result = emit_join_heads(node, result);
    if (attention.mode < 0 || attention.mode > SCORES_SOFTMAX)
        return node_error(node, NULL, "has an unknown qk_matmul_output_mode");
    return set_output(node, OUTPUT_SCORES, stages[attention.mode]) && set_output(node, OUTPUT_KEY, attention.key) &&
           set_output(node, OUTPUT_VALUE, attention.value) && set_output(node, OUTPUT_Y, result);
}

/* ---- GroupQueryAttention ---- */

enum {
    GROUPED_Q,
    GROUPED_K,
    GROUPED_V,
    GROUPED_PAST_KEY,
    GROUPED_PAST_VALUE,
    GROUPED_LAST_KEYS, /* of each row: its length less one */
    GROUPED_LENGTH,    /* the longest one, which shapes say as well */
    GROUPED_COSINES,
    GROUPED_SINES,
    GROUPED_POSITIONS,
    GROUPED_BIAS,
    GROUPED_OTHERS
};

/* Queries, keys and values are separate inputs, or packed in the first input. */
static bool read_groups(AttentionNode *attention)
{
    OnnxNode *node = attention->node;
    int64_t heads = integer_attribute(node, "num_heads", 0), shared = integer_attribute(node, "kv_num_heads", 0);
    if (heads < 1 || shared < 1 || heads > INT32_MAX || shared > INT32_MAX)
        return node_error(node, NULL, "does not say how many heads it has");
    if (has_input(node, GROUPED_K) != has_input(node, GROUPED_V))
        return node_error(node, NULL, "has keys without values, or the other way round");
    if (has_input(node, GROUPED_K)) {
        attention->query = emit_split_heads(node, node->inputs[GROUPED_Q], heads);
        attention->key = emit_split_heads(node, node->inputs[GROUPED_K], shared);
        attention->value = emit_split_heads(node, node->inputs[GROUPED_V], shared);
    } else {
        ValueId all = emit_split_heads(node, node->inputs[GROUPED_Q], heads + 2 * shared);
        attention->query = emit_part(node, all, 1, 0, heads);
        attention->key = emit_part(node, all, 1, heads, shared);
        attention->value = emit_part(node, all, 1, heads + shared, shared);
    }
    return attention->query && attention->key && attention->value && measure_heads(attention);
}

static bool turn_groups(AttentionNode *attention)
{
    OnnxNode *node = attention->node;
    int64_t turns = integer_attribute(node, "do_rotary", 0),
            interleaved = integer_attribute(node, "rotary_interleaved", 0);
    if (!turns) return true;
    if (!has_input(node, GROUPED_COSINES) || !has_input(node, GROUPED_SINES))
        return node_error(node, NULL, "turns queries and keys, but has no cosines and sines");
    const ValueId *tables = &node->inputs[GROUPED_COSINES];
    ValueId positions = has_input(node, GROUPED_POSITIONS) ? node->inputs[GROUPED_POSITIONS]
                                                           : emit_counting(node, 0, &(Shape){1, {attention->queries}});
    attention->query = emit_rotation(node, attention->query, tables, positions, 0, 0, interleaved);
    attention->key = emit_rotation(node, attention->key, tables, positions, 0, 0, interleaved);
    return attention->query && attention->key;
}

/* Refuses features for generation and quantisation. */
static bool check_training_form(OnnxNode *node, int64_t keys)
{
    int64_t window = integer_attribute(node, "local_window_size", -1);
    if (window >= 0 && window < keys) return node_unsupported(node, NULL, "its local window is not supported");
    if (integer_attribute(node, "smooth_softmax", 0) > 0 || integer_attribute(node, "qk_output", 0))
        return node_unsupported(node, NULL, "a smooth softmax, or scores as output, is not supported");
    for (int i = GROUPED_OTHERS; i < node->input_count; i++)
        if (node->inputs[i]) return node_unsupported(node, NULL, "input %d is not supported", i);
    return check_no_past(node, GROUPED_PAST_KEY);
}

bool normalize_grouped_attention(OnnxNode *node)
{
    AttentionNode attention = {.node = node, .causal = true};
    ValueId stages[4];
    if (!read_groups(&attention) || !check_training_form(node, attention.keys) || !turn_groups(&attention))
        return false;
    attention.scale = float_attribute(node, "scale", 0);
    attention.cap = float_attribute(node, "softcap", 0);
    if (attention.scale == 0) attention.scale = 1 / sqrt((double)shape_of(node, attention.query).dim[3]);
    if (has_input(node, GROUPED_BIAS)) attention.mask = node->inputs[GROUPED_BIAS];
    if (has_input(node, GROUPED_LAST_KEYS)) {
        ValueId last = row_lengths(&attention, node->inputs[GROUPED_LAST_KEYS]);
        attention.lengths = emit_binary(node, OP_Add, last, emit_scalar(node, DTYPE_I64, 1));
        if (!attention.lengths) return false;
    }
    ValueId result = emit_join_heads(node, attend(&attention, stages));
    return set_output(node, 1, attention.key) && set_output(node, 2, attention.value) && set_output(node, 0, result);
}
