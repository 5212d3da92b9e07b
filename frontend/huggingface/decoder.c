/* Decoders, in which every token sees those before it, and encoders whose layers have the same form. One description
 * for all kinds, which differ by the rows of decoder_forms.c. */
#include <math.h>

#include "frontend/huggingface/encoder.h"
#include "frontend/huggingface/rotary.h"

typedef struct Decoder {
    Network *network;
    const HuggingFaceConfig *config;
    const DecoderConfig *own;
    const DecoderForm *form;
    const char *mask;                     /* of padding, that broadcasts to the scores */
    const char *visible[2];               /* (seq, seq), bool: keys that a query sees; [1]: in its window; NULL: all */
    Rotation rotation[2];                 /* of layers that see everything, and of those with a window */
    const char *position_scores;          /* of BUCKETS: what relative positions add to scores */
    const char *queries, *keys, *merged;  /* shapes: what is split into heads, and together again */
    const char *grouped, *shared, *apart; /* heads by the keys that they read, and apart again; or NULL */
    const char *places, *here;            /* of a step: positions of kept keys (1, room); which one is its own */
} Decoder;

static bool has(const Decoder *decoder, unsigned trait) { return decoder->form->traits & trait; }

static const char *apply_number(Network *network, const char *scope, const char *op, const char *x, double number)
{
    return network_apply(network, scope, op, x, onnx_builder_float(&network->builder, scope, (float)number));
}

/* ---- Parts ---- */

static const char *norm(Decoder *decoder, const char *scope, const char *input, int64_t width)
{
    Network *network = decoder->network;
    const double epsilon = decoder->config->norm_epsilon;
    if (has(decoder, LAYER_NORMS)) return network_norm(network, scope, input, width, epsilon, decoder->own->norm_bias);
    bool above = has(decoder, GAINS_ABOVE_ONE);
    const char *gain = network_vector(network, scope, "weight", above ? FILL_ZEROS : FILL_ONES, width);
    if (above) gain = network_apply(network, scope, "Add", gain, network->one);
    Onnx__NodeProto *node =
        onnx_builder_node(&network->builder, scope, "RMSNormalization", (const char *const[]){input, gain}, 2);
    onnx_node_integer(&network->builder, node, "axis", -1);
    onnx_node_float(&network->builder, node, "epsilon", (float)epsilon);
    return onnx_node_output(node);
}

static const char *linear(Decoder *decoder, const char *scope, const char *input, int64_t in, int64_t out, bool bias)
{
    Network *network = decoder->network;
    if (!has(decoder, TRANSPOSED)) return network_linear_maybe(network, scope, input, in, out, bias);
    const char *product = network_apply(network, scope, "MatMul", input, network_matrix(network, scope, in, out));
    return bias ? network_apply(network, scope, "Add", product, network_vector(network, scope, "bias", FILL_ZEROS, out))
                : product;
}

/* cap * tanh(x / cap) */
static const char *cap(Network *network, const char *scope, const char *x, double most)
{
    if (most <= 0) return x;
    x = network_apply(network, scope, "Tanh", apply_number(network, scope, "Div", x, most));
    return apply_number(network, scope, "Mul", x, most);
}

/* ---- What all layers share ---- */

/* (seq, seq): whether a key is not after the query, and less than `window` before it; 0: anywhere before it. Of
 * encoders, whether it is less than `window` away. */
static const char *visible_keys(Decoder *decoder, const char *scope, int64_t window)
{
    static const int64_t swap[2] = {1, 0};
    Network *network = decoder->network;
    const char *keys = decoder->places ? decoder->places : network->positions;
    const char *queries = network_transpose(network, scope, network->positions, swap, 2);
    const char *distance = network_apply(network, scope, "Sub", queries, keys);
    if (has(decoder, SEES_ALL))
        return network_apply(network, scope, "Less", network_apply(network, scope, "Abs", distance),
                             network_integer(network, scope, window));
    const char *earlier = network_apply(network, scope, "GreaterOrEqual", distance, network_integer(network, scope, 0));
    if (!window) return earlier;
    const char *near = network_apply(network, scope, "Less", distance, network_integer(network, scope, window));
    return network_apply(network, scope, "And", earlier, near);
}

