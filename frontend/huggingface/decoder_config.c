#include <math.h>
#include <string.h>

#include "frontend/huggingface/config_reading.h"

enum { MOST_DECODER_POSITIONS = 1 << 24, USUAL_UPPER_LAYERS = 28 };

static bool has(const HuggingFaceConfig *config, unsigned trait) { return config->type->form->traits & trait; }

/* T5's word says whether there is a gate too: "gated-gelu". */
static void read_activation(Reading *reading, HuggingFaceConfig *config)
{
    static const char gate[] = "gated-";
    const DecoderForm *form = config->type->form;
    const char *usual = form->usual_activation ? form->usual_activation : "silu";
    config->decoder.gated = !has(config, WITHOUT_GATE | BUCKETS);
    if (!has(config, BUCKETS)) {
        config->activation = reading_activation(reading, form->activation, usual);
        return;
    }
    const char *name = reading_text(reading, form->activation, usual);
    config->decoder.gated = strncmp(name, gate, strlen(gate)) == 0;
    if (config->decoder.gated) name += strlen(gate);
    if (config->decoder.gated && strcmp(name, "gelu") == 0) name = "gelu_new";
    config->activation = reading_activation_named(reading, form->activation, name);
    if (reading_activation(reading, "dense_act_fn", name) != config->activation ||
        reading_flag(reading, "is_gated_act", config->decoder.gated) != config->decoder.gated)
        reading_refuse(reading, form->activation, EXIT_BAD_INPUT, "remove dense_act_fn and is_gated_act",
                       "says another activation than dense_act_fn and is_gated_act");
}

static void read_sizes(Reading *reading, HuggingFaceConfig *config)
{
    const DecoderForm *form = config->type->form;
    DecoderConfig *own = &config->decoder;
    config->vocabulary = reading_size(reading, "vocab_size", 1, MOST_SIZE, -1);
    config->hidden = reading_size(reading, form->hidden, 1, MOST_SIZE, -1);
    config->layers = reading_size(reading, form->layers, 1, MOST_LAYERS, -1);
    config->heads = reading_size(reading, form->heads, 1, MOST_SIZE, -1);
    config->intermediate =
        reading_size(reading, form->intermediate, 1, MOST_SIZE, has(config, POSITION_TABLE) ? 4 * config->hidden : -1);
    config->positions = reading_size(reading, form->positions, 1, MOST_DECODER_POSITIONS,
                                     form->most_positions ? form->most_positions : -1);
    config->token_types = has(config, TYPED) ? reading_size(reading, "type_vocab_size", 0, MOST_SIZE,
                                                            config->type->family == FAMILY_NOMIC ? 2 : 1)
                                             : 0;
    config->embedding = config->hidden;
    config->norm_epsilon = reading_number(reading, reading->root, form->epsilon, form->norm_epsilon);
    config->initial_deviation = reading_number(reading, reading->root, "initializer_range", 0.02);
    read_activation(reading, config);
    config->padding = reading_size(reading, "pad_token_id", -1, MOST_SIZE, config->type->family == FAMILY_ROBERTA);
    config->ties_decoder = reading_flag(reading, "tie_word_embeddings", has(config, TIES));
    bool null = json_is_null(json_object_get(reading->root, "num_key_value_heads"));
    own->key_heads = config->heads;
    if (has(config, KEY_HEADS))
        own->key_heads = reading_size(reading, "num_key_value_heads", 1, config->heads,
                                      null || !form->key_heads ? config->heads : form->key_heads);
    own->head_width = config->hidden / config->heads;
    const char *width = has(config, KEY_HEADS) ? "head_dim" : form->width;
    if (width) {
        null = json_is_null(json_object_get(reading->root, width));
        own->head_width =
            reading_size(reading, width, 1, MOST_SIZE, null || !form->head_width ? own->head_width : form->head_width);
    } else if (config->hidden % config->heads)
        reading_refuse(reading, form->heads, EXIT_BAD_INPUT, NULL, "does not divide the hidden size");
    if (reading->ok && config->heads % own->key_heads)
        reading_refuse(reading, "num_key_value_heads", EXIT_BAD_INPUT, NULL, "does not divide the number of heads");
}

