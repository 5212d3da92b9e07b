#include "frontend/huggingface/config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SIZE = 1 << 24, MOST_LAYERS = 10000, MOST_POSITIONS = 1 << 20, MOST_LABELS = 1 << 20 };

static const ModelType types[] = {
    {"bert", FAMILY_BERT, "Bert", "bert"},
    {"roberta", FAMILY_ROBERTA, "Roberta", "roberta"},
    {"xlm-roberta", FAMILY_ROBERTA, "XLMRoberta", "roberta"},
    {"camembert", FAMILY_ROBERTA, "Camembert", "roberta"},
    {"distilbert", FAMILY_DISTILBERT, "DistilBert", "distilbert"},
    {"electra", FAMILY_ELECTRA, "Electra", "electra"},
    {"albert", FAMILY_ALBERT, "Albert", "albert"},
    {"mpnet", FAMILY_MPNET, "MPNet", "mpnet"},
    {"modernbert", FAMILY_MODERNBERT, "ModernBert", "model"},
    {"deberta-v2", FAMILY_DEBERTA, "DebertaV2", "deberta"},
};

static const struct {
    const char *name;
    Activation activation;
} activations[] = {
    {"gelu", ACTIVATION_GELU},           {"gelu_python", ACTIVATION_GELU},
    {"gelu_new", ACTIVATION_GELU_TANH},  {"gelu_pytorch_tanh", ACTIVATION_GELU_TANH},
    {"gelu_fast", ACTIVATION_GELU_TANH}, {"relu", ACTIVATION_RELU},
    {"silu", ACTIVATION_SILU},           {"swish", ACTIVATION_SILU},
    {"tanh", ACTIVATION_TANH},
};

/* The state of reading; problems are collected. */
typedef struct Reading {
    JsonReader reader;
    const json_t *root;
    Arena *arena;
    bool ok;
} Reading;

static void refuse(Reading *reading, const char *key, int exit_code, const char *hint, const char *problem)
{
    Place place = {.file = reading->reader.file, .object = key};
    reading->ok = diagnostics_error(reading->reader.diagnostics, exit_code, place, hint, "%s", problem);
}

/* As in the library, a member that is null counts as absent. */
static const json_t *member(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

/* `fallback` below 0: the member is required. */
static int64_t size(Reading *reading, const char *key, int64_t least, int64_t most, int64_t fallback)
{
    int64_t value = fallback;
    if (!member(reading->root, key)) {
        if (fallback < 0) refuse(reading, key, EXIT_BAD_INPUT, NULL, "is missing");
        return fallback < 0 ? least : fallback;
    }
    if (!json_get_integer(reading->reader, reading->root, NULL, key, &value)) {
        reading->ok = false;
        return least;
    }
    if (value >= least && value <= most) return value;
    refuse(reading, key, EXIT_BAD_INPUT, NULL,
           arena_format(reading->arena, "must be from %lld to %lld", (long long)least, (long long)most));
    return least;
}

static double number(Reading *reading, const json_t *object, const char *key, double fallback)
{
    double value = fallback;
    if (!member(object, key)) return fallback;
    if (!json_get_number(reading->reader, object, NULL, key, &value)) {
        reading->ok = false;
        return fallback;
    }
    if (value >= 0 && value <= 1e30) return value;
    refuse(reading, key, EXIT_BAD_INPUT, NULL, "must be from 0 to 1e30");
    return fallback;
}

static bool flag(Reading *reading, const char *key, bool fallback)
{
    const json_t *value = member(reading->root, key);
    if (!value) return fallback;
    if (!json_is_boolean(value)) refuse(reading, key, EXIT_BAD_INPUT, NULL, "must be true or false");
    return json_is_true(value);
}

static const char *text(Reading *reading, const char *key, const char *fallback)
{
    const json_t *value = member(reading->root, key);
    if (!value) return fallback;
    if (json_is_string(value)) return json_string_value(value);
    refuse(reading, key, EXIT_BAD_INPUT, NULL, "must be a string");
    return fallback;
}

static Activation activation(Reading *reading, const char *key, const char *fallback)
{
    const char *name = text(reading, key, fallback), *known = "";
    for (size_t i = 0; i < sizeof activations / sizeof *activations; i++) {
        if (strcmp(activations[i].name, name) == 0) return activations[i].activation;
        known = arena_format(reading->arena, "%s%s%s", known, i ? ", " : "", activations[i].name);
    }
    refuse(reading, key, EXIT_UNSUPPORTED_OPERATOR, arena_format(reading->arena, "there are %s", known),
           arena_format(reading->arena, "the activation '%.100s' is not supported", name));
    return ACTIVATION_GELU;
}

static const ModelType *model_type(Reading *reading)
{
    const char *name = text(reading, "model_type", NULL), *known = "";
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (name && strcmp(types[i].name, name) == 0) return &types[i];
        known = arena_format(reading->arena, "%s%s%s", known, i ? ", " : "", types[i].name);
    }
    const char *hint = arena_format(reading->arena, "supported: %s; export other models to ONNX", known);
    if (name)
        refuse(reading, "model_type", EXIT_UNSUPPORTED_OPERATOR, hint,
               arena_format(reading->arena, "skycc does not support the architecture '%.100s'", name));
    else if (reading->ok)
        refuse(reading, "model_type", EXIT_BAD_INPUT, hint, "is missing");
    return NULL;
}

