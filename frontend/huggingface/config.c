#include "frontend/huggingface/config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/huggingface/config_reading.h"

static const ModelType types[] = {
    {"bert", FAMILY_BERT, "Bert", "bert", NULL, false},
    {"roberta", FAMILY_ROBERTA, "Roberta", "roberta", NULL, false},
    {"xlm-roberta", FAMILY_ROBERTA, "XLMRoberta", "roberta", NULL, false},
    {"camembert", FAMILY_ROBERTA, "Camembert", "roberta", NULL, false},
    {"xlm-roberta-xl", FAMILY_ROBERTA, "XLMRobertaXL", "roberta", NULL, true},
    {"data2vec-text", FAMILY_ROBERTA, "Data2VecText", "data2vec_text", NULL, false},
    {"ernie", FAMILY_BERT, "Ernie", "ernie", NULL, false},
    {"distilbert", FAMILY_DISTILBERT, "DistilBert", "distilbert", NULL, false},
    {"electra", FAMILY_ELECTRA, "Electra", "electra", NULL, false},
    {"albert", FAMILY_ALBERT, "Albert", "albert", NULL, false},
    {"mpnet", FAMILY_MPNET, "MPNet", "mpnet", NULL, false},
    {"modernbert", FAMILY_MODERNBERT, "ModernBert", "model", &encoder_modernbert, false},
    {"deberta-v2", FAMILY_DEBERTA, "DebertaV2", "deberta", NULL, false},
    {"llama", FAMILY_DECODER, "Llama", "model", &decoder_llama, false},
    {"qwen2", FAMILY_DECODER, "Qwen2", "model", &decoder_qwen2, false},
    {"qwen3", FAMILY_DECODER, "Qwen3", "model", &decoder_qwen3, false},
    {"mistral", FAMILY_DECODER, "Mistral", "model", &decoder_mistral, false},
    {"gemma2", FAMILY_DECODER, "Gemma2", "model", &decoder_gemma2, false},
    {"gemma3_text", FAMILY_DECODER, "Gemma3Text", "model", &decoder_gemma3, false},
    {"phi3", FAMILY_DECODER, "Phi3", "model", &decoder_phi3, false},
    {"gpt2", FAMILY_DECODER, "GPT2", "transformer", &decoder_gpt2, false},
    {"gpt_neox", FAMILY_DECODER, "GPTNeoX", "gpt_neox", &decoder_gpt_neox, false},
    {"smollm3", FAMILY_DECODER, "SmolLM3", "model", &decoder_smollm3, false},
    {"modernbert-decoder", FAMILY_DECODER, "ModernBertDecoder", "model", &decoder_modernbert, false},
    {"eurobert", FAMILY_EUROBERT, "EuroBert", "model", &encoder_eurobert, false},
    {"nomic_bert", FAMILY_NOMIC, "NomicBert", "nomic_bert", &encoder_nomic, false},
    {"gte", FAMILY_GTE, "Gte", "gte", &encoder_gte, false},
    {"jina_embeddings_v3", FAMILY_ROBERTA, "JinaEmbeddingsV3", "roberta", &encoder_jina, false},
    {"esm", FAMILY_ROBERTA, "Esm", "esm", &encoder_esm, false},
    {"t5", FAMILY_T5, "T5", "transformer", &encoder_t5, false},
    {"mt5", FAMILY_T5, "MT5", "transformer", &encoder_mt5, false},
    {"umt5", FAMILY_T5, "UMT5", "transformer", &encoder_umt5, false},
};

static const ModelType *model_type(Reading *reading)
{
    const char *name = reading_text(reading, "model_type", NULL), *known = "";
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (name && strcmp(types[i].name, name) == 0) return &types[i];
        known = arena_format(reading->arena, "%s%s%s", known, i ? ", " : "", types[i].name);
    }
    const char *hint = arena_format(reading->arena, "supported: %s; export other models to ONNX", known);
    bool experts = json_object_get(reading->root, "num_experts") ||
                   json_object_get(reading->root, "num_local_experts") ||
                   json_object_get(reading->root, "n_routed_experts"),
         sees = json_object_get(reading->root, "vision_config") != NULL;
    if (name)
        reading_refuse(reading, "model_type", EXIT_UNSUPPORTED_OPERATOR, hint,
                       arena_format(reading->arena, "skycc does not support the architecture '%.100s'%s", name,
                                    experts ? ", a mixture of experts"
                                    : sees  ? ", a model of images and texts"
                                            : ""));
    else if (reading->ok)
        reading_refuse(reading, "model_type", EXIT_BAD_INPUT, hint, "is missing");
    return NULL;
}