/* ---- Layers ---- */

static bool is_local(const HuggingFaceConfig *config, int64_t layer, int64_t period, int64_t upper)
{
    switch (config->type->form->windows) {
    case WINDOW_ALWAYS: return true;
    case WINDOW_UPPER: return layer >= upper;
    case WINDOW_PERIOD: return (layer + 1) % period != 0;
    case WINDOW_UNROTATED: return !config->decoder.rotates[layer];
    case WINDOW_MODERNBERT: return layer % period != 0;
    default: return false;
    }
}

static const json_t *array_of_layers(Reading *reading, const HuggingFaceConfig *config, const char *key)
{
    const json_t *array = reading_member(reading, reading->root, key);
    if (!array || json_array_size(array) == (size_t)config->layers) return array;
    reading_refuse(reading, key, EXIT_BAD_INPUT, NULL, "must be an array with an element for every layer");
    return NULL;
}

static void read_rotating_layers(Reading *reading, HuggingFaceConfig *config)
{
    DecoderConfig *own = &config->decoder;
    bool some = config->type->form->windows == WINDOW_UNROTATED;
    own->rotates = arena_new_array(reading->arena, bool, (size_t)config->layers);
    int64_t period = some ? reading_size(reading, "no_rope_layer_interval", 1, MOST_LAYERS, 4) : 0;
    const json_t *given = some ? array_of_layers(reading, config, "no_rope_layers") : NULL;
    for (int64_t i = 0; i < config->layers; i++) {
        const json_t *one = json_array_get(given, (size_t)i);
        own->rotates[i] = one ? json_integer_value(one) != 0 || json_is_true(one) : !some || (i + 1) % period != 0;
    }
}

/* Half of local_attention, which the library also writes as sliding_window: of encoders the distance that is still
 * seen. */
static void read_modernbert_window(Reading *reading, HuggingFaceConfig *config)
{
    int64_t half = reading_size(reading, "local_attention", 0, MOST_SIZE, config->type->form->window) / 2;
    half = reading_size(reading, "sliding_window", 0, MOST_SIZE, half);
    config->decoder.window = has(config, SEES_ALL) ? half + 1 : half;
    if (!config->decoder.window) reading_refuse(reading, "local_attention", EXIT_BAD_INPUT, NULL, "must be at least 2");
}

static void read_windows(Reading *reading, HuggingFaceConfig *config)
{
    const DecoderForm *form = config->type->form;
    DecoderConfig *own = &config->decoder;
    own->local = arena_new_array(reading->arena, bool, (size_t)config->layers);
    if (form->windows == WINDOW_NEVER) return;
    bool null = json_is_null(json_object_get(reading->root, "sliding_window"));
    if (form->windows == WINDOW_MODERNBERT)
        read_modernbert_window(reading, config);
    else
        own->window = reading_size(reading, "sliding_window", 1, INT32_MAX, null ? 0 : form->window);
    bool optional = form->windows == WINDOW_UPPER || form->windows == WINDOW_UNROTATED;
    if (optional && !reading_flag(reading, "use_sliding_window", false)) own->window = 0;
    int64_t upper = 0, period = form->period;
    if (form->windows == WINDOW_MODERNBERT)
        period = reading_size(reading, "global_attn_every_n_layers", 1, MOST_LAYERS, form->period);
    if (form->windows == WINDOW_UPPER)
        upper = reading_size(reading, "max_window_layers", 0, MOST_SIZE, USUAL_UPPER_LAYERS);
    if (form->local_theta > 0 && form->windows == WINDOW_PERIOD) { /* Gemma 3, which writes both and reads one */
        reading_member(reading, reading->root, "_sliding_window_pattern");
        period = reading_size(reading, "sliding_window_pattern", 1, MOST_LAYERS, form->period);
    }
    const json_t *kinds = form->windows == WINDOW_ALWAYS ? NULL : array_of_layers(reading, config, "layer_types");
    for (int64_t i = 0; i < config->layers; i++) {
        const char *kind = json_string_value(json_array_get(kinds, (size_t)i));
        own->local[i] = kinds ? kind && strcmp(kind, "sliding_attention") == 0 : is_local(config, i, period, upper);
        if (!kinds || own->local[i] || (kind && strcmp(kind, "full_attention") == 0)) continue;
        reading_refuse(reading, "layer_types", EXIT_UNSUPPORTED_OPERATOR, NULL,
                       "must hold full_attention and sliding_attention only");
        break;
    }
    for (int64_t i = 0; i < config->layers && !own->window; i++)
        if (own->local[i] && kinds) {
            reading_refuse(reading, "sliding_window", EXIT_BAD_INPUT, NULL,
                           "is missing or not in use, but layer_types has sliding_attention");
            return;
        }
    if (!own->window) memset(own->local, 0, (size_t)config->layers * sizeof *own->local);
}