/* ---- What all have, and what some have ---- */

static int64_t count_labels(Reading *reading)
{
    const json_t *names = member(reading->root, "id2label");
    if (!names) return size(reading, "num_labels", 1, MOST_LABELS, 2);
    size_t count = json_object_size(names);
    if (!json_is_object(names) || count == 0 || count > MOST_LABELS) {
        refuse(reading, "id2label", EXIT_BAD_INPUT, NULL, "must be an object with a name for every label");
        return 2;
    }
    return (int64_t)count;
}

static void read_head(Reading *reading, HuggingFaceConfig *config)
{
    const json_t *list = member(reading->root, "architectures");
    const char *name = json_string_value(json_array_get(list, 0));
    config->head.kind = HEAD_NONE;
    if (!name) return;
    config->architecture = arena_string(reading->arena, name);
    size_t length = strlen(config->type->class_prefix);
    bool own = strncmp(name, config->type->class_prefix, length) == 0;
    config->head.kind = own ? head_of_class(name + length) : HEAD_FROM_FOLDER;
    /* ELECTRA is trained to detect replaced tokens: it is not a language model. */
    if (config->type->family == FAMILY_ELECTRA && own && strcmp(name + length, "ForPreTraining") == 0)
        config->head.kind = HEAD_FROM_FOLDER;
    if (config->head.kind == HEAD_SEQUENCE || config->head.kind == HEAD_TOKENS) {
        config->head.labels = count_labels(reading);
        const char *problem = text(reading, "problem_type", "");
        config->head.several = strcmp(problem, "multi_label_classification") == 0 && config->head.kind == HEAD_SEQUENCE;
        if (config->head.kind == HEAD_SEQUENCE && config->head.labels == 1 &&
            (!*problem || strcmp(problem, "regression") == 0))
            config->head.kind = HEAD_REGRESSION;
    }
}

static void read_common(Reading *reading, HuggingFaceConfig *config)
{
    bool distil = config->type->family == FAMILY_DISTILBERT, modern = config->type->family == FAMILY_MODERNBERT;
    config->vocabulary = size(reading, "vocab_size", 1, MOST_SIZE, -1);
    config->hidden = size(reading, distil ? "dim" : "hidden_size", 1, MOST_SIZE, -1);
    config->layers = size(reading, distil ? "n_layers" : "num_hidden_layers", 1, MOST_LAYERS, -1);
    config->heads = size(reading, distil ? "n_heads" : "num_attention_heads", 1, MOST_SIZE, -1);
    config->intermediate = size(reading, distil ? "hidden_dim" : "intermediate_size", 1, MOST_SIZE, -1);
    config->positions = size(reading, "max_position_embeddings", 1, MOST_POSITIONS, modern ? 8192 : 512);
    config->token_types =
        distil || modern || config->type->family == FAMILY_MPNET
            ? 0
            : size(reading, "type_vocab_size", 0, MOST_SIZE, config->type->family == FAMILY_DEBERTA ? 0 : 2);
    config->embedding = size(reading, "embedding_size", 1, MOST_SIZE,
                             config->type->family == FAMILY_ALBERT    ? 128
                             : config->type->family == FAMILY_ELECTRA ? 128
                                                                      : config->hidden);
    config->norm_epsilon =
        number(reading, reading->root, modern ? "norm_eps" : "layer_norm_eps", modern ? 1e-5 : 1e-12);
    if (config->type->family == FAMILY_DEBERTA && !member(reading->root, "layer_norm_eps")) config->norm_epsilon = 1e-7;
    if (distil) config->norm_epsilon = 1e-12;
    config->initial_deviation = number(reading, reading->root, "initializer_range", 0.02);
    config->activation = activation(reading,
                                    distil   ? "activation"
                                    : modern ? "hidden_activation"
                                             : "hidden_act",
                                    config->type->family == FAMILY_ALBERT ? "gelu_new" : "gelu");
    bool pads_with_one = config->type->family == FAMILY_ROBERTA || config->type->family == FAMILY_MPNET;
    config->padding = size(reading, "pad_token_id", 0, MOST_SIZE, pads_with_one);
    if (config->type->family == FAMILY_MPNET) config->padding = 1; /* whatever the file says */
    config->ties_decoder = flag(reading, "tie_word_embeddings", true);
    if (reading->ok && config->hidden % config->heads)
        refuse(reading, distil ? "n_heads" : "num_attention_heads", EXIT_BAD_INPUT, NULL,
               "does not divide the hidden size");
}

