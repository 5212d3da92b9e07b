#include <math.h>
#include <string.h>

#include "frontend/huggingface/config_reading.h"

enum { MOST_DECODER_POSITIONS = 1 << 24, USUAL_UPPER_LAYERS = 28 };

static bool has(const HuggingFaceConfig *config, unsigned trait) { return config->type->form->traits & trait; }

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
    config->positions = reading_size(reading, form->positions, 1, MOST_DECODER_POSITIONS, -1);
    config->embedding = config->hidden;
    config->norm_epsilon = reading_number(reading, reading->root, form->epsilon, form->norm_epsilon);
    config->initial_deviation = reading_number(reading, reading->root, "initializer_range", 0.02);
    config->activation = reading_activation(reading, form->activation, "silu");
    config->padding = reading_size(reading, "pad_token_id", -1, MOST_SIZE, 0);
    config->ties_decoder = reading_flag(reading, "tie_word_embeddings", has(config, TIES));
    bool null = json_is_null(json_object_get(reading->root, "num_key_value_heads"));
    own->key_heads = config->heads;
    if (has(config, KEY_HEADS))
        own->key_heads = reading_size(reading, "num_key_value_heads", 1, config->heads,
                                      null || !form->key_heads ? config->heads : form->key_heads);
    own->head_width = config->hidden / config->heads;
    if (has(config, KEY_HEADS)) {
        null = json_is_null(json_object_get(reading->root, "head_dim"));
        own->head_width = reading_size(reading, "head_dim", 1, MOST_SIZE,
                                       null || !form->head_width ? own->head_width : form->head_width);
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

static void read_windows(Reading *reading, HuggingFaceConfig *config)
{
    const DecoderForm *form = config->type->form;
    DecoderConfig *own = &config->decoder;
    own->local = arena_new_array(reading->arena, bool, (size_t)config->layers);
    if (form->windows == WINDOW_NEVER) return;
    bool null = json_is_null(json_object_get(reading->root, "sliding_window"));
    own->window = reading_size(reading, "sliding_window", 1, INT32_MAX, null ? 0 : form->window);
    bool optional = form->windows == WINDOW_UPPER || form->windows == WINDOW_UNROTATED;
    if (optional && !reading_flag(reading, "use_sliding_window", false)) own->window = 0;
    int64_t upper = 0, period = form->period;
    if (form->windows == WINDOW_UPPER)
        upper = reading_size(reading, "max_window_layers", 0, MOST_SIZE, USUAL_UPPER_LAYERS);
    if (form->windows == WINDOW_PERIOD) {
        period = reading_size(reading, "_sliding_window_pattern", 1, MOST_LAYERS, form->period);
        period = reading_size(reading, "sliding_window_pattern", 1, MOST_LAYERS, period);
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
    own->mlp_bias = has(config, BIASED);
    if (has(config, HAS_MLP_BIAS)) own->mlp_bias = reading_flag(reading, "mlp_bias", false);
    if (has(config, PARALLEL)) own->parallel = reading_flag(reading, "use_parallel_residual", true);
    own->scale = 1 / sqrt((double)own->head_width);
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

static void read_rotary(Reading *reading, HuggingFaceConfig *config)
{
    static const char *const kinds[2] = {"full_attention", "sliding_attention"};
    const DecoderForm *form = config->type->form;
    const json_t *given = reading_member(reading, reading->root, "rope_parameters"),
                 *old = reading_member(reading, reading->root, "rope_scaling");
    RotaryConfig common = {.theta = form->theta,
                           .positions = config->positions,
                           .original = form->original ? form->original : config->positions};
    double partial = form->traits & FUSED_HEADS ? 0.25 : 1, local = form->local_theta;
    common.theta = reading_number(reading, reading->root, "rotary_emb_base", common.theta);
    common.theta = reading_number(reading, reading->root, "rope_theta", common.theta);
    partial = reading_number(reading, reading->root, "rotary_pct", partial);
    partial = reading_number(reading, reading->root, "partial_rotary_factor", partial);
    if (local > 0) local = reading_number(reading, reading->root, "rope_local_base_freq", local);
    common.original =
        reading_size(reading, "original_max_position_embeddings", 1, MOST_DECODER_POSITIONS, common.original);
    for (int i = 0; i < 2; i++) {
        RotaryConfig *rotary = &config->decoder.rotary[i];
        const json_t *own = local > 0 ? reading_member(reading, given, kinds[i]) : given;
        if (old && (i == 0 || local == 0)) own = old;
        *rotary = common;
        if (i && local > 0) rotary->theta = local;
        rotary->partial = partial;
        rotary->width = config->decoder.head_width;
        rotary_config_read(reading, own,
                           local > 0 && given ? arena_format(reading->arena, "rope_parameters.%s.", kinds[i])
                           : old              ? "rope_scaling."
                                              : "rope_parameters.",
                           rotary);
        if (local == 0) {
            config->decoder.rotary[1] = *rotary;
            break;
        }
    }
    if (local > 0 && given) reading_refuse_unknown(reading, given, "rope_parameters.");
}

/* Dropout's own options say what is dropped, and `pretraining_tp` how the library computes the same. */
static void skip_others(Reading *reading)
{
    static const char *const unused[] = {"attention_dropout",     "attn_pdrop",
                                         "classifier_dropout",    "embd_pdrop",
                                         "hidden_dropout",        "n_ctx",
                                         "pretraining_tp",        "resid_pdrop",
                                         "rope_interleaved",      "summary_activation",
                                         "summary_first_dropout", "summary_proj_to_labels",
                                         "summary_type",          "summary_use_proj"};
    for (size_t i = 0; i < sizeof unused / sizeof *unused; i++) reading_member(reading, reading->root, unused[i]);
    if (reading_flag(reading, "rope_interleaved", false))
        reading_refuse(reading, "rope_interleaved", EXIT_UNSUPPORTED_OPERATOR, NULL, "must be false");
}

void decoder_config_read(Reading *reading, HuggingFaceConfig *config)
{
    read_sizes(reading, config);
    if (!reading->ok) return;
    read_rotating_layers(reading, config);
    read_windows(reading, config);
    read_attention(reading, config);
    if (!has(config, POSITION_TABLE)) read_rotary(reading, config);
    skip_others(reading);
}