/* ---- Attention ---- */

static double cap(Reading *reading, const char *key, double fallback)
{
    bool null = json_is_null(json_object_get(reading->root, key));
    return reading_number(reading, reading->root, key, null ? 0 : fallback);
}

static void read_attention(Reading *reading, HuggingFaceConfig *config)
{
    DecoderConfig *own = &config->decoder;
    bool biased = has(config, BIASED), neox = has(config, FUSED_HEADS), gemma2 = !has(config, NORMS_OF_HEADS);
    if (has(config, HAS_ATTENTION_BIAS) || neox) biased = reading_flag(reading, "attention_bias", biased);
    own->input_bias = biased || has(config, BIASED_INPUTS);
    own->output_bias = biased;
    own->mlp_bias = has(config, BIASED) && !has(config, BIASED_DOWN);
    if (has(config, HAS_MLP_BIAS)) own->mlp_bias = reading_flag(reading, "mlp_bias", false);
    own->down_bias = own->mlp_bias || has(config, BIASED_DOWN);
    own->norm_bias = !has(config, HAS_NORM_BIAS) || reading_flag(reading, "norm_bias", false);
    if (has(config, PARALLEL)) own->parallel = reading_flag(reading, "use_parallel_residual", true);
    own->scale = has(config, BUCKETS) ? 1 : 1 / sqrt((double)own->head_width);
    if (has(config, HAS_CAPS)) {
        own->scale = 1 / sqrt(reading_number(reading, reading->root, "query_pre_attn_scalar", 256));
        own->score_cap = cap(reading, "attn_logit_softcapping", gemma2 ? 50 : 0);
        own->logit_cap = cap(reading, "final_logit_softcapping", gemma2 ? 30 : 0);
        if (own->score_cap != 0 && !gemma2) /* the library reads it, and does not use it */
            reading_refuse(reading, "attn_logit_softcapping", EXIT_UNSUPPORTED_OPERATOR, "make it null",
                           "must be null for this kind of model");
        if (reading_flag(reading, "use_bidirectional_attention", false))
            reading_refuse(reading, "use_bidirectional_attention", EXIT_UNSUPPORTED_OPERATOR, NULL,
                           "decoders that see later tokens are not supported");
        if (!(own->scale > 0 && own->scale <= 1))
            reading_refuse(reading, "query_pre_attn_scalar", EXIT_BAD_INPUT, NULL, "must be at least 1");
    }
    if (has(config, POSITION_TABLE)) {
        if (!reading_flag(reading, "scale_attn_weights", true)) own->scale = 1;
        own->scale_by_layer = reading_flag(reading, "scale_attn_by_inverse_layer_idx", false);
        reading_flag(reading, "reorder_and_upcast_attn", false); /* the same in float32 */
    }
}

