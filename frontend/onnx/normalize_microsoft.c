/* Operators of com.microsoft that ONNX Runtime's optimiser makes of BERT graphs, spelled out again. */
#include <math.h>

#include "frontend/onnx/normalize.h"

bool normalize_bias_gelu(OnnxNode *node)
{
    ValueId x = emit_binary(node, OP_Add, node->inputs[0], node->inputs[1]);
    return set_output(node, 0, emit_along(node, OP_Gelu, &x, 1, "tanh", 0));
}

bool normalize_fast_gelu(OnnxNode *node)
{
    ValueId x = node->inputs[0];
    if (has_input(node, 1)) x = emit_binary(node, OP_Add, x, node->inputs[1]);
    return set_output(node, 0, emit_along(node, OP_Gelu, &x, 1, "tanh", 1));
}

/* An operand of FusedMatMul: `batches` puts its first dimension before its last, and then `exchange` exchanges the last
 * two. Vectors stay as they are. */
static ValueId arrange_operand(OnnxNode *node, ValueId value, bool batches, bool exchange)
{
    int rank = shape_of(node, value).rank;
    if (rank < 2) return value;
    int64_t perm[MAX_RANK];
    for (int i = 0; i < rank; i++) perm[i] = !batches || i == rank - 1 ? i : i == rank - 2 ? 0 : i + 1;
    value = emit_transpose(node, value, perm);
    return exchange ? emit_swap_axes(node, value, rank - 2, rank - 1) : value;
}

/* alpha * A * B */
bool normalize_fused_matmul(OnnxNode *node)
{
    static const char *const transposes[] = {"transA", "transB"}, *const batches[] = {"transBatchA", "transBatchB"};
    ValueId factors[2];
    for (int i = 0; i < 2; i++)
        factors[i] = arrange_operand(node, node->inputs[i], integer_attribute(node, batches[i], 0),
                                     integer_attribute(node, transposes[i], 0));
    double alpha = float_attribute(node, "alpha", 1);
    return set_output(node, 0, emit_scaled(node, emit_matmul(node, factors[0], factors[1]), alpha));
}

/* Normalises over the last axis; bias may be 0 and then is none. */
static bool emit_layer_norm(OnnxNode *node, ValueId x, ValueId gain, ValueId bias, ValueId results[3])
{
    if (!x) return false;
    ValueId inputs[3] = {x, gain, bias};
    Attribute attribute = attribute_float("epsilon", float_attribute(node, "epsilon", 1e-12f));
    return emit_outputs(node, OP_LayerNormalization, inputs, bias ? 3 : 2, &attribute, 1, results, 3);
}

/* Inputs: input, skip, gain, bias of the normalisation, bias of the sum. */
bool normalize_skip_layer_norm(OnnxNode *node)
{
    ValueId sum = emit_binary(node, OP_Add, node->inputs[0], node->inputs[1]), results[3];
    if (has_input(node, 4)) sum = emit_binary(node, OP_Add, sum, node->inputs[4]);
    if (!emit_layer_norm(node, sum, node->inputs[2], optional_input(node, 3), results)) return false;
    for (int i = 0; i < 3; i++)
        if (!set_output(node, i, results[i])) return false;
    return set_output(node, 3, sum);
}

enum {
    EMBED_IDS,
    EMBED_SEGMENTS,
    EMBED_WORDS,
    EMBED_POSITIONS,
    EMBED_SEGMENT_TABLE,
    EMBED_GAIN,
    EMBED_BIAS,
    EMBED_MASK,
    EMBED_POSITION_IDS
};