static void refuse_variants(Reading *reading, const HuggingFaceConfig *config)
{
    if (member(reading->root, "quantization_config"))
        refuse(reading, "quantization_config", EXIT_UNSUPPORTED_OPERATOR, "import the folder of the original weights",
               "quantised weights are not supported");
    if (member(reading->root, "auto_map"))
        refuse(reading, "auto_map", EXIT_UNSUPPORTED_OPERATOR,
               "if the model is the library's own all the same, remove auto_map",
               "the folder computes by code of its own, which skycc does not run");
    const char *kind = text(reading, "position_embedding_type", "absolute");
    if (strcmp(kind, "absolute") != 0)
        refuse(reading, "position_embedding_type", EXIT_UNSUPPORTED_OPERATOR, NULL,
               arena_format(reading->arena, "'%.100s' is not supported, only 'absolute'", kind));
    if (flag(reading, "is_decoder", false) || flag(reading, "add_cross_attention", false))
        refuse(reading, "is_decoder", EXIT_UNSUPPORTED_OPERATOR, "encoders can be imported",
               "decoders are not supported");
    int64_t width = config->hidden / config->heads;
    if (config->type->family == FAMILY_DEBERTA && size(reading, "attention_head_size", 1, MOST_SIZE, width) != width)
        refuse(reading, "attention_head_size", EXIT_UNSUPPORTED_OPERATOR, NULL,
               "must be the hidden size divided by the number of heads: other sizes are not supported");
}

static double theta(Reading *reading, const char *kind, const char *old_key, double fallback)
{
    const json_t *rotary = member(member(reading->root, "rope_parameters"), kind);
    fallback = number(reading, reading->root, old_key, fallback);
    const char *type = json_string_value(member(rotary, "rope_type"));
    if ((type && strcmp(type, "default") != 0) || member(reading->root, "rope_scaling"))
        refuse(reading, "rope_parameters", EXIT_UNSUPPORTED_OPERATOR, NULL,
               "scaled rotary positions are not supported");
    return rotary ? number(reading, rotary, "rope_theta", fallback) : fallback;
}

static void read_modernbert(Reading *reading, HuggingFaceConfig *config)
{
    ModernBertConfig *own = &config->modernbert;
    const json_t *kinds = member(reading->root, "layer_types");
    int64_t every = size(reading, "global_attn_every_n_layers", 1, MOST_LAYERS, 3);
    own->global = arena_new_array(reading->arena, bool, (size_t)config->layers);
    if (kinds && json_array_size(kinds) != (size_t)config->layers) {
        refuse(reading, "layer_types", EXIT_BAD_INPUT, NULL, "must be an array with a word for every layer");
        kinds = NULL;
    }
    for (int64_t i = 0; i < config->layers; i++) {
        const char *kind = json_string_value(json_array_get(kinds, (size_t)i));
        own->global[i] = kind ? strcmp(kind, "full_attention") == 0 : i % every == 0;
        if (kinds && (!kind || (!own->global[i] && strcmp(kind, "sliding_attention") != 0))) {
            refuse(reading, "layer_types", EXIT_BAD_INPUT, NULL, "must hold full_attention and sliding_attention only");
            break;
        }
    }
    own->window = size(reading, "local_attention", 0, MOST_SIZE, 128) / 2;
    own->window = size(reading, "sliding_window", 0, MOST_SIZE, own->window); /* the library's name of half of it */
    own->global_theta = theta(reading, "full_attention", "global_rope_theta", 160000);
    bool as_global = json_is_null(json_object_get(reading->root, "local_rope_theta"));
    own->local_theta = theta(reading, "sliding_attention", "local_rope_theta", as_global ? own->global_theta : 10000);
    own->attention_bias = flag(reading, "attention_bias", false);
    own->mlp_bias = flag(reading, "mlp_bias", false);
    own->norm_bias = flag(reading, "norm_bias", false);
    own->classifier_bias = flag(reading, "classifier_bias", false);
    own->decoder_bias = flag(reading, "decoder_bias", true);
    own->classifier_activation = activation(reading, "classifier_activation", "gelu");
    own->mean_pooling = strcmp(text(reading, "classifier_pooling", "cls"), "mean") == 0;
    if (reading->ok && config->hidden / config->heads % 2)
        refuse(reading, "num_attention_heads", EXIT_BAD_INPUT, NULL, "rotary positions need heads of an even width");
}