/* ---- What all have, and what some have ---- */

static int64_t count_labels(Reading *reading)
{
    const json_t *names = reading_member(reading, reading->root, "id2label");
    if (!names) return reading_size(reading, "num_labels", 1, MOST_LABELS, 2);
    size_t count = json_object_size(names);
    if (!json_is_object(names) || count == 0 || count > MOST_LABELS) {
        reading_refuse(reading, "id2label", EXIT_BAD_INPUT, NULL, "must be an object with a name for every label");
        return 2;
    }
    return (int64_t)count;
}

static const char *class_name(Arena *arena, const ModelType *type, HeadKind kind)
{
    if (kind == HEAD_NEXT && type->form && type->form->lm_class) return type->form->lm_class;
    const char *suffix = head_class(kind);
    if (type->family == FAMILY_T5 && strcmp(suffix, "Model") == 0) suffix = "EncoderModel";
    return arena_format(arena, "%s%s", type->class_prefix, suffix);
}

static void read_head(Reading *reading, HuggingFaceConfig *config)
{
    const json_t *list = reading_member(reading, reading->root, "architectures");
    const char *name = json_string_value(json_array_get(list, 0));
    config->head.kind = HEAD_NONE;
    if (!name) return;
    config->architecture = arena_string(reading->arena, name);
    size_t length = strlen(config->type->class_prefix);
    bool own = strncmp(name, config->type->class_prefix, length) == 0;
    config->head.kind = own ? head_of_class(name + length) : HEAD_FROM_FOLDER;
    if (strcmp(name, class_name(reading->arena, config->type, HEAD_NEXT)) == 0) config->head.kind = HEAD_NEXT;
    /* ELECTRA is trained to detect replaced tokens: it is not a language model. */
    if (config->type->family == FAMILY_ELECTRA && own && strcmp(name + length, "ForPreTraining") == 0)
        config->head.kind = HEAD_FROM_FOLDER;
    if (config->head.kind == HEAD_SEQUENCE || config->head.kind == HEAD_TOKENS) {
        config->head.labels = count_labels(reading);
        const char *problem = reading_text(reading, "problem_type", "");
        config->head.several = strcmp(problem, "multi_label_classification") == 0 && config->head.kind == HEAD_SEQUENCE;
        if (config->head.kind == HEAD_SEQUENCE && config->head.labels == 1 &&
            (!*problem || strcmp(problem, "regression") == 0))
            config->head.kind = HEAD_REGRESSION;
    }
}

static void read_common(Reading *reading, HuggingFaceConfig *config)
{
    bool distil = config->type->family == FAMILY_DISTILBERT;
    config->vocabulary = reading_size(reading, "vocab_size", 1, MOST_SIZE, -1);
    config->hidden = reading_size(reading, distil ? "dim" : "hidden_size", 1, MOST_SIZE, -1);
    config->layers = reading_size(reading, distil ? "n_layers" : "num_hidden_layers", 1, MOST_LAYERS, -1);
    config->heads = reading_size(reading, distil ? "n_heads" : "num_attention_heads", 1, MOST_SIZE, -1);
    config->intermediate = reading_size(reading, distil ? "hidden_dim" : "intermediate_size", 1, MOST_SIZE, -1);
    config->positions = reading_size(reading, "max_position_embeddings", 1, MOST_POSITIONS, 512);
    config->token_types =
        distil || config->type->family == FAMILY_MPNET
            ? 0
            : reading_size(reading, "type_vocab_size", 0, MOST_SIZE, config->type->family == FAMILY_DEBERTA ? 0 : 2);
    config->embedding = reading_size(reading, "embedding_size", 1, MOST_SIZE,
                                     config->type->family == FAMILY_ALBERT    ? 128
                                     : config->type->family == FAMILY_ELECTRA ? 128
                                                                              : config->hidden);
    config->norm_epsilon = reading_number(reading, reading->root, "layer_norm_eps",
                                          config->type->family == FAMILY_DEBERTA ? 1e-7
                                          : config->type->norms_first            ? 1e-5
                                                                                 : 1e-12);
    if (distil) config->norm_epsilon = 1e-12;
    config->initial_deviation = reading_number(reading, reading->root, "initializer_range", 0.02);
    config->activation = reading_activation(reading, distil ? "activation" : "hidden_act",
                                            config->type->family == FAMILY_ALBERT ? "gelu_new" : "gelu");
    bool pads_with_one = config->type->family == FAMILY_ROBERTA || config->type->family == FAMILY_MPNET;
    config->padding = reading_size(reading, "pad_token_id", 0, MOST_SIZE, pads_with_one);
    if (config->type->family == FAMILY_MPNET) config->padding = 1; /* whatever the file says */
    config->ties_decoder = reading_flag(reading, "tie_word_embeddings", true);
    if (reading->ok && config->hidden % config->heads)
        reading_refuse(reading, distil ? "n_heads" : "num_attention_heads", EXIT_BAD_INPUT, NULL,
                       "does not divide the hidden size");
}

