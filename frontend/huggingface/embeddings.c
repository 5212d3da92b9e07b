/* Inputs and embeddings. */
#include "frontend/huggingface/encoder.h"

enum { LEAST_RELATIVE_POSITIONS = 4096 };

/* Whether positions are those of RoBERTa and MPNet, which count from the padding token's number on. */
static bool counts_tokens(const HuggingFaceConfig *config)
{
    return (config->type->family == FAMILY_ROBERTA || config->type->family == FAMILY_MPNET) &&
           (!config->type->form || config->decoder.absolute) && !config->distances;
}

int64_t encoder_most_positions(const HuggingFaceConfig *config)
{
    if (counts_tokens(config)) return config->positions - config->padding - 1;
    const RotaryConfig *rotary = &config->decoder.rotary[0];
    if (config->type->form)
        return rotary->kind == ROTARY_DYNAMIC ? (int64_t)((double)config->positions * rotary->factor)
                                              : config->positions;
    bool bounded = config->type->family != FAMILY_DEBERTA || config->deberta.absolute;
    return bounded || config->positions > LEAST_RELATIVE_POSITIONS ? config->positions : LEAST_RELATIVE_POSITIONS;
}

/* (1 - mask) * -3.4e38, as (batch, 1, 1, seq); of DeBERTa, in which padding sees every token alike and not the row's
 * tokens alone, as (batch, 1, seq, seq) */
static const char *additive_mask(Network *network, const char *scope)
{
    const char *mask =
        network_apply(network, scope, "Unsqueeze", network->inputs[1], network_list(network, scope, 1, 2));
    if (network->config->type->family == FAMILY_DEBERTA)
        mask = network_apply(
            network, scope, "Mul", mask,
            network_apply(network, scope, "Unsqueeze", network->inputs[1], network_list(network, scope, 1, 3)));
    mask = network_cast(network, scope, mask, ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT);
    const char *hidden = network_apply(network, scope, "Sub", network->one, mask);
    return network_apply(network, scope, "Mul", hidden, onnx_builder_float(&network->builder, scope, -3.40282347e38f));
}

/* 0 ... seq - 1, as (1, seq): the front of a constant, or of decoders, whose sequences are long, counted */
static const char *count_positions(Network *network, const char *scope)
{
    if (network->config->type->form && !counts_tokens(network->config)) {
        const char *range = network_apply(network, scope, "Range", network_integer(network, scope, 0),
                                          network_length(network, scope, network_integer(network, scope, 1)),
                                          network_integer(network, scope, 1));
        return network_apply(network, scope, "Unsqueeze", range, network_list(network, scope, 0));
    }
    const int64_t count = encoder_most_positions(network->config);
    int64_t *numbers = arena_new_array(&network->builder.arena, int64_t, (size_t)count);
    for (int64_t i = 0; i < count; i++) numbers[i] = i;
    const char *all = onnx_builder_integers(&network->builder, scope, numbers, &(Shape){2, {1, count}});
    const char *length = network_length(network, scope, network_list(network, scope, 1));
    const char *axis = network_list(network, scope, 1);
    return network_apply(network, scope, "Slice", all, network_list(network, scope, 0), length, axis, axis);
}

/* One token and its position; the decoder adds the inputs with what is kept of tokens before it. */
static void add_step_inputs(Network *network)
{
    static const char *const names[] = {"input_ids", "position"};
    const BuilderDimension dimensions[2] = {{1, NULL}, {1, NULL}};
    for (int i = 0; i < 2; i++)
        onnx_builder_input(&network->builder, names[i], ONNX__TENSOR_PROTO__DATA_TYPE__INT64, dimensions, 2);
    network->one = onnx_builder_float(&network->builder, network_encoder_scope(network, "embeddings"), 1);
    network->inputs[0] = names[0];
    network->positions = names[1];
}

void encoder_add_inputs(Network *network)
{
    if (network->room) {
        add_step_inputs(network);
        return;
    }
    static const char *const names[] = {"input_ids", "attention_mask", "token_type_ids"};
    const BuilderDimension dimensions[2] = {{0, "batch"}, {0, "seq"}};
    const char *scope = network_encoder_scope(network, "embeddings");
    for (int i = 0; i < (network->config->token_types > 1 ? 3 : 2); i++) {
        onnx_builder_input(&network->builder, names[i], ONNX__TENSOR_PROTO__DATA_TYPE__INT64, dimensions, 2);
        network->inputs[i] = names[i];
        if (!network->pairs) continue;
        const char *second = arena_format(&network->builder.arena, "%s_2", names[i]);
        onnx_builder_input(&network->builder, second, ONNX__TENSOR_PROTO__DATA_TYPE__INT64, dimensions, 2);
        Onnx__NodeProto *both =
            onnx_builder_node(&network->builder, scope, "Concat", (const char *const[]){names[i], second}, 2);
        onnx_node_integer(&network->builder, both, "axis", 0);
        network->inputs[i] = onnx_node_output(both);
    }
    network->one = onnx_builder_float(&network->builder, scope, 1);
    network->mask = additive_mask(network, scope);
    network->positions = count_positions(network, scope);
}