/* "pos_att_type" is an array, or a text with bars between, in which the library reads capitals as small letters. */
static bool attends(Reading *reading, const char *kind)
{
    const json_t *list = member(reading->root, "pos_att_type");
    if (json_is_string(list)) return strcasestr(json_string_value(list), kind) != NULL;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *item = json_string_value(json_array_get(list, i));
        if (item && strcmp(item, kind) == 0) return true;
    }
    return false;
}

static void read_deberta(Reading *reading, HuggingFaceConfig *config)
{
    DebertaConfig *own = &config->deberta;
    own->relative = flag(reading, "relative_attention", false);
    own->normalized = strstr(text(reading, "norm_rel_ebd", "none"), "layer_norm") != NULL;
    own->shared_keys = flag(reading, "share_att_key", false);
    own->content_to_position = attends(reading, "c2p");
    own->position_to_content = attends(reading, "p2c");
    own->absolute = flag(reading, "position_biased_input", true);
    own->legacy_head = flag(reading, "legacy", true);
    own->reach = size(reading, "max_relative_positions", -1, MOST_POSITIONS, 0);
    if (own->reach < 1) own->reach = config->positions;
    own->buckets = size(reading, "position_buckets", -1, MOST_POSITIONS, 0);
    if (own->buckets < 1) own->buckets = 0;
    own->kernel = size(reading, "conv_kernel_size", 0, 1 << 10, 0);
    own->kernel_groups = size(reading, "conv_groups", 1, 1 << 10, 1);
    own->kernel_activation = activation(reading, "conv_act", "tanh");
    own->pooler_activation = activation(reading, "pooler_hidden_act", "gelu");
    if (size(reading, "pooler_hidden_size", 1, MOST_SIZE, config->hidden) != config->hidden)
        refuse(reading, "pooler_hidden_size", EXIT_UNSUPPORTED_OPERATOR, NULL,
               "must be the hidden size: other sizes are not supported");
    if (own->kernel && own->kernel % 2 == 0)
        refuse(reading, "conv_kernel_size", EXIT_UNSUPPORTED_OPERATOR, NULL,
               "must be odd: even sizes are not supported");
    if (own->buckets && (own->buckets < 4 || own->reach < own->buckets))
        refuse(reading, "position_buckets", EXIT_BAD_INPUT, NULL,
               "must be at least 4, and at most max_relative_positions");
}

static void read_family(Reading *reading, HuggingFaceConfig *config)
{
    switch (config->type->family) {
    case FAMILY_ALBERT:
        config->layer_groups = size(reading, "num_hidden_groups", 1, config->layers, 1);
        config->layers_per_group = size(reading, "inner_group_num", 1, 1 << 8, 1);
        break;
    case FAMILY_MPNET:
        config->relative_buckets = size(reading, "relative_attention_num_buckets", 4, 1 << 16, 32);
        break;
    case FAMILY_MODERNBERT: read_modernbert(reading, config); break;
    case FAMILY_DEBERTA: read_deberta(reading, config); break;
    default: break;
    }
}

static bool take(HuggingFaceConfig *config, json_t *json, const char *path, Arena *arena, Diagnostics *diagnostics)
{
    Reading reading = {{path, diagnostics}, json, arena, true};
    config->json = json;
    if (!json_is_object(json)) return json_refuse(reading.reader, NULL, "must be an object");
    config->type = model_type(&reading);
    if (!config->type) return false;
    read_common(&reading, config);
    if (!reading.ok) return false;
    refuse_variants(&reading, config);
    read_head(&reading, config);
    read_family(&reading, config);
    return reading.ok;
}