/* Of distances between tokens instead of positions (Shaw et al., "Self-attention with relative position
 * representations", 2018): scores of queries, or of queries and keys, with a vector for each. */
static void read_position_kind(Reading *reading, HuggingFaceConfig *config)
{
    static const char *const kinds[] = {"absolute", "relative_key", "relative_key_query"};
    const Family family = config->type->family;
    if (config->type->form && (config->type->form->traits & CHOOSES_POSITIONS)) return; /* has read it */
    bool knows = !config->type->form && (family == FAMILY_BERT || family == FAMILY_ROBERTA ||
                                         family == FAMILY_ELECTRA || family == FAMILY_ALBERT);
    const char *kind = reading_text(reading, "position_embedding_type", kinds[0]);
    while (config->distances < 3 && strcmp(kind, kinds[config->distances]) != 0) config->distances++;
    if (config->distances == 3 || (config->distances && !knows))
        reading_refuse(reading, "position_embedding_type", EXIT_UNSUPPORTED_OPERATOR, NULL,
                       arena_format(reading->arena, "'%.100s' is not supported, only %s", kind,
                                    knows ? "'absolute', 'relative_key' and 'relative_key_query'" : "'absolute'"));
}

static void refuse_variants(Reading *reading, HuggingFaceConfig *config)
{
    if (reading_member(reading, reading->root, "quantization_config"))
        reading_refuse(reading, "quantization_config", EXIT_UNSUPPORTED_OPERATOR,
                       "import the folder of the original weights", "quantised weights are not supported");
    if (reading_member(reading, reading->root, "auto_map"))
        reading_refuse(reading, "auto_map", EXIT_UNSUPPORTED_OPERATOR,
                       "if the model is the library's own all the same, remove auto_map",
                       "the folder computes by code of its own, which skycc does not run");
    read_position_kind(reading, config);
    if (json_object_size(reading_member(reading, reading->root, "pruned_heads")))
        reading_refuse(reading, "pruned_heads", EXIT_UNSUPPORTED_OPERATOR, NULL, "pruned heads are not supported");
    if (reading_flag(reading, "is_decoder", false) && !config_is_decoder(config))
        reading_refuse(reading, "is_decoder", EXIT_UNSUPPORTED_OPERATOR, "make it false if the model is an encoder",
                       "this kind of model is supported as an encoder only");
    if (reading_flag(reading, "add_cross_attention", false))
        reading_refuse(reading, "add_cross_attention", EXIT_UNSUPPORTED_OPERATOR, NULL,
                       "attention to another model's states is not supported");
    if (reading_flag(reading, "use_task_id", false))
        reading_refuse(reading, "use_task_id", EXIT_UNSUPPORTED_OPERATOR, NULL,
                       "embeddings of tasks are not supported");
    int64_t width = config->hidden / config->heads;
    if (config->type->family == FAMILY_DEBERTA &&
        reading_size(reading, "attention_head_size", 1, MOST_SIZE, width) != width)
        reading_refuse(reading, "attention_head_size", EXIT_UNSUPPORTED_OPERATOR, NULL,
                       "must be the hidden size divided by the number of heads: other sizes are not supported");
}