static double theta_of(Reading *reading, const json_t *rotary, double fallback)
{
    return rotary ? reading_number(reading, rotary, "rope_theta", fallback) : fallback;
}

static void read_rotary(Reading *reading, HuggingFaceConfig *config)
{
    static const char *const kinds[2] = {"full_attention", "sliding_attention"};
    const DecoderForm *form = config->type->form;
    const json_t *given = reading_member(reading, reading->root, "rope_parameters"),
                 *old = reading_member(reading, reading->root, "rope_scaling");
    RotaryConfig common = {.theta = form->theta,
                           .positions = config->positions,
                           .original = form->original ? form->original : config->positions};
    double partial = form->partial > 0 ? form->partial : 1, local = form->local_theta;
    if (form->traits & FUSED_HEADS) {
        common.theta = reading_number(reading, reading->root, "rotary_emb_base", common.theta);
        partial = reading_number(reading, reading->root, "rotary_pct", partial);
    } else {
        partial = reading_number(reading, reading->root, "partial_rotary_factor", partial);
    }
    bool modern = form->windows == WINDOW_MODERNBERT; /* whose name is global_rope_theta */
    if (!modern) common.theta = reading_number(reading, reading->root, "rope_theta", common.theta);
    if (local > 0 && !modern) local = reading_number(reading, reading->root, "rope_local_base_freq", local);
    common.original =
        reading_size(reading, "original_max_position_embeddings", 1, MOST_DECODER_POSITIONS, common.original);
    common.knows_original = form->original || json_object_get(reading->root, "original_max_position_embeddings");
    if (modern) {
        bool null = json_is_null(json_object_get(reading->root, "local_rope_theta"));
        common.theta = reading_number(reading, reading->root, "global_rope_theta", common.theta);
        local = reading_number(reading, reading->root, "local_rope_theta", null ? common.theta : local);
        if (null) local = theta_of(reading, reading_member(reading, given, kinds[0]), local);
    }
    if (local > 0 && json_object_get(old, "type") && !json_object_get(old, "rope_type"))
        reading_refuse(reading, "rope_scaling.type", EXIT_UNSUPPORTED_OPERATOR, "write rope_type in its place",
                       "is a name that transformers does not read for this kind of model");
    for (int i = 0; i < 2; i++) {
        RotaryConfig *rotary = &config->decoder.rotary[i];
        const json_t *own = local > 0 ? reading_member(reading, given, kinds[i]) : given;
        if (old && (i == 0 || local == 0 || modern)) own = old;
        *rotary = common;
        if (i && local > 0) rotary->theta = local;
        rotary->partial = partial;
        rotary->width = config->decoder.head_width;
        rotary_config_read(reading, own,
                           local > 0 && given ? arena_format(reading->arena, "rope_parameters.%s.", kinds[i])
                           : old              ? "rope_scaling."
                                              : "rope_parameters.",
                           rotary);
        if (reading->ok && form->partial == 0 && rotary->width != config->decoder.head_width)
            reading_refuse(reading, "partial_rotary_factor", EXIT_UNSUPPORTED_OPERATOR, "remove it",
                           "must be 1 for this kind of model, which turns whole heads");
        if (reading->ok && (form->traits & CHOOSES_POSITIONS) && rotary->kind != ROTARY_DEFAULT)
            reading_refuse(reading, old ? "rope_scaling" : "rope_parameters", EXIT_UNSUPPORTED_OPERATOR, "remove it",
                           "transformers does not stretch the positions of this kind of model, whatever it says");
        if (local == 0) {
            config->decoder.rotary[1] = *rotary;
            break;
        }
    }
    if (local > 0 && given) reading_refuse_unknown(reading, given, "rope_parameters.");
}

/* ---- Encoders ---- */

