/* ModernBERT (Warner et al., "Smarter, better, faster, longer", 2024): normalised inputs, gated feed-forward parts,
 * rotary positions, and layers that see a window only. */
#include <math.h>

#include "frontend/huggingface/encoder.h"

/* Inputs that layers of one kind share. */
typedef struct LayerKind {
    const char *mask;          /* added to the scores */
    const char *cosine, *sine; /* (1, 1, seq, width of a head) */
} LayerKind;

static const char *norm(Network *network, const char *scope, const char *input)
{
    const HuggingFaceConfig *config = network->config;
    return network_norm(network, scope, input, config->hidden, config->norm_epsilon, config->modernbert.norm_bias);
}

static const char *linear(Network *network, const char *scope, const char *input, int64_t in, int64_t out, bool bias)
{
    return bias ? network_linear(network, scope, input, in, out)
                : network_linear_without_bias(network, scope, input, in, out);
}

/* (batch, 1, seq, seq): 0 where |query - key| is within the window and the key is not padding, else the least float. It
 * is the minimum of the two masks, not their sum, so that fully masked rows stay finite. */
static const char *window_mask(Network *network, const char *scope)
{
    static const int64_t swap[2] = {1, 0};
    const char *queries = network_transpose(network, scope, network->positions, swap, 2);
    const char *distance =
        network_apply(network, scope, "Abs", network_apply(network, scope, "Sub", queries, network->positions));
    const char *outside = network_apply(network, scope, "Greater", distance,
                                        network_integer(network, scope, network->config->modernbert.window));
    const char *hidden = network_apply(network, scope, "Mul",
                                       network_cast(network, scope, outside, ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT),
                                       onnx_builder_float(&network->builder, scope, -3.40282347e38f));
    return network_apply(network, scope, "Min", network->mask, hidden);
}

/* The angles of RoPE (Su et al., 2021), in float32 as the library computes them: position times theta^(-2i / width),
 * for both halves of a head. */
static void add_rotation(Network *network, const char *scope, double theta, LayerKind *kind)
{
    const int64_t width = network->config->hidden / network->config->heads;
    float *frequencies = arena_new_array(&network->builder.arena, float, (size_t)width);
    for (int64_t i = 0; i < width; i++)
        frequencies[i] = 1.0f / powf((float)theta, (float)(2 * (i % (width / 2))) / (float)width);
    const char *positions =
        network_apply(network, scope, "Unsqueeze",
                      network_cast(network, scope, network->positions, ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT),
                      network_list(network, scope, 0, 3));
    const char *angles =
        network_apply(network, scope, "Mul", positions,
                      onnx_builder_floats(&network->builder, scope, frequencies, &(Shape){1, {width}}));
    kind->cosine = network_apply(network, scope, "Cos", angles);
    kind->sine = network_apply(network, scope, "Sin", angles);
}

static const char *slice(Network *network, const char *scope, const char *input, int64_t axis, int64_t from, int64_t to)
{
    return network_apply(network, scope, "Slice", input, network_list(network, scope, from),
                         network_list(network, scope, to), network_list(network, scope, axis));
}

/* x cos + (-x2, x1) sin, where x1 and x2 are the halves of a head. */
static const char *rotate(Network *network, const char *scope, const char *x, const LayerKind *kind)
{
    const int64_t width = network->config->hidden / network->config->heads;
    const char *first = slice(network, scope, x, 3, 0, width / 2),
               *second = slice(network, scope, x, 3, width / 2, width);
    const char *halves[2] = {network_apply(network, scope, "Neg", second), first};
    Onnx__NodeProto *turned = onnx_builder_node(&network->builder, scope, "Concat", halves, 2);
    onnx_node_integer(&network->builder, turned, "axis", -1);
    return network_apply(network, scope, "Add", network_apply(network, scope, "Mul", x, kind->cosine),
                         network_apply(network, scope, "Mul", onnx_node_output(turned), kind->sine));
}

static const char *add_attention(Network *network, const char *scope, const char *input, const LayerKind *kind)
{
    static const int64_t swap[4] = {0, 1, 3, 2};
    const HuggingFaceConfig *config = network->config;
    const int64_t hidden = config->hidden;
    const char *all = linear(network, network_scope(network, scope, "Wqkv"), input, hidden, 3 * hidden,
                             config->modernbert.attention_bias);
    const char *parts[3];
    for (int64_t i = 0; i < 3; i++)
        parts[i] = network_split_heads(network, scope, slice(network, scope, all, 2, i * hidden, (i + 1) * hidden));
    const char *queries = rotate(network, scope, parts[0], kind), *keys = rotate(network, scope, parts[1], kind);
    const char *scores =
        network_apply(network, scope, "MatMul", queries, network_transpose(network, scope, keys, swap, 4));
    scores = network_apply(network, scope, "Div", scores,
                           onnx_builder_float(&network->builder, scope, sqrtf((float)(hidden / config->heads))));
    scores = network_apply(network, scope, "Add", scores, kind->mask);
    const char *context = network_apply(network, scope, "MatMul", network_softmax(network, scope, scores), parts[2]);
    return linear(network, network_scope(network, scope, "Wo"), network_merge_heads(network, scope, context), hidden,
                  hidden, config->modernbert.attention_bias);
}

static const char *add_feed_forward(Network *network, const char *scope, const char *input)
{
    const HuggingFaceConfig *config = network->config;
    const int64_t inner = config->intermediate;
    bool bias = config->modernbert.mlp_bias;
    const char *both = linear(network, network_scope(network, scope, "Wi"), input, config->hidden, 2 * inner, bias);
    const char *value = slice(network, scope, both, 2, 0, inner),
               *gate = slice(network, scope, both, 2, inner, 2 * inner);
    value = network_activation(network, scope, config->activation, value);
    return linear(network, network_scope(network, scope, "Wo"), network_apply(network, scope, "Mul", value, gate),
                  inner, config->hidden, bias);
}

const char *modernbert_build(Network *network)
{
    const HuggingFaceConfig *config = network->config;
    const char *scope = network_encoder_scope(network, "embeddings");
    LayerKind global = {.mask = network->mask}, local = {.mask = window_mask(network, scope)};
    add_rotation(network, scope, config->modernbert.global_theta, &global);
    add_rotation(network, scope, config->modernbert.local_theta, &local);
    const char *x = network_embedding(network, network_scope(network, scope, "tok_embeddings"), network->inputs[0],
                                      config->vocabulary, config->hidden);
    x = norm(network, network_scope(network, scope, "norm"), x);
    for (int64_t i = 0; i < config->layers && network->diagnostics->errors < NETWORK_MOST_ERRORS; i++) {
        const char *layer = network_encoder_scope(network, "layers.%lld", (long long)i);
        const char *input = i ? norm(network, network_scope(network, layer, "attn_norm"), x) : x;
        const char *attended = add_attention(network, network_scope(network, layer, "attn"), input,
                                             config->modernbert.global[i] ? &global : &local);
        x = network_apply(network, layer, "Add", x, attended);
        input = norm(network, network_scope(network, layer, "mlp_norm"), x);
        x = network_apply(network, layer, "Add", x,
                          add_feed_forward(network, network_scope(network, layer, "mlp"), input));
    }
    return norm(network, network_encoder_scope(network, "final_norm"), x);
}