/* What a step needs to know of the tokens before it. */
static void share_places(Decoder *decoder, const char *scope)
{
    Network *network = decoder->network;
    int64_t *places = arena_new_array(&network->builder.arena, int64_t, (size_t)network->room);
    for (int64_t i = 0; i < network->room; i++) places[i] = i;
    decoder->places = onnx_builder_integers(&network->builder, scope, places, &(Shape){2, {1, network->room}});
    const char *here = network_apply(network, scope, "Equal", decoder->places, network->positions);
    decoder->here = network_apply(network, scope, "Unsqueeze", here, network_list(network, scope, 1, 3));
}

/* (1, heads, seq, seq) */
static const char *bucket_scores(Decoder *decoder, int64_t layer)
{
    const DecoderConfig *own = decoder->own;
    const char *scope = network_encoder_scope(decoder->network, "%s.%lld.%s.relative_attention_bias",
                                              decoder->form->layer, (long long)layer, decoder->form->attention);
    return encoder_bucket_scores(decoder->network, scope, own->buckets, own->most_distance);
}

static void share(Decoder *decoder, const char *scope)
{
    Network *network = decoder->network;
    const DecoderConfig *own = decoder->own;
    const int64_t heads = decoder->config->heads, width = own->head_width, sharing = heads / own->key_heads;
    bool some[2] = {false, false};
    if (decoder->network->room) share_places(decoder, scope);
    for (int64_t i = 0; i < decoder->config->layers; i++) some[own->local[i]] = true;
    for (int i = 0; i < 2; i++) {
        if (!some[i]) continue;
        if (i || !has(decoder, SEES_ALL)) decoder->visible[i] = visible_keys(decoder, scope, i ? own->window : 0);
        if (!has(decoder, POSITION_TABLE | BUCKETS) && !own->absolute)
            decoder->rotation[i] = rotary_add(network, scope, &own->rotary[i], width);
    }
    if (has(decoder, BUCKETS)) decoder->position_scores = bucket_scores(decoder, 0);
    decoder->queries = network_list(network, scope, 0, 0, heads, width);
    decoder->keys = network_list(network, scope, 0, 0, own->key_heads, width);
    decoder->merged = network_list(network, scope, 0, 0, heads * width);
    decoder->mask = network->mask;
    if (sharing == 1) return;
    decoder->grouped = network_list(network, scope, 0, own->key_heads, sharing, -1, width);
    decoder->shared = network_list(network, scope, 0, own->key_heads, 1, -1, width);
    decoder->apart = network_list(network, scope, 0, heads, -1, width);
    if (network->mask)
        decoder->mask = network_apply(network, scope, "Unsqueeze", network->mask, network_list(network, scope, 1));
}

/* ---- Attention ---- */

typedef struct Projections {
    const char *query, *key, *value; /* (batch, heads, seq, width of a head) */
} Projections;

static const char *split(Decoder *decoder, const char *scope, const char *input, const char *shape)
{
    static const int64_t swap[4] = {0, 2, 1, 3};
    Network *network = decoder->network;
    return network_transpose(network, scope, network_apply(network, scope, "Reshape", input, shape), swap, 4);
}

/* All three from one matrix, one after the other. */
static Projections project_parts(Decoder *decoder, const char *scope, const char *input)
{
    Network *network = decoder->network;
    const DecoderConfig *own = decoder->own;
    const int64_t queries = decoder->config->heads * own->head_width, keys = own->key_heads * own->head_width;
    const char *all = linear(decoder, network_scope(network, scope, decoder->form->query), input,
                             decoder->config->hidden, queries + 2 * keys, own->input_bias);
    return (Projections){
        split(decoder, scope, network_slice(network, scope, all, 2, 0, queries), decoder->queries),
        split(decoder, scope, network_slice(network, scope, all, 2, queries, queries + keys), decoder->keys),
        split(decoder, scope, network_slice(network, scope, all, 2, queries + keys, queries + 2 * keys),
              decoder->keys)};
}

