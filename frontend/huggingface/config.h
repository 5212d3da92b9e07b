/* config.json of a Hugging Face folder: the kind of model and its sizes. */
#ifndef FRONTEND_HUGGINGFACE_CONFIG_H
#define FRONTEND_HUGGINGFACE_CONFIG_H

#include "base/json.h"
#include "frontend/huggingface/head.h"

typedef enum Family {
    FAMILY_BERT,
    FAMILY_ROBERTA,
    FAMILY_DISTILBERT,
    FAMILY_ELECTRA,
    FAMILY_ALBERT,
    FAMILY_MPNET,
    FAMILY_MODERNBERT,
    FAMILY_DEBERTA
} Family;

typedef struct ModelType {
    const char *name; /* the value of "model_type" */
    Family family;
    const char *class_prefix; /* "Bert" of BertModel */
    const char *base;         /* what names of the encoder's tensors begin with in a model with a head: "bert" */
} ModelType;

typedef enum Activation {
    ACTIVATION_GELU,
    ACTIVATION_GELU_TANH,
    ACTIVATION_RELU,
    ACTIVATION_SILU,
    ACTIVATION_TANH
} Activation;

typedef struct ModernBertConfig {
    bool *global;   /* per layer: attends to all tokens, not only to those of its window */
    int64_t window; /* how far tokens of the other layers see, to either side */
    double global_theta, local_theta;
    bool attention_bias, mlp_bias, norm_bias, classifier_bias, decoder_bias, mean_pooling;
    Activation classifier_activation;
} ModernBertConfig;

typedef struct DebertaConfig {
    bool relative, normalized, shared_keys, content_to_position, position_to_content, absolute, legacy_head;
    int64_t reach;                 /* relative positions further away are the last one, or */
    int64_t buckets;               /* share so many buckets, of logarithmic width: 0 of models without */
    int64_t kernel, kernel_groups; /* of the convolution parallel to the first layer; kernel 0: none */
    Activation kernel_activation, pooler_activation;
} DebertaConfig;

typedef struct HuggingFaceConfig {
    const ModelType *type;
    int64_t vocabulary, hidden, layers, heads, intermediate, positions;
    int64_t token_types; /* 0: none */
    int64_t embedding;   /* width of the embeddings: hidden, where they are not projected */
    int64_t padding;     /* the token that pads */
    double norm_epsilon, initial_deviation;
    Activation activation;
    bool ties_decoder;                      /* the decoder of a masked language model is the word embeddings */
    int64_t layer_groups, layers_per_group; /* of ALBERT, whose layers share weights */
    int64_t relative_buckets;               /* of MPNet */
    ModernBertConfig modernbert;
    DebertaConfig deberta;
    const char *architecture; /* the class that wrote the folder; NULL: it does not say */
    Head head;                /* of that class; HEAD_FROM_FOLDER: one that no graph can be written for */
    json_t *json;             /* all of it, for the folder that is written back; config_free */
} HuggingFaceConfig;

/* Reads the file. Sizes are limited so that products of two do not overflow. Reports an unknown model_type with the
 * list of those there are (EXIT_UNSUPPORTED_OPERATOR), and every other problem. Texts live in the arena. */
bool config_read(HuggingFaceConfig *config, const char *path, Arena *arena, Diagnostics *diagnostics);
/* The same from text; messages call it `path`. */
bool config_parse(HuggingFaceConfig *config, const char *text, const char *path, Arena *arena,
                  Diagnostics *diagnostics);
void config_free(HuggingFaceConfig *config);
/* The longest sequence for which the encoder has positions. */
int64_t encoder_most_positions(const HuggingFaceConfig *config);

/* The names of id2label in the text of a config.json, by number; in the arena. */
const char *const *config_labels(const char *source, Arena *arena, size_t *count);

/* The configuration of the same encoder with this head, as the library writes it: class, labels, kind of problem, and
 * float32 as the type of the tensors. */
void config_print(const HuggingFaceConfig *config, const Head *head, Buffer *buffer);

/* Any configuration, in the order of its members and with indents. */
void config_print_json(const json_t *root, Buffer *buffer);

#endif
