/* Scores of relative positions: buckets of MPNet and T5, BERT's tables of distances, and DeBERTa's disentangled
 * attention. */
#include <math.h>

#include "frontend/huggingface/encoder.h"

/* ---- MPNet and T5 ---- */

/* T5's buckets (Raffel et al., "Exploring the limits of transfer learning", 2020, section 2.1): half of them are for
 * keys after the query. Half of each half have one distance each, the others have logarithmic width up to `most`.
 * Computed in float32, as the library does. */
static int64_t distance_bucket(int64_t query_minus_key, int64_t buckets, int64_t most)
{
    const int64_t half = buckets / 2, exact = half / 2;
    const int64_t first = query_minus_key < 0 ? half : 0,
                  distance = query_minus_key < 0 ? -query_minus_key : query_minus_key;
    if (distance < exact) return first + distance;
    float part = logf((float)distance / (float)exact) / (float)log((double)most / (double)exact);
    int64_t bucket = exact + (int64_t)(part * (float)(half - exact));
    return first + (bucket < half ? bucket : half - 1);
}

const char *encoder_bucket_scores(Network *network, const char *scope, int64_t buckets, int64_t most)
{
    static const int64_t heads_first[3] = {2, 0, 1};
    const int64_t count = encoder_most_positions(network->config);
    int64_t *table = arena_new_array(&network->builder.arena, int64_t, (size_t)(2 * count - 1));
    for (int64_t i = 0; i < 2 * count - 1; i++) table[i] = distance_bucket(i - (count - 1), buckets, most);
    const char *rows = network_embedding(network, scope, encoder_relative(network, scope, table, count), buckets,
                                         network->config->heads);
    return network_apply(network, scope, "Unsqueeze", network_transpose(network, scope, rows, heads_first, 3),
                         network_list(network, scope, 0));
}

/* ---- DeBERTa ---- */

/* He et al., "DeBERTa: Decoding-enhanced BERT with disentangled attention", 2021; buckets are those of version 2: half
 * of them have one distance each, the others have logarithmic width. Computed in float32, as the library does. */
static int64_t deberta_bucket(const DebertaConfig *config, int64_t distance)
{
    const int64_t middle = config->buckets / 2, absolute = distance < 0 ? -distance : distance;
    if (!config->buckets || absolute <= middle) return distance;
    float part = logf((float)absolute / (float)middle) / logf((float)((double)(config->reach - 1) / (double)middle));
    int64_t bucket = (int64_t)ceilf(part * (float)(middle - 1)) + middle;
    return distance < 0 ? -bucket : bucket;
}

static int64_t clamp(int64_t value, int64_t most) { return value < 0 ? 0 : value > most ? most : value; }

DebertaPositions deberta_positions(Network *network)
{
    const HuggingFaceConfig *config = network->config;
    const DebertaConfig *deberta = &config->deberta;
    const int64_t most = encoder_most_positions(config), span = deberta->buckets ? deberta->buckets : deberta->reach;
    const char *scope = network_encoder_scope(network, "encoder");
    DebertaPositions positions = {.span = span};
    int64_t *table = arena_new_array(&network->builder.arena, int64_t, (size_t)(2 * most - 1));
    for (int64_t i = 0; i < 2 * most - 1; i++)
        table[i] = clamp(deberta_bucket(deberta, i - (most - 1)) + span, 2 * span - 1);
    if (deberta->content_to_position) positions.by_query = encoder_relative(network, scope, table, most);
    for (int64_t i = 0; i < 2 * most - 1; i++)
        table[i] = clamp(span - deberta_bucket(deberta, i - (most - 1)), 2 * span - 1);
    if (deberta->position_to_content) positions.by_key = encoder_relative(network, scope, table, most);
    const char *rows =
        network_matrix(network, network_scope(network, scope, "rel_embeddings"), 2 * span, config->hidden);
    if (deberta->normalized)
        rows = network_norm(network, network_scope(network, scope, "LayerNorm"), rows, config->hidden,
                            config->norm_epsilon, true);
    positions.embeddings = network_apply(network, scope, "Unsqueeze", rows, network_list(network, scope, 0));
    return positions;
}

/* (batch, heads, seq, seq): of the products of `content` with all position vectors, which are columns, those that
 * `index` names. */
static const char *look_up(Network *network, const char *scope, const char *content, const char *vectors,
                           const char *index)
{
    const char *products = network_apply(network, scope, "MatMul", content, vectors);
    /* (batch, heads, seq) of the products, and seq again */
    const char *shape = network_apply(network, scope, "Shape", products);
    const char *front =
        network_apply(network, scope, "Slice", shape, network_list(network, scope, 0), network_list(network, scope, 3));
    const char *last =
        network_apply(network, scope, "Slice", shape, network_list(network, scope, 2), network_list(network, scope, 3));
    Onnx__NodeProto *join =
        onnx_builder_node(&network->builder, scope, "Concat", (const char *const[]){front, last}, 2);
    onnx_node_integer(&network->builder, join, "axis", 0);
    const char *indices = network_apply(network, scope, "Expand", index, onnx_node_output(join));
    Onnx__NodeProto *pick =
        onnx_builder_node(&network->builder, scope, "GatherElements", (const char *const[]){products, indices}, 2);
    onnx_node_integer(&network->builder, pick, "axis", -1);
    return onnx_node_output(pick);
}