/* All three from one matrix, head by head. */
static Projections project_heads(Decoder *decoder, const char *scope, const char *input)
{
    Network *network = decoder->network;
    const DecoderConfig *own = decoder->own;
    const int64_t width = own->head_width, heads = decoder->config->heads;
    const char *all = linear(decoder, network_scope(network, scope, decoder->form->query), input,
                             decoder->config->hidden, 3 * heads * width, own->input_bias);
    all = split(decoder, scope, all, network_list(network, scope, 0, 0, heads, 3 * width));
    return (Projections){network_slice(network, scope, all, 3, 0, width),
                         network_slice(network, scope, all, 3, width, 2 * width),
                         network_slice(network, scope, all, 3, 2 * width, 3 * width)};
}

static Projections project(Decoder *decoder, const char *scope, const char *input)
{
    Network *network = decoder->network;
    const DecoderConfig *own = decoder->own;
    const DecoderForm *form = decoder->form;
    const int64_t hidden = decoder->config->hidden, queries = decoder->config->heads * own->head_width,
                  keys = own->key_heads * own->head_width;
    if (has(decoder, FUSED_PARTS)) return project_parts(decoder, scope, input);
    if (has(decoder, FUSED_HEADS)) return project_heads(decoder, scope, input);
    Projections all = {
        linear(decoder, network_scope(network, scope, form->query), input, hidden, queries, own->input_bias),
        linear(decoder, network_scope(network, scope, form->key), input, hidden, keys, own->input_bias),
        linear(decoder, network_scope(network, scope, form->value), input, hidden, keys, own->input_bias)};
    all = (Projections){split(decoder, scope, all.query, decoder->queries),
                        split(decoder, scope, all.key, decoder->keys), split(decoder, scope, all.value, decoder->keys)};
    if (!has(decoder, NORMS_OF_HEADS)) return all;
    all.query = norm(decoder, network_scope(network, scope, form->query_norm), all.query, own->head_width);
    all.key = norm(decoder, network_scope(network, scope, form->key_norm), all.key, own->head_width);
    return all;
}

/* The keys or values of all tokens up to the step's: `past_NAME.LAYER` with its own in its place, which is the output
 * `NAME.LAYER`. */
static const char *keep(Decoder *decoder, const char *scope, const char *name, int64_t layer, const char *own)
{
    Network *network = decoder->network;
    const BuilderDimension dimensions[4] = {
        {1, NULL}, {decoder->own->key_heads, NULL}, {network->room, NULL}, {decoder->own->head_width, NULL}};
    const char *output = arena_format(&network->builder.arena, "%s.%lld", name, (long long)layer),
               *past = arena_format(&network->builder.arena, "past_%s", output);
    onnx_builder_input(&network->builder, past, ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, dimensions, 4);
    const char *all = network_apply(network, scope, "Where", decoder->here, own, past);
    network_output(network, output, all, dimensions, 4);
    return all;
}