/* "pos_att_type" is an array, or a text with bars between, in which the library reads capitals as small letters. */
static bool attends(Reading *reading, const char *kind)
{
    const json_t *list = reading_member(reading, reading->root, "pos_att_type");
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
    own->relative = reading_flag(reading, "relative_attention", false);
    own->normalized = strstr(reading_text(reading, "norm_rel_ebd", "none"), "layer_norm") != NULL;
    own->shared_keys = reading_flag(reading, "share_att_key", false);
    own->content_to_position = attends(reading, "c2p");
    own->position_to_content = attends(reading, "p2c");
    own->absolute = reading_flag(reading, "position_biased_input", true);
    own->legacy_head = reading_flag(reading, "legacy", true);
    own->reach = reading_size(reading, "max_relative_positions", -1, MOST_POSITIONS, 0);
    if (own->reach < 1) own->reach = config->positions;
    own->buckets = reading_size(reading, "position_buckets", -1, MOST_POSITIONS, 0);
    if (own->buckets < 1) own->buckets = 0;
    own->kernel = reading_size(reading, "conv_kernel_size", 0, 1 << 10, 0);
    own->kernel_groups = reading_size(reading, "conv_groups", 1, 1 << 10, 1);
    own->kernel_activation = reading_activation(reading, "conv_act", "tanh");
    own->pooler_activation = reading_activation(reading, "pooler_hidden_act", "gelu");
    if (reading_size(reading, "pooler_hidden_size", 1, MOST_SIZE, config->hidden) != config->hidden)
        reading_refuse(reading, "pooler_hidden_size", EXIT_UNSUPPORTED_OPERATOR, NULL,
                       "must be the hidden size: other sizes are not supported");
    if (own->kernel && own->kernel % 2 == 0)
        reading_refuse(reading, "conv_kernel_size", EXIT_UNSUPPORTED_OPERATOR, NULL,
                       "must be odd: even sizes are not supported");
    if (own->buckets && (own->buckets < 4 || own->reach < own->buckets))
        reading_refuse(reading, "position_buckets", EXIT_BAD_INPUT, NULL,
                       "must be at least 4, and at most max_relative_positions");
}

static void read_family(Reading *reading, HuggingFaceConfig *config)
{
    switch (config->type->family) {
    case FAMILY_ALBERT:
        config->layer_groups = reading_size(reading, "num_hidden_groups", 1, config->layers, 1);
        config->layers_per_group = reading_size(reading, "inner_group_num", 1, 1 << 8, 1);
        break;
    case FAMILY_MPNET:
        config->relative_buckets = reading_size(reading, "relative_attention_num_buckets", 4, 1 << 16, 32);
        if (reading->ok && config->relative_buckets != 32)
            reading_refuse(reading, "relative_attention_num_buckets", EXIT_UNSUPPORTED_OPERATOR, NULL,
                           "must be 32: transformers numbers distances by 32 buckets, whatever it says");
        break;
    case FAMILY_DEBERTA: read_deberta(reading, config); break;
    default: break;
    }
}

static bool take(HuggingFaceConfig *config, json_t *json, const char *path, Arena *arena, Diagnostics *diagnostics)
{
    Reading reading = {.reader = {path, diagnostics}, .root = json, .arena = arena, .ok = true};
    config->json = json;
    if (!json_is_object(json)) return json_refuse(reading.reader, NULL, "must be an object");
    config->type = model_type(&reading);
    if (config->type) reading.family = config->type->family;
    if (config->type && config->type->form)
        decoder_config_read(&reading, config);
    else if (config->type)
        read_common(&reading, config);
    if (config->type && reading.ok) {
        refuse_variants(&reading, config);
        read_head(&reading, config);
        read_family(&reading, config);
        reading_refuse_unknown(&reading, json, "");
    }
    free(reading.asked);
    return config->type && reading.ok;
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

bool config_is_decoder(const HuggingFaceConfig *config)
{
    return config->type->form && !(config->type->form->traits & SEES_ALL);
}

void config_free(HuggingFaceConfig *config)
{
    json_decref(config->json);
    config->json = NULL;
}

const char *const *config_labels(const char *source, Arena *arena, size_t *count)
{
    json_auto_t *root = json_loads(source, 0, NULL);
    const json_t *names = json_object_get(root, "id2label");
    *count = json_object_size(names);
    const char **labels = arena_new_array(arena, const char *, *count + 1);
    for (size_t i = 0; i < *count; i++) {
        char key[32];
        snprintf(key, sizeof key, "%zu", i);
        const char *name = json_string_value(json_object_get(names, key));
        labels[i] = arena_string(arena, name ? name : key);
    }
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
    json_auto_t *root = json_copy(config->json);
    if (!root) memory_exhausted();
    FREED_WITH(arena_free) Arena arena = {0};
    json_object_set_new(root, "architectures", json_pack("[s]", class_name(&arena, config->type, head->kind)));
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
}
