/* ModernBERT (Warner et al., "Smarter, better, faster, longer", 2024): normalised inputs, gated feed-forward parts,
 * rotary positions, and layers that see a window only. */
#include <math.h>

#include "frontend/huggingface/encoder.h"
#include "frontend/huggingface/rotary.h"

/* Inputs that layers of one kind share. */
typedef struct LayerKind {
    const char *mask; /* added to the scores */
    Rotation rotation;
} LayerKind;

static const char *norm(Network *network, const char *scope, const char *input)
{
    const HuggingFaceConfig *config = network->config;
    return network_norm(network, scope, input, config->hidden, config->norm_epsilon, config->modernbert.norm_bias);
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

static const char *add_attention(Network *network, const char *scope, const char *input, const LayerKind *kind)
{
    static const int64_t swap[4] = {0, 1, 3, 2};
    const HuggingFaceConfig *config = network->config;
    const int64_t hidden = config->hidden;
    const char *all = network_linear_maybe(network, network_scope(network, scope, "Wqkv"), input, hidden, 3 * hidden,
                                           config->modernbert.attention_bias);
    const char *parts[3];
    for (int64_t i = 0; i < 3; i++)
        parts[i] =
            network_split_heads(network, scope, network_slice(network, scope, all, 2, i * hidden, (i + 1) * hidden));
    const char *queries = rotary_turn(network, scope, parts[0], &kind->rotation),
               *keys = rotary_turn(network, scope, parts[1], &kind->rotation);
    const char *scores =
        network_apply(network, scope, "MatMul", queries, network_transpose(network, scope, keys, swap, 4));
    scores = network_apply(network, scope, "Div", scores,
                           onnx_builder_float(&network->builder, scope, sqrtf((float)(hidden / config->heads))));
    scores = network_apply(network, scope, "Add", scores, kind->mask);
    const char *context = network_apply(network, scope, "MatMul", network_softmax(network, scope, scores), parts[2]);
    return network_linear_maybe(network, network_scope(network, scope, "Wo"),
                                network_merge_heads(network, scope, context), hidden, hidden,
                                config->modernbert.attention_bias);
}

static const char *add_feed_forward(Network *network, const char *scope, const char *input)
{
    const HuggingFaceConfig *config = network->config;
    const int64_t inner = config->intermediate;
    bool bias = config->modernbert.mlp_bias;
    const char *both =
        network_linear_maybe(network, network_scope(network, scope, "Wi"), input, config->hidden, 2 * inner, bias);
    const char *value = network_slice(network, scope, both, 2, 0, inner),
               *gate = network_slice(network, scope, both, 2, inner, 2 * inner);
    value = network_activation(network, scope, config->activation, value);
    return network_linear_maybe(network, network_scope(network, scope, "Wo"),
                                network_apply(network, scope, "Mul", value, gate), inner, config->hidden, bias);
}

const char *modernbert_build(Network *network)
{
    const HuggingFaceConfig *config = network->config;
    const char *scope = network_encoder_scope(network, "embeddings");
    LayerKind global = {.mask = network->mask}, local = {.mask = window_mask(network, scope)};
    RotaryConfig rotary = {.width = config->hidden / config->heads, .attention_factor = 1};
    rotary.theta = config->modernbert.global_theta;
    global.rotation = rotary_add(network, scope, &rotary, rotary.width);
    rotary.theta = config->modernbert.local_theta;
    local.rotation = rotary_add(network, scope, &rotary, rotary.width);
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