/* Masked keys get the least float, so that queries without any key stay finite. */
static const char *attend(Decoder *decoder, const char *scope, Projections all, int64_t layer)
{
    static const int64_t swap[4] = {0, 1, 3, 2}, swap_grouped[5] = {0, 1, 2, 4, 3}, back[4] = {0, 2, 1, 3};
    Network *network = decoder->network;
    const DecoderConfig *own = decoder->own;
    bool grouped = decoder->grouped != NULL;
    double scale = own->scale / (own->scale_by_layer ? (double)(layer + 1) : 1);
    if (decoder->places) {
        all.key = keep(decoder, scope, "key", layer, all.key);
        all.value = keep(decoder, scope, "value", layer, all.value);
    }
    if (grouped) {
        all.query = network_apply(network, scope, "Reshape", all.query, decoder->grouped);
        all.key = network_apply(network, scope, "Reshape", all.key, decoder->shared);
        all.value = network_apply(network, scope, "Reshape", all.value, decoder->shared);
    }
    const char *keys = network_transpose(network, scope, all.key, grouped ? swap_grouped : swap, grouped ? 5 : 4);
    const char *scores = network_apply(network, scope, "MatMul", all.query, keys);
    if (scale != 1) scores = apply_number(network, scope, "Mul", scores, scale);
    scores = cap(network, scope, scores, own->score_cap);
    bool alone = has(decoder, BUCKETS_OF_LAYER) && layer;
    const char *near = alone ? bucket_scores(decoder, layer) : decoder->position_scores;
    if (near) scores = network_apply(network, scope, "Add", scores, near);
    if (decoder->mask) scores = network_apply(network, scope, "Add", scores, decoder->mask);
    if (decoder->visible[own->local[layer]])
        scores = network_apply(network, scope, "Where", decoder->visible[own->local[layer]], scores,
                               onnx_builder_float(&network->builder, scope, -3.40282347e38f));
    const char *context = network_apply(network, scope, "MatMul", network_softmax(network, scope, scores), all.value);
    if (grouped) context = network_apply(network, scope, "Reshape", context, decoder->apart);
    return network_apply(network, scope, "Reshape", network_transpose(network, scope, context, back, 4),
                         decoder->merged);
}

static const char *add_attention(Decoder *decoder, const char *scope, const char *input, int64_t layer)
{
    Network *network = decoder->network;
    const DecoderConfig *own = decoder->own;
    const Rotation *rotation = &decoder->rotation[own->local[layer]];
    Projections all = project(decoder, scope, input);
    if (rotation->cosine && own->rotates[layer]) {
        all.query = rotary_turn(network, scope, all.query, rotation);
        all.key = rotary_turn(network, scope, all.key, rotation);
    }
    return linear(decoder, network_scope(network, scope, decoder->form->output), attend(decoder, scope, all, layer),
                  decoder->config->heads * own->head_width, decoder->config->hidden, own->output_bias);
}

static const char *add_feed_forward(Decoder *decoder, const char *scope, const char *input)
{
    Network *network = decoder->network;
    const DecoderForm *form = decoder->form;
    const int64_t hidden = decoder->config->hidden, inner = decoder->config->intermediate;
    bool fused = has(decoder, FUSED_GATE), bias = decoder->own->mlp_bias, gated = decoder->own->gated;
    const char *up = gated || !form->up_alone ? form->up : form->up_alone;
    const char *value =
                   linear(decoder, network_scope(network, scope, up), input, hidden, fused ? 2 * inner : inner, bias),
               *gate = value;
    if (fused) {
        const int64_t first = has(decoder, GATE_LAST) ? inner : 0, second = inner - first;
        gate = network_slice(network, scope, value, 2, first, first + inner);
        value = network_slice(network, scope, value, 2, second, second + inner);
    } else if (gated) {
        gate = linear(decoder, network_scope(network, scope, form->gate), input, hidden, inner, bias);
    }
    gate = network_activation(network, scope, decoder->config->activation, gate);
    if (gated) gate = network_apply(network, scope, "Mul", gate, value);
    return linear(decoder, network_scope(network, scope, form->down), gate, inner, hidden, decoder->own->down_bias);
}

/* ---- Layers ---- */