bool normalize_embed_layer_norm(OnnxNode *node)
{
    static const int required[] = {EMBED_WORDS, EMBED_POSITIONS, EMBED_GAIN, EMBED_BIAS};
    for (int i = 0; i < 4; i++)
        if (!has_input(node, required[i])) return node_error(node, NULL, "input %d is missing", required[i]);
    ignore_attribute(node, "mask_index_type"); /* of the second output, which is int32 in either case */
    Shape ids = shape_of(node, node->inputs[EMBED_IDS]), table = shape_of(node, node->inputs[EMBED_POSITIONS]);
    if (ids.rank != 2 || table.rank != 2) return node_error(node, NULL, "takes ids [batch, length] and tables of rows");
    ValueId positions = node->inputs[EMBED_POSITIONS];
    if (!has_input(node, EMBED_POSITION_IDS) && ids.dim[1] > table.dim[0])
        return node_error(node, NULL, "has %lld tokens, but embeds %lld positions only", (long long)ids.dim[1],
                          (long long)table.dim[0]);
    positions = has_input(node, EMBED_POSITION_IDS) ? emit_lookup(node, positions, node->inputs[EMBED_POSITION_IDS], 0)
                                                    : emit_part(node, positions, 0, 0, ids.dim[1]);
    ValueId sum = emit_lookup(node, node->inputs[EMBED_WORDS], node->inputs[EMBED_IDS], 0), results[3];
    if (has_input(node, EMBED_SEGMENTS) && has_input(node, EMBED_SEGMENT_TABLE))
        sum = emit_binary(node, OP_Add, sum,
                          emit_lookup(node, node->inputs[EMBED_SEGMENT_TABLE], node->inputs[EMBED_SEGMENTS], 0));
    sum = emit_binary(node, OP_Add, sum, positions);
    if (!emit_layer_norm(node, sum, node->inputs[EMBED_GAIN], node->inputs[EMBED_BIAS], results)) return false;
    if (!set_output(node, 0, results[0]) || !set_output(node, 2, sum)) return false;
    /* How many tokens each row has. */
    ValueId lengths = emit_expand(node, emit_scalar(node, DTYPE_I32, 0), &(Shape){1, {ids.dim[0]}});
    if (has_input(node, EMBED_MASK))
        lengths = emit_cast(node, emit_reduce(node, OP_ReduceSum, node->inputs[EMBED_MASK], (int64_t[]){1}, 1, false),
                            DTYPE_I32);
    return set_output(node, 1, lengths);
}

/* ---- Attention ---- */

enum { MASK_INPUT = 3, PAST_INPUT, BIAS_INPUT, MOST_ATTENTION_INPUTS };

typedef struct PackedAttention {
    OnnxNode *node;
    int64_t batch, queries, keys, heads, causal;
    double filter, scale;
    ValueId parts[3];   /* query, key, value: [batch, heads, length, width] */
    ValueId mask, bias; /* 0: none */
} PackedAttention;

static void read_scores(PackedAttention *attention)
{
    OnnxNode *node = attention->node;
    attention->heads = integer_attribute(node, "num_heads", 0);
    attention->causal = integer_attribute(node, "unidirectional", 0);
    attention->filter = float_attribute(node, "mask_filter_value", -10000);
    attention->scale = float_attribute(node, "scale", 0);
}

static bool read_packed_attention(PackedAttention *attention)
{
    OnnxNode *node = attention->node;
    ignore_attribute(node, "past_present_share_buffer"); /* where the result lies, not what it is */
    Shape input = shape_of(node, node->inputs[0]), weights = shape_of(node, node->inputs[1]);
    if (input.rank != 3 || weights.rank != 2)
        return node_error(node, NULL, "takes [batch, length, width] and a matrix");
    attention->batch = input.dim[0];
    attention->queries = attention->keys = input.dim[1];
    const int64_t *sizes;
    int size_count = integers_attribute(node, "qkv_hidden_sizes", &sizes);
    read_scores(attention);
    int64_t widths[3] = {weights.dim[1] / 3, weights.dim[1] / 3, weights.dim[1] / 3}, first = 0;
    for (int i = 0; i < 3 && size_count == 3; i++) widths[i] = sizes[i];
    bool fits = attention->heads > 0 && (size_count == 3 || size_count < 0);
    for (int i = 0; i < 3; i++) fits = fits && widths[i] > 0 && widths[i] % attention->heads == 0;
    if (!fits || widths[0] + widths[1] + widths[2] != weights.dim[1] || widths[0] != widths[1])
        return node_error(node, NULL, "cannot split %lld columns among its heads", (long long)weights.dim[1]);
    if (attention->scale == 0) attention->scale = 1 / sqrt((double)(widths[0] / attention->heads));

    ValueId packed = emit_binary(node, OP_MatMul, node->inputs[0], node->inputs[1]);
    if (has_input(node, 2)) packed = emit_binary(node, OP_Add, packed, node->inputs[2]);
    for (int i = 0; i < 3; first += widths[i++]) {
        attention->parts[i] = emit_split_heads(node, emit_part(node, packed, 2, first, widths[i]), attention->heads);
        if (!attention->parts[i]) return false;
    }
    attention->mask = optional_input(node, MASK_INPUT);
    attention->bias = optional_input(node, BIAS_INPUT);
    return true;
}

/* Puts former keys and values, [2, batch, heads, past, width], before the present ones. All together are the second
 * output. */
