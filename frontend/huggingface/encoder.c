/* Blocks of BERT's form: attention and a feed-forward part, each added to its input and normalised. */
#include "frontend/huggingface/encoder.h"

#include <math.h>
#include <string.h>

enum { MPNET_MOST_DISTANCE = 128 };

/* What the parts of a block are called. */
typedef struct BlockNames {
    const char *query, *key, *value, *attention_output, *attention_norm, *intermediate, *output, *output_norm;
} BlockNames;

static const BlockNames names_of_family[] = {
    [FAMILY_BERT] = {"attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense",
                     "attention.output.LayerNorm", "intermediate.dense", "output.dense", "output.LayerNorm"},
    [FAMILY_DISTILBERT] = {"attention.q_lin", "attention.k_lin", "attention.v_lin", "attention.out_lin",
                           "sa_layer_norm", "ffn.lin1", "ffn.lin2", "output_layer_norm"},
    [FAMILY_ALBERT] = {"attention.query", "attention.key", "attention.value", "attention.dense", "attention.LayerNorm",
                       "ffn", "ffn_output", "full_layer_layer_norm"},
    [FAMILY_MPNET] = {"attention.attn.q", "attention.attn.k", "attention.attn.v", "attention.attn.o",
                      "attention.LayerNorm", "intermediate.dense", "output.dense", "output.LayerNorm"},
    [FAMILY_DEBERTA] = {"attention.self.query_proj", "attention.self.key_proj", "attention.self.value_proj",
                        "attention.output.dense", "attention.output.LayerNorm", "intermediate.dense", "output.dense",
                        "output.LayerNorm"},
};

/* XLM-RoBERTa-XL's. */
static const BlockNames names_of_norms_first = {
    "attention.self.query",           "attention.self.key", "attention.self.value", "attention.output.dense",
    "attention.self_attn_layer_norm", "intermediate.dense", "output.dense",         "LayerNorm"};

static const BlockNames *block_names(const ModelType *type)
{
    Family family = type->family;
    if (type->norms_first) return &names_of_norms_first;
    return &names_of_family[family == FAMILY_ROBERTA || family == FAMILY_ELECTRA ? FAMILY_BERT : family];
}

typedef struct Blocks {
    Network *network;
    const BlockNames *names;
    const char *scale;           /* what scores are divided by */
    const char *position_scores; /* added to the scores of every block; NULL: nothing */
    DebertaPositions deberta;    /* embeddings NULL: none */
    Distances distances;
} Blocks;

static const char *norm(Network *network, const char *scope, const char *name, const char *input)
{
    const HuggingFaceConfig *config = network->config;
    return network_norm(network, network_scope(network, scope, name), input, config->hidden, config->norm_epsilon,
                        true);
}

static const char *project(const Blocks *blocks, const char *scope, const char *name, const char *input)
{
    const int64_t hidden = blocks->network->config->hidden;
    const char *projected =
        network_linear(blocks->network, network_scope(blocks->network, scope, name), input, hidden, hidden);
    return network_split_heads(blocks->network, scope, projected);
}

/* The module that holds the queries' layer. */
static const char *attention_scope(const Blocks *blocks, const char *scope)
{
    const char *name = blocks->names->query, *last = strrchr(name, '.');
    return network_scope(blocks->network, scope,
                         arena_string_n(&blocks->network->builder.arena, name, (size_t)(last - name)));
}