/* Positions of RoBERTa and MPNet, as in the library: padding tokens have the position of the padding id, other tokens
 * count up from it. Longer sequences than there are positions for do not broadcast, as in other models. */
static const char *counted_tokens(Network *network, const char *scope)
{
    const char *padding = network_integer(network, scope, network->config->padding);
    const char *equal = network_apply(network, scope, "Equal", network->inputs[0], padding);
    const char *token =
        network_cast(network, scope, network_apply(network, scope, "Not", equal), ONNX__TENSOR_PROTO__DATA_TYPE__INT64);
    const char *count = network_apply(network, scope, "CumSum", token, network_integer(network, scope, 1));
    const char *zeros = network_apply(network, scope, "Mul", network->positions, network_integer(network, scope, 0));
    return network_apply(network, scope, "Add", network_apply(network, scope, "Mul", count, token),
                         network_apply(network, scope, "Add", zeros, padding));
}

const char *encoder_add_positions(Network *network, const char *scope, const char *sum)
{
    const HuggingFaceConfig *config = network->config;
    const char *positions = counts_tokens(config) ? counted_tokens(network, scope) : network->positions;
    const char *rows = network_embedding(network, network_scope(network, scope, "position_embeddings"), positions,
                                         config->positions, config->embedding);
    return network_apply(network, scope, "Add", sum, rows);
}

/* If a table has one row, every token has that row. */
const char *encoder_add_types(Network *network, const char *scope, const char *sum)
{
    const HuggingFaceConfig *config = network->config;
    const char *table = network_scope(network, scope, "token_type_embeddings");
    const char *rows = config->token_types > 1 ? network_embedding(network, table, network->inputs[2],
                                                                   config->token_types, config->embedding)
                                               : network_matrix(network, table, 1, config->embedding);
    return network_apply(network, scope, "Add", sum, rows);
}

const char *encoder_embed(Network *network)
{
    const HuggingFaceConfig *config = network->config;
    const Family family = config->type->family;
    const char *scope = network_encoder_scope(network, "embeddings");
    bool projects = family == FAMILY_ALBERT || config->embedding != config->hidden, deberta = family == FAMILY_DEBERTA;
    const char *x = network_embedding(network, network_scope(network, scope, "word_embeddings"), network->inputs[0],
                                      config->vocabulary, config->embedding);
    if (config->token_types) x = encoder_add_types(network, scope, x);
    if (deberta ? config->deberta.absolute : !config->distances) x = encoder_add_positions(network, scope, x);
    if (deberta && projects)
        x = network_linear_without_bias(network, network_scope(network, scope, "embed_proj"), x, config->embedding,
                                        config->hidden);
    if (config->type->norms_first) return x;
    x = network_norm(network, network_scope(network, scope, "LayerNorm"), x,
                     deberta ? config->hidden : config->embedding, config->norm_epsilon, true);
    if (deberta) {
        const char *mask =
            network_apply(network, scope, "Unsqueeze", network->inputs[1], network_list(network, scope, 2));
        return network_apply(network, scope, "Mul", x,
                             network_cast(network, scope, mask, ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT));
    }
    if (!projects) return x;
    const char *projection = network_encoder_scope(
        network, family == FAMILY_ALBERT ? "encoder.embedding_hidden_mapping_in" : "embeddings_project");
    return network_linear(network, projection, x, config->embedding, config->hidden);
}

const char *encoder_relative(Network *network, const char *scope, const int64_t *table, int64_t most)
{
    static const int64_t swap[2] = {1, 0};
    const char *queries = network_transpose(network, scope, network->positions, swap, 2);
    const char *distance = network_apply(network, scope, "Sub", queries, network->positions);
    const char *place = network_apply(network, scope, "Add", distance, network_integer(network, scope, most - 1));
    return network_gather(network, scope, network_integers(network, scope, table, (size_t)(2 * most - 1)), place, 0);
}