static bool add_past(PackedAttention *attention)
{
    OnnxNode *node = attention->node;
    ValueId both[2];
    for (int i = 0; i < 2; i++) {
        ValueId *part = &attention->parts[1 + i];
        if (has_input(node, PAST_INPUT)) {
            Shape past = shape_of(node, node->inputs[PAST_INPUT]);
            if (past.rank != 5 || past.dim[0] != 2) return node_error(node, NULL, "has a past of a wrong shape");
            ValueId former = emit_part(node, node->inputs[PAST_INPUT], 0, i, 1);
            Shape shape = {4, {past.dim[1], past.dim[2], past.dim[3], past.dim[4]}};
            *part = emit_concat(node, emit_reshape(node, former, &shape), *part, 2);
            if (!*part) return false;
        }
        Shape shape = shape_of(node, *part), once = {5, {1, shape.dim[0], shape.dim[1], shape.dim[2], shape.dim[3]}};
        attention->keys = shape.dim[2];
        both[i] = emit_reshape(node, *part, &once);
    }
    return node->output_count < 2 || set_output(node, 1, emit_concat(node, both[0], both[1], 0));
}

/* Which keys the mask allows, broadcasting to the scores: lengths [batch], ends and starts [2 batch], or one number for
 * each key [batch, keys], for each pair [batch, queries, keys] or for each pair of all positions [batch, 1, positions,
 * positions]. */
static ValueId allowed_keys(const PackedAttention *attention)
{
    OnnxNode *node = attention->node;
    int64_t batch = attention->batch;
    ValueId mask = emit_cast(node, attention->mask, DTYPE_I64), zero = emit_scalar(node, DTYPE_I64, 0);
    Shape shape = shape_of(node, mask), rows = {4, {batch, 1, 1, 1}};
    ValueId keys = emit_counting(node, 0, &(Shape){1, {attention->keys}});
    char text[256];
    if (shape.rank == 1 && shape.dim[0] == batch)
        return emit_binary(node, OP_Less, keys, emit_reshape(node, mask, &rows));
    if (shape.rank == 1 && shape.dim[0] == 2 * batch) {
        ValueId ends = emit_part(node, mask, 0, 0, batch), starts = emit_part(node, mask, 0, batch, batch);
        ValueId before = emit_binary(node, OP_Less, keys, emit_reshape(node, ends, &rows));
        ValueId after = emit_binary(node, OP_LessOrEqual, emit_reshape(node, starts, &rows), keys);
        return emit_binary(node, OP_And, before, after);
    }
    if (shape.rank == 2)
        mask = emit_reshape(node, mask, &(Shape){4, {shape.dim[0], 1, 1, shape.dim[1]}});
    else if (shape.rank == 3)
        mask = emit_reshape(node, mask, &(Shape){4, {shape.dim[0], 1, shape.dim[1], shape.dim[2]}});
    else if (shape.rank == 4 && shape.dim[2] >= attention->keys && shape.dim[3] >= attention->keys)
        mask =
            emit_slice(node, mask, (int64_t[]){0, 0, attention->keys - attention->queries, 0}, (int64_t[]){1, 1, 1, 1},
                       &(Shape){4, {shape.dim[0], shape.dim[1], attention->queries, attention->keys}});
    else
        return node_unsupported(node, NULL, "has a mask of shape %s", shape_format(&shape, text)), 0;
    return emit_unary(node, OP_Not, emit_binary(node, OP_Equal, mask, zero));
}

/* Forbidden scores are lowered by the filter value, as ONNX Runtime does. */
static ValueId lower_forbidden(const PackedAttention *attention, ValueId scores, ValueId allowed)
{
    OnnxNode *node = attention->node;
    if (!scores || !allowed) return 0;
    ValueId filter = emit_scalar(node, dtype_of(node, scores), attention->filter);
    return emit_where(node, allowed, scores, emit_binary(node, OP_Add, scores, filter));
}

/* softmax(scale * Q K' + mask + bias) V, [batch, length, heads * width]. */
static ValueId attend(const PackedAttention *attention)
{
    OnnxNode *node = attention->node;
    ValueId key = emit_transpose(node, attention->parts[1], (int64_t[]){0, 1, 3, 2});
    ValueId scores = emit_binary(node, OP_MatMul, attention->parts[0], key);
    if (!scores) return 0;
    scores = emit_binary(node, OP_Mul, scores, emit_scalar(node, dtype_of(node, scores), attention->scale));
    if (attention->mask) scores = lower_forbidden(attention, scores, allowed_keys(attention));
    if (attention->causal) {
        ValueId keys = emit_counting(node, 0, &(Shape){1, {attention->keys}});
        ValueId own = emit_counting(node, attention->keys - attention->queries, &(Shape){2, {attention->queries, 1}});
        scores = lower_forbidden(attention, scores, emit_binary(node, OP_LessOrEqual, keys, own));
    }
    if (attention->bias) scores = emit_binary(node, OP_Add, scores, attention->bias);
    if (!scores) return 0;
    return emit_join_heads(node,
                           emit_binary(node, OP_MatMul, emit_unary(node, OP_Softmax, scores), attention->parts[2]));
}