static void read_esm(Reading *reading, HuggingFaceConfig *config)
{
    DecoderConfig *own = &config->decoder;
    const char *kind = reading_text(reading, "position_embedding_type", "absolute");
    own->absolute = strcmp(kind, "rotary") != 0;
    own->embedded_norm = reading_flag(reading, "emb_layer_norm_before", false);
    own->token_dropout = reading_flag(reading, "token_dropout", false);
    reading_member(reading, reading->root, "rope_theta"); /* of rotary positions only */
    own->mask_token = reading_size(reading, "mask_token_id", 0, MOST_SIZE, own->token_dropout ? -1 : 0);
    reading_member(reading, reading->root, "vocab_list"); /* of models that fold, as esmfold_config */
    reading_member(reading, reading->root, "esmfold_config");
    if (strcmp(kind, "absolute") != 0 && strcmp(kind, "rotary") != 0)
        reading_refuse(reading, "position_embedding_type", EXIT_UNSUPPORTED_OPERATOR, NULL,
                       arena_format(reading->arena, "'%.100s' is not supported, only 'absolute' and 'rotary'", kind));
    if (config->activation != ACTIVATION_GELU)
        reading_refuse(reading, "hidden_act", EXIT_UNSUPPORTED_OPERATOR, NULL, "must be gelu: ESM has no other");
    if (reading_flag(reading, "is_folding_model", false))
        reading_refuse(reading, "is_folding_model", EXIT_UNSUPPORTED_OPERATOR, NULL,
                       "models that fold proteins are not supported");
}

static void read_prediction(Reading *reading, HuggingFaceConfig *config)
{
    static const char *const words[][3] = {{"cls", "mean", NULL}, {"bos", "mean", "late"}};
    PredictionConfig *own = &config->prediction;
    bool euro = config->type->family == FAMILY_EUROBERT;
    const char *word = reading_text(reading, "classifier_pooling", euro ? "late" : "cls");
    int pooling = 0;
    while (pooling < 3 && words[euro][pooling] && strcmp(word, words[euro][pooling]) != 0) pooling++;
    if (pooling == 3 || !words[euro][pooling])
        reading_refuse(reading, "classifier_pooling", EXIT_BAD_INPUT, NULL,
                       euro ? "must be bos, mean or late" : "must be cls or mean");
    own->pooling = (Pooling)pooling;
    own->activation = reading_activation(reading, "classifier_activation", "gelu");
    own->classifier_bias = euro || reading_flag(reading, "classifier_bias", false);
    own->decoder_bias = euro ? config->decoder.mlp_bias : reading_flag(reading, "decoder_bias", true);
}

void decoder_config_read(Reading *reading, HuggingFaceConfig *config)
{
    read_sizes(reading, config);
    if (!reading->ok) return;
    read_rotating_layers(reading, config);
    read_windows(reading, config);
    read_attention(reading, config);
    if (has(config, CHOOSES_POSITIONS)) read_esm(reading, config);
    if (has(config, BUCKETS)) {
        config->decoder.buckets = reading_size(reading, "relative_attention_num_buckets", 4, 1 << 16, 32);
        config->decoder.most_distance = reading_size(reading, "relative_attention_max_distance", 4, 1 << 20, 128);
        if (config->decoder.most_distance <= config->decoder.buckets / 4)
            reading_refuse(reading, "relative_attention_max_distance", EXIT_BAD_INPUT, NULL,
                           "must be greater than a quarter of relative_attention_num_buckets");
    } else if (!has(config, POSITION_TABLE) && !config->decoder.absolute) {
        read_rotary(reading, config);
    }
    if (has(config, PREDICTION_HEAD) || config->type->family == FAMILY_EUROBERT) read_prediction(reading, config);
    if (reading_flag(reading, "rope_interleaved", false))
        reading_refuse(reading, "rope_interleaved", EXIT_UNSUPPORTED_OPERATOR, NULL, "must be false");
}