static const char *add_layer(Decoder *decoder, int64_t layer, const char *x)
{
    Network *network = decoder->network;
    const DecoderForm *form = decoder->form;
    const int64_t hidden = decoder->config->hidden;
    const char *scope = network_encoder_scope(network, "%s.%lld", form->layer, (long long)layer), *input = x;
    const char *mlp = form->mlp ? network_scope(network, scope, form->mlp) : scope;
    bool after = has(decoder, NORMS_AFTER);
    if (!after && (layer || !has(decoder, FIRST_BARE)))
        input = norm(decoder, network_scope(network, scope, form->input_norm), x, hidden);
    const char *attended = add_attention(decoder, network_scope(network, scope, form->attention), input, layer);
    if (has(decoder, NORMS_AROUND))
        attended = norm(decoder, network_scope(network, scope, form->attended_norm), attended, hidden);
    const char *sum = network_apply(network, scope, "Add", x, attended);
    if (after) sum = norm(decoder, network_scope(network, scope, form->attended_norm), sum, hidden);
    const char *read = decoder->own->parallel ? x : sum;
    if (!after) read = norm(decoder, network_scope(network, scope, form->mlp_norm), read, hidden);
    const char *result = add_feed_forward(decoder, mlp, read);
    if (has(decoder, NORMS_AROUND))
        result = norm(decoder, network_scope(network, scope, form->mlp_after_norm), result, hidden);
    sum = network_apply(network, scope, "Add", sum, result);
    return after ? norm(decoder, network_scope(network, scope, form->mlp_after_norm), sum, hidden) : sum;
}

/* Of the tokens of a row that the mask lets through, those that a model of proteins is to guess count as dropped out:
 * the others are scaled as if 12% were, as in its pretraining. */
static const char *drop_tokens(Decoder *decoder, const char *scope, const char *mask, const char *x)
{
    Network *network = decoder->network;
    const char *hidden = network_apply(network, scope, "Equal", network->inputs[0],
                                       network_integer(network, scope, decoder->own->mask_token));
    hidden = network_cast(network, scope, hidden, ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT);
    hidden = network_apply(network, scope, "Unsqueeze", hidden, network_list(network, scope, 2));
    const char *counts[2], *axis = network_list(network, scope, 1);
    for (int i = 0; i < 2; i++) counts[i] = network_apply(network, scope, "ReduceSum", i ? mask : hidden, axis);
    x = network_apply(network, scope, "Mul", x, network_apply(network, scope, "Sub", network->one, hidden));
    const char *share = network_apply(network, scope, "Div", counts[0], counts[1]);
    return network_apply(network, scope, "Div", apply_number(network, scope, "Mul", x, 1 - 0.15 * 0.8),
                         network_apply(network, scope, "Sub", network->one, share));
}

static const char *esm_embed(Decoder *decoder, const char *x)
{
    Network *network = decoder->network;
    const char *scope = network_encoder_scope(network, "embeddings");
    const char *mask = network_apply(network, scope, "Unsqueeze", network->inputs[1], network_list(network, scope, 2));
    mask = network_cast(network, scope, mask, ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT);
    if (decoder->own->token_dropout) x = drop_tokens(decoder, scope, mask, x);
    if (decoder->own->absolute) x = encoder_add_positions(network, scope, x);
    if (decoder->own->embedded_norm)
        x = norm(decoder, network_encoder_scope(network, "%s", decoder->form->embedded_norm), x,
                 decoder->config->hidden);
    return network_apply(network, scope, "Mul", x, mask);
}

static const char *embed(Decoder *decoder)
{
    Network *network = decoder->network;
    const HuggingFaceConfig *config = decoder->config;
    const char *scope = network_encoder_scope(network, "%s", decoder->form->embeddings);
    const char *x = network_embedding(network, scope, network->inputs[0], config->vocabulary, config->hidden);
    if (has(decoder, SCALED_EMBEDDINGS)) x = apply_number(network, scope, "Mul", x, sqrt((double)config->hidden));
    if (has(decoder, CHOOSES_POSITIONS)) x = esm_embed(decoder, x);
    if (config->token_types) x = encoder_add_types(network, network_encoder_scope(network, "embeddings"), x);
    if (decoder->form->embedded_norm && !has(decoder, CHOOSES_POSITIONS))
        x = norm(decoder, network_encoder_scope(network, "%s", decoder->form->embedded_norm), x, config->hidden);
    if (!has(decoder, POSITION_TABLE)) return x;
    scope = network_encoder_scope(network, "%s", decoder->form->position_table);
    return network_apply(network, scope, "Add", x,
                         network_embedding(network, scope, network->positions, config->positions, config->hidden));
}