bool config_read(HuggingFaceConfig *config, const char *path, Arena *arena, Diagnostics *diagnostics)
{
    *config = (HuggingFaceConfig){0};
    json_t *json = json_read(path, diagnostics);
    return json && take(config, json, path, arena, diagnostics);
}

bool config_parse(HuggingFaceConfig *config, const char *source, const char *path, Arena *arena,
                  Diagnostics *diagnostics)
{
    *config = (HuggingFaceConfig){0};
    json_error_t error;
    json_t *json = json_loads(source, JSON_REJECT_DUPLICATES, &error);
    JsonReader reader = {path, diagnostics};
    return json ? take(config, json, path, arena, diagnostics) : json_refuse(reader, NULL, error.text);
}

void config_free(HuggingFaceConfig *config)
{
    json_decref(config->json);
    config->json = NULL;
}

const char *const *config_labels(const char *source, Arena *arena, size_t *count)
{
    json_t *root = json_loads(source, 0, NULL);
    const json_t *names = json_object_get(root, "id2label");
    *count = json_object_size(names);
    const char **labels = arena_new_array(arena, const char *, *count + 1);
    for (size_t i = 0; i < *count; i++) {
        char key[32];
        snprintf(key, sizeof key, "%zu", i);
        const char *name = json_string_value(json_object_get(names, key));
        labels[i] = arena_string(arena, name ? name : key);
    }
    json_decref(root);
    return labels;
}

/* ---- Writing ---- */

/* Whether the folder's labels have these names, in any order, or as many names as are needed. */
static bool has_labels(const json_t *root, int64_t labels, const char *const *names)
{
    if ((int64_t)json_object_size(json_object_get(root, "id2label")) != labels) return false;
    for (int64_t i = 0; names && i < labels; i++)
        if (!json_object_get(json_object_get(root, "label2id"), names[i])) return false;
    return true;
}

/* Without names, the library's generic ones are used if the number of labels is not the folder's. */
static void set_labels(json_t *root, int64_t labels, const char *const *given)
{
    if (has_labels(root, labels, given)) return;
    json_t *names = json_object(), *numbers = json_object();
    for (int64_t i = 0; i < labels; i++) {
        char generic[32], key[32];
        const char *name = given ? given[i] : generic;
        snprintf(generic, sizeof generic, "LABEL_%lld", (long long)i);
        snprintf(key, sizeof key, "%lld", (long long)i);
        json_object_set_new(names, key, json_string(name));
        json_object_set_new(numbers, name, json_integer(i));
    }
    json_object_set_new(root, "id2label", names);
    json_object_set_new(root, "label2id", numbers);
    json_object_del(root, "num_labels");
}

void config_print_json(const json_t *root, Buffer *buffer)
{
    JsonWriter json = {.buffer = buffer, .indent = 2};
    json_add_tree(&json, NULL, root);
    buffer_print(buffer, "\n");
}

void config_print(const HuggingFaceConfig *config, const Head *head, Buffer *buffer)
{
    json_t *root = json_copy(config->json);
    if (!root) memory_exhausted();
    char name[128];
    snprintf(name, sizeof name, "%s%s", config->type->class_prefix, head_class(head->kind));
    json_object_set_new(root, "architectures", json_pack("[s]", name));
    if (head->labels || head->kind == HEAD_QUESTION) set_labels(root, head->labels ? head->labels : 2, head->names);
    if (head->kind == HEAD_REGRESSION)
        json_object_set_new(root, "problem_type", json_string("regression"));
    else if (head->several)
        json_object_set_new(root, "problem_type", json_string("multi_label_classification"));
    else if (head->kind == HEAD_SEQUENCE && head->names)
        json_object_set_new(root, "problem_type", json_string("single_label_classification"));
    else if (head->kind == HEAD_SEQUENCE && head->labels != config->head.labels)
        json_object_del(root, "problem_type"); /* of another task */
    if (config->type->family == FAMILY_DEBERTA && head->kind == HEAD_MASKED)
        json_object_set_new(root, "legacy", json_boolean(config->deberta.legacy_head));
    for (int i = 0; i < 2; i++) {
        const char *key = i ? "torch_dtype" : "dtype"; /* the older name of the same */
        if (json_object_get(root, key)) json_object_set_new(root, key, json_string("float32"));
    }
    config_print_json(root, buffer);
    json_decref(root);
}
