/* ONNX Attention (opsets 23 and 24), spelled out: softmax(softcap(scale * Q K') + mask) V, where several query heads
 * may share a head of keys and values, former keys and values may be put before the present ones, and rows that the
 * masks leave nothing of give zeros. */
#include <math.h>

#include "frontend/normalize.h"

enum { INPUT_Q, INPUT_K, INPUT_V, INPUT_MASK, INPUT_PAST_KEY, INPUT_PAST_VALUE, INPUT_LENGTHS };
enum { OUTPUT_Y, OUTPUT_KEY, OUTPUT_VALUE, OUTPUT_SCORES };
enum { SCORES_RAW, SCORES_CAPPED, SCORES_MASKED, SCORES_SOFTMAX };

typedef struct AttentionNode {
    OnnxNode *node;
    ValueId query, key, value; /* [batch, heads, length, width] */
    int64_t batch, query_heads, key_heads, queries, keys, past;
    bool by_token; /* inputs and result are [batch, length, heads * width] */
    int64_t causal, mode, precision;
    double scale, cap;
    bool masked; /* some score may be minus infinity */
} AttentionNode;

/* [batch, length, heads * width] as [batch, heads, length, width]. */
static ValueId split_heads(OnnxNode *node, ValueId value, int64_t heads)
{
    Shape shape = shape_of(node, value);
    if (heads < 1 || shape.dim[2] % heads)
        return node_error(node, NULL, "cannot split %lld columns into %lld heads", (long long)shape.dim[2],
                          (long long)heads),
               0;
    Shape split = {4, {shape.dim[0], shape.dim[1], heads, shape.dim[2] / heads}};
    return emit_transpose(node, emit_reshape(node, value, &split), (int64_t[]){0, 2, 1, 3});
}

static bool read_heads(AttentionNode *attention)
{
    OnnxNode *node = attention->node;
    ValueId *values[3] = {&attention->query, &attention->key, &attention->value};
    int64_t query_heads, key_heads;
    if (!read_integer(node, "q_num_heads", 0, &query_heads) || !read_integer(node, "kv_num_heads", 0, &key_heads))
        return false;
    int rank = shape_of(node, node->inputs[INPUT_Q]).rank;
    attention->by_token = rank == 3;
    for (int i = 0; i < 3; i++) {
        *values[i] = node->inputs[i];
        if (shape_of(node, *values[i]).rank != rank || (rank != 3 && rank != 4))
            return node_error(node, NULL, "takes queries, keys and values of 3 or of 4 dimensions");
        if (rank == 3) *values[i] = split_heads(node, *values[i], i == 0 ? query_heads : key_heads);
        if (!*values[i]) return false;
    }
    return true;
}

/* Puts the past before `value` along the sequence. */
static ValueId with_past(OnnxNode *node, int input, ValueId value)
{
    if (!has_input(node, input) || !value) return value;
    Attribute axis = attribute_integer("axis", 2);
    return emit_with(node, OP_Concat, (ValueId[]){node->inputs[input], value}, 2, &axis, 1);
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
    Shape query = shape_of(node, attention->query), key = shape_of(node, attention->key);
    attention->batch = query.dim[0];
    attention->query_heads = query.dim[1];
    attention->queries = query.dim[2];
    attention->key_heads = key.dim[1];
    attention->keys = key.dim[2];
    if (attention->key_heads < 1 || attention->query_heads % attention->key_heads)
        return node_error(node, NULL, "has %lld query heads for %lld heads of keys", (long long)attention->query_heads,
                          (long long)attention->key_heads);
    return read_integer(node, "is_causal", 0, &attention->causal) &&
           read_integer(node, "qk_matmul_output_mode", SCORES_RAW, &attention->mode) &&
           read_integer(node, "softmax_precision", 0, &attention->precision) &&
           read_float(node, "scale", 1 / sqrt((double)query.dim[3]), &attention->scale) &&
           read_float(node, "softcap", 0, &attention->cap);
}