const char *decoder_build(Network *network)
{
    const HuggingFaceConfig *config = network->config;
    Decoder decoder = {.network = network, .config = config, .own = &config->decoder, .form = config->type->form};
    share(&decoder, network_encoder_scope(network, "%s", decoder.form->attention));
    const char *x = embed(&decoder);
    for (int64_t i = 0; i < config->layers && network->diagnostics->errors < NETWORK_MOST_ERRORS; i++)
        x = add_layer(&decoder, i, x);
    if (!decoder.form->last_norm) return x;
    return norm(&decoder, network_encoder_scope(network, "%s", decoder.form->last_norm), x, config->hidden);
}

/* ---- Heads ---- */

const char *prediction_head(Network *network, const char *scope, const char *x)
{
    const HuggingFaceConfig *config = network->config;
    const PredictionConfig *own = &config->prediction;
    x = network_linear_maybe(network, network_scope(network, scope, "dense"), x, config->hidden, config->hidden,
                             own->classifier_bias);
    x = network_activation(network, scope, own->activation, x);
    return network_norm(network, network_scope(network, scope, "norm"), x, config->hidden, config->norm_epsilon,
                        config->decoder.norm_bias);
}

const char *decoder_predict(Network *network, const char *x)
{
    static const int64_t swap[2] = {1, 0};
    const HuggingFaceConfig *config = network->config;
    const DecoderForm *form = config->type->form;
    if (form->traits & PREDICTION_HEAD) x = prediction_head(network, "lm_head", x);
    const char *table = config->ties_decoder ? network_encoder_scope(network, "%s", form->embeddings) : form->lm_head;
    const char *weight = network_matrix(network, table, config->vocabulary, config->hidden);
    const char *logits =
        network_apply(network, form->lm_head, "MatMul", x, network_transpose(network, form->lm_head, weight, swap, 2));
    if ((form->traits & PREDICTION_HEAD) && config->prediction.decoder_bias)
        logits = network_apply(network, form->lm_head, "Add", logits,
                               network_vector(network, form->lm_head, "bias", FILL_ZEROS, config->vocabulary));
    return cap(network, form->lm_head, logits, config->decoder.logit_cap);
}

/* The softmax of a steep ramp over the positions that the mask lets through is 1 at the last of them. The first token,
 * which adds the same to all, makes it a row of attention, which packing knows. */
const char *decoder_last_token(Network *network, const char *x)
{
    const char *scope = "score";
    const char *ramp = network_cast(network, scope, network->positions, ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT);
    ramp = apply_number(network, scope, "Mul", ramp, 1024);
    const char *mask = network_cast(network, scope, network->inputs[1], ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT);
    const char *first = network_slice(network, scope, mask, 1, 0, 1);
    first = network_apply(network, scope, "Unsqueeze", first, network_list(network, scope, 2));
    const char *hidden =
        apply_number(network, scope, "Mul", network_apply(network, scope, "Sub", network->one, mask), -3e38);
    const char *scores = network_apply(network, scope, "Add", ramp, hidden);
    scores = network_apply(network, scope, "Unsqueeze", scores, network_list(network, scope, 1));
    scores = network_apply(network, scope, "Add", scores, first);
    const char *last = network_apply(network, scope, "MatMul", network_softmax(network, scope, scores), x);
    return network_apply(network, scope, "Squeeze", last, network_list(network, scope, 1));
}