static const char *add_attention(const Blocks *blocks, const char *scope, const char *input)
{
    static const int64_t swap[4] = {0, 1, 3, 2};
    Network *network = blocks->network;
    const HuggingFaceConfig *config = network->config;
    bool first = config->type->norms_first;
    const char *read = first ? norm(network, scope, blocks->names->attention_norm, input) : input;
    const char *queries = project(blocks, scope, blocks->names->query, read);
    const char *keys = project(blocks, scope, blocks->names->key, read);
    const char *values = project(blocks, scope, blocks->names->value, read);
    const char *attention = network_scope(network, scope, "attention");
    const char *scores =
        network_apply(network, attention, "MatMul", queries, network_transpose(network, attention, keys, swap, 4));
    if (blocks->distances.by_query)
        scores =
            network_apply(network, attention, "Add", scores,
                          distance_scores(network, &blocks->distances, attention_scope(blocks, scope), queries, keys));
    scores = network_apply(network, attention, "Div", scores, blocks->scale);
    if (blocks->deberta.embeddings)
        scores = network_apply(network, attention, "Add", scores,
                               deberta_position_scores(network, &blocks->deberta, scope, queries, keys, blocks->scale));
    if (blocks->position_scores) scores = network_apply(network, attention, "Add", scores, blocks->position_scores);
    scores = network_apply(network, attention, "Add", scores, network->mask);
    const char *context =
        network_apply(network, attention, "MatMul", network_softmax(network, attention, scores), values);
    context = network_merge_heads(network, attention, context);
    const char *dense = network_linear(network, network_scope(network, scope, blocks->names->attention_output), context,
                                       config->hidden, config->hidden);
    const char *sum = network_apply(network, scope, "Add", dense, input);
    return first ? sum : norm(network, scope, blocks->names->attention_norm, sum);
}

static const char *add_block(const Blocks *blocks, const char *scope, const char *input)
{
    Network *network = blocks->network;
    const HuggingFaceConfig *config = network->config;
    const char *attended = add_attention(blocks, scope, input);
    const char *inner = network_scope(network, scope, blocks->names->intermediate);
    bool first = config->type->norms_first;
    const char *read = first ? norm(network, scope, blocks->names->output_norm, attended) : attended;
    const char *wide = network_linear(network, inner, read, config->hidden, config->intermediate);
    wide = network_activation(network, inner, config->activation, wide);
    const char *dense = network_linear(network, network_scope(network, scope, blocks->names->output), wide,
                                       config->intermediate, config->hidden);
    const char *sum = network_apply(network, scope, "Add", dense, attended);
    return first ? sum : norm(network, scope, blocks->names->output_norm, sum);
}

/* Of ALBERT a layer is a group of blocks, whose weights the layers of its group share. */
static const char *add_layer(const Blocks *blocks, int64_t layer, const char *input)
{
    Network *network = blocks->network;
    const HuggingFaceConfig *config = network->config;
    const bool distil = config->type->family == FAMILY_DISTILBERT;
    if (config->type->family != FAMILY_ALBERT)
        return add_block(blocks,
                         distil ? network_encoder_scope(network, "transformer.layer.%lld", (long long)layer)
                                : network_encoder_scope(network, "encoder.layer.%lld", (long long)layer),
                         input);
    const int64_t group = layer * config->layer_groups / config->layers;
    for (int64_t i = 0; i < config->layers_per_group; i++)
        input = add_block(blocks,
                          network_encoder_scope(network, "encoder.albert_layer_groups.%lld.albert_layers.%lld",
                                                (long long)group, (long long)i),
                          input);
    return input;
}

const char *encoder_build(Network *network)
{
    const HuggingFaceConfig *config = network->config;
    const DebertaConfig *deberta = &config->deberta;
    encoder_add_inputs(network);
    if (config->type->form) return decoder_build(network);
    Blocks blocks = {.network = network, .names = block_names(config->type)};
    const char *embedded = encoder_embed(network), *x = embedded;
    int terms = 1 + deberta->content_to_position + deberta->position_to_content;
    blocks.scale = onnx_builder_float(&network->builder, network_encoder_scope(network, "encoder"),
                                      sqrtf((float)(config->hidden / config->heads * terms)));
    if (config->type->family == FAMILY_MPNET)
        blocks.position_scores =
            encoder_bucket_scores(network, network_encoder_scope(network, "encoder.relative_attention_bias"),
                                  config->relative_buckets, MPNET_MOST_DISTANCE);
    blocks.distances = distances_share(network, network_encoder_scope(network, "encoder"));
    if (deberta->relative && terms > 1) blocks.deberta = deberta_positions(network);
    for (int64_t i = 0; i < config->layers && network->diagnostics->errors < NETWORK_MOST_ERRORS; i++) {
        x = add_layer(&blocks, i, x);
        if (i == 0 && deberta->kernel) x = deberta_convolve(network, embedded, x);
    }
    return config->type->norms_first ? norm(network, network_encoder_scope(network, "encoder"), "LayerNorm", x) : x;
}