/* A product per query head, the heads that share keys side by side: [batch, key heads, sharing, rows, columns]. */
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
    if (!has_input(node, INPUT_MASK)) return scores;
    ValueId mask = node->inputs[INPUT_MASK];
    DType type = dtype_of(node, mask);
    Shape shape = shape_of(node, mask);
    int last = shape.rank - 1;
    if (last >= 0 && shape.dim[last] < attention->keys && shape.dim[last] != 1) {
        Attribute axis = attribute_integer("axis", last);
        shape.dim[last] = attention->keys - shape.dim[last];
        if (!check_size(node, &shape, true)) return 0;
        ValueId rest = emit_expand(node, emit_scalar(node, type, type == DTYPE_BOOL ? 0 : -INFINITY), &shape);
        mask = emit_with(node, OP_Concat, (ValueId[]){mask, rest}, 2, &axis, 1);
    }
    if (type == DTYPE_BOOL) return restrict_scores(attention, scores, mask);
    attention->masked = true;
    return emit_binary(node, OP_Add, scores, mask);
}

/* Keys behind the length of their row, and for causal attention keys behind the query, are not seen. The last query
 * stands beside the last key. */
static ValueId apply_positions(AttentionNode *attention, ValueId scores)
{
    OnnxNode *node = attention->node;
    bool lengths_given = has_input(node, INPUT_LENGTHS);
    if (!attention->causal && !lengths_given) return scores;
    ValueId keys = emit_counting(node, 0, &(Shape){1, {attention->keys}});
    ValueId queries = emit_counting(node, 0, &(Shape){2, {attention->queries, 1}});
    ValueId lengths = 0, first = emit_scalar(node, DTYPE_I64, (double)attention->past);
    if (lengths_given) {
        lengths = emit_reshape(node, emit_cast(node, node->inputs[INPUT_LENGTHS], DTYPE_I64),
                               &(Shape){4, {attention->batch, 1, 1, 1}});
        first = emit_binary(node, OP_Sub, lengths, emit_scalar(node, DTYPE_I64, (double)attention->queries));
        scores = restrict_scores(attention, scores, emit_binary(node, OP_Less, keys, lengths));
    }
    if (!attention->causal) return scores;
    ValueId own = emit_binary(node, OP_Add, queries, first);
    return restrict_scores(attention, scores, emit_binary(node, OP_LessOrEqual, keys, own));
}

/* Rows without any key become zeros; what goes into the softmax there does not matter, but must be finite. */
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
    DType precision = attention->precision > 0 ? onnx_dtype((int32_t)attention->precision) : type;
    if (!dtype_is_float(precision)) return node_error(node, NULL, "has a softmax precision that is no float type"), 0;
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

bool normalize_attention(OnnxNode *node)
{
    AttentionNode attention = {.node = node};
    if (!read_attention(&attention)) return false;
    DType type = dtype_of(node, attention.query);
    ValueId root = emit_scalar(node, type, sqrt(attention.scale));
    ValueId key = emit_transpose(node, attention.key, (int64_t[]){0, 1, 3, 2});
    ValueId stages[4];
    stages[SCORES_RAW] = multiply_heads(&attention, emit_binary(node, OP_Mul, attention.query, root),
                                        emit_binary(node, OP_Mul, key, root));
    stages[SCORES_CAPPED] = cap_scores(&attention, stages[SCORES_RAW]);
    stages[SCORES_MASKED] = apply_positions(&attention, apply_mask(&attention, stages[SCORES_CAPPED]));
    stages[SCORES_SOFTMAX] = softmax(&attention, stages[SCORES_MASKED]);
    ValueId result = multiply_heads(&attention, stages[SCORES_SOFTMAX], attention.value);
    if (!result) return false;
    Shape shape = shape_of(node, result);
    if (attention.by_token)
        result = emit_reshape(node, emit_transpose(node, result, (int64_t[]){0, 2, 1, 3}),
                              &(Shape){3, {shape.dim[0], shape.dim[2], shape.dim[1] * shape.dim[3]}});
    if (attention.mode < 0 || attention.mode > SCORES_SOFTMAX)
        return node_error(node, NULL, "gives out scores of an unknown kind");
    return set_output(node, OUTPUT_SCORES, stages[attention.mode]) && set_output(node, OUTPUT_KEY, attention.key) &&
           set_output(node, OUTPUT_VALUE, attention.value) && set_output(node, OUTPUT_Y, result);
}