bool normalize_packed_attention(OnnxNode *node)
{
    PackedAttention attention = {.node = node};
    for (int i = MOST_ATTENTION_INPUTS; i < node->input_count; i++)
        if (node->inputs[i]) return node_unsupported(node, NULL, "input %d is not supported", i);
    return read_packed_attention(&attention) && add_past(&attention) && set_output(node, 0, attend(&attention));
}

/* ---- MultiHeadAttention ---- */

enum { MULTI_Q, MULTI_K, MULTI_V, MULTI_BIAS, MULTI_MASK, MULTI_SCORE_BIAS, MULTI_PAST_KEY, MULTI_OTHERS = 8 };

/* Part number `which` of [batch, length, heads, parts, width], as [batch, length, heads * width]. */
static ValueId unpack(OnnxNode *node, ValueId packed, int64_t which)
{
    Shape shape = shape_of(node, packed);
    return emit_reshape(node, emit_part(node, packed, 3, which, 1),
                        &(Shape){3, {shape.dim[0], shape.dim[1], shape.dim[2] * shape.dim[4]}});
}

/* Finds queries, keys and values: three tensors, one for all, or one for keys and values. */
static bool find_parts(const OnnxNode *node, int *packed, ValueId parts[3])
{
    for (int i = 0; i < 3; i++) parts[i] = optional_input(node, i);
    *packed = 0;
    for (int i = 0; i < 2 && !*packed; i++)
        if (parts[i] && !parts[i + 1] && !parts[2] && shape_of(node, parts[i]).rank == 5) *packed = 3 - i;
    bool given = *packed ? shape_of(node, parts[3 - *packed]).dim[3] == *packed : parts[1] && parts[2];
    return given || node_error(node, NULL, "has no keys and values: give them as inputs, or packed with the queries");
}

static bool read_multi_head(PackedAttention *attention)
{
    OnnxNode *node = attention->node;
    ValueId parts[3], bias = optional_input(node, MULTI_BIAS);
    int packed;
    int64_t first = 0;
    if (!find_parts(node, &packed, parts)) return false;
    ValueId source = parts[3 - packed < 3 ? 3 - packed : 0];
    Shape sums = {0};
    if (bias) sums = shape_of(node, bias);
    for (int i = 0; i < 3; i++) {
        if (i >= 3 - packed) parts[i] = unpack(node, source, i - (3 - packed));
        if (!parts[i]) return false;
        Shape shape = shape_of(node, parts[i]);
        attention->parts[i] = parts[i];
        if (shape.rank == 4 && !bias) continue; /* heads are apart already */
        if (bias && (shape.rank != 3 || sums.rank != 1 || shape.dim[2] > sums.dim[0] - first))
            return node_error(node, NULL, "has a bias that does not fit queries, keys and values");
        if (bias) parts[i] = emit_binary(node, OP_Add, parts[i], emit_part(node, bias, 0, first, shape.dim[2]));
        attention->parts[i] = emit_split_heads(node, parts[i], attention->heads);
        first += shape.rank == 3 ? shape.dim[2] : 0;
        if (!attention->parts[i]) return false;
    }
    return !bias || first == sums.dim[0] || node_error(node, NULL, "has a bias that is longer than its parts");
}

bool normalize_multi_head_attention(OnnxNode *node)
{
    PackedAttention attention = {
        .node = node, .mask = optional_input(node, MULTI_MASK), .bias = optional_input(node, MULTI_SCORE_BIAS)};
    for (int i = MULTI_OTHERS; i < node->input_count; i++)
        if (node->inputs[i]) return node_unsupported(node, NULL, "input %d is not supported", i);
    read_scores(&attention);
    if (!check_no_past(node, MULTI_PAST_KEY) || !read_multi_head(&attention)) return false;
    Shape query = shape_of(node, attention.parts[0]), key = shape_of(node, attention.parts[1]);
    attention.batch = query.dim[0];
    attention.queries = query.dim[2];
    attention.keys = key.dim[2];
    if (attention.scale == 0) attention.scale = 1 / sqrt((double)query.dim[3]);
    return set_output(node, 1, attention.parts[1]) && set_output(node, 2, attention.parts[2]) &&
           set_output(node, 0, attend(&attention));
}