static const char *position_vectors(Network *network, const DebertaPositions *positions, const char *scope,
                                    const char *shared, const char *own)
{
    static const int64_t swap[4] = {0, 1, 3, 2};
    const int64_t hidden = network->config->hidden;
    const char *name = network_scope(network, scope, network->config->deberta.shared_keys ? shared : own);
    const char *vectors =
        network_split_heads(network, scope, network_linear(network, name, positions->embeddings, hidden, hidden));
    return network_transpose(network, scope, vectors, swap, 4);
}

const char *deberta_position_scores(Network *network, const DebertaPositions *positions, const char *scope,
                                    const char *queries, const char *keys, const char *scale)
{
    static const int64_t swap[4] = {0, 1, 3, 2};
    const char *self = network_scope(network, scope, "attention.self"), *sum = NULL;
    if (positions->by_query) {
        const char *vectors = position_vectors(network, positions, self, "key_proj", "pos_key_proj");
        sum = look_up(network, self, queries, vectors, positions->by_query);
    }
    if (positions->by_key) {
        const char *vectors = position_vectors(network, positions, self, "query_proj", "pos_query_proj");
        const char *scores = look_up(network, self, keys, vectors, positions->by_key);
        scores = network_transpose(network, self, scores, swap, 4);
        sum = sum ? network_apply(network, self, "Add", sum, scores) : scores;
    }
    return network_apply(network, self, "Div", sum, scale);
}

const char *deberta_convolve(Network *network, const char *input, const char *attended)
{
    static const int64_t swap[3] = {0, 2, 1};
    const HuggingFaceConfig *config = network->config;
    const DebertaConfig *deberta = &config->deberta;
    const char *scope = network_encoder_scope(network, "encoder.conv"), *conv = network_scope(network, scope, "conv");
    const Shape shape = {3, {config->hidden, config->hidden / deberta->kernel_groups, deberta->kernel}};
    const char *inputs[3] = {network_transpose(network, conv, input, swap, 3),
                             network_parameter(network, network_scope(network, conv, "weight"), &shape, FILL_NORMAL),
                             network_vector(network, conv, "bias", FILL_ZEROS, config->hidden)};
    Onnx__NodeProto *node = onnx_builder_node(&network->builder, conv, "Conv", inputs, 3);
    const int64_t edge = (deberta->kernel - 1) / 2;
    onnx_node_integers(&network->builder, node, "kernel_shape", &deberta->kernel, 1);
    onnx_node_integers(&network->builder, node, "pads", (const int64_t[]){edge, edge}, 2);
    onnx_node_integer(&network->builder, node, "group", deberta->kernel_groups);
    const char *mask = network_cast(
        network, scope, network_apply(network, scope, "Unsqueeze", network->inputs[1], network_list(network, scope, 2)),
        ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT);
    const char *x = network_transpose(network, conv, onnx_node_output(node), swap, 3);
    x = network_activation(network, scope, deberta->kernel_activation, network_apply(network, scope, "Mul", x, mask));
    x = network_norm(network, network_scope(network, scope, "LayerNorm"),
                     network_apply(network, scope, "Add", attended, x), config->hidden, config->norm_epsilon, true);
    return network_apply(network, scope, "Mul", x, mask);
}

/* ---- BERT's distances ---- */

/* Of tokens whose distance is query - key, or key - query if `back`: the row of the table. */
static const char *distance_rows(Network *network, const char *scope, bool back)
{
    const int64_t most = network->config->positions;
    int64_t *table = arena_new_array(&network->builder.arena, int64_t, (size_t)(2 * most - 1));
    for (int64_t i = 0; i < 2 * most - 1; i++) table[i] = back ? 2 * most - 2 - i : i;
    return encoder_relative(network, scope, table, most);
}

Distances distances_share(Network *network, const char *scope)
{
    const int kind = network->config->distances;
    return (Distances){.by_query = kind ? distance_rows(network, scope, false) : NULL,
                       .by_key = kind == 2 ? distance_rows(network, scope, true) : NULL};
}

const char *distance_scores(Network *network, const Distances *distances, const char *scope, const char *queries,
                            const char *keys)
{
    static const int64_t swap[2] = {1, 0}, swap_last[4] = {0, 1, 3, 2};
    const HuggingFaceConfig *config = network->config;
    const char *table = network_scope(network, scope, "distance_embedding");
    const char *vectors = network_matrix(network, table, 2 * config->positions - 1, config->hidden / config->heads);
    vectors = network_transpose(network, table, vectors, swap, 2);
    const char *sum = look_up(network, table, queries, vectors, distances->by_query);
    if (!distances->by_key) return sum;
    const char *scores = look_up(network, table, keys, vectors, distances->by_key);
    return network_apply(network, table, "Add", sum, network_transpose(network, table, scores, swap_last, 4));
}
