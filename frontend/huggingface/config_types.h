/* What config.json says. */
#ifndef FRONTEND_HUGGINGFACE_CONFIG_TYPES_H
#define FRONTEND_HUGGINGFACE_CONFIG_TYPES_H

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
    FAMILY_DEBERTA,
    FAMILY_NOMIC,
    FAMILY_GTE,
    FAMILY_EUROBERT,
    FAMILY_T5,
    FAMILY_DECODER
} Family;

/* What kinds of decoders differ in, and encoders whose layers have the same form. */
typedef enum DecoderTraits {
    LAYER_NORMS = 1 << 0,       /* with mean and bias; otherwise of root mean squares */
    GAINS_ABOVE_ONE = 1 << 1,   /* a norm's weight is its gain less 1 */
    NORMS_AROUND = 1 << 2,      /* results of attention and feed-forward part are normalised too */
    NORMS_OF_HEADS = 1 << 3,    /* queries and keys are, head by head */
    SCALED_EMBEDDINGS = 1 << 4, /* by the root of the hidden size */
    FUSED_PARTS = 1 << 5,       /* one matrix makes queries, keys and values, one after the other ... */
    FUSED_HEADS = 1 << 6,       /* ... or head by head */
    FUSED_GATE = 1 << 7,        /* one matrix makes gate and value of the feed-forward part */
    WITHOUT_GATE = 1 << 8,
    TRANSPOSED = 1 << 9, /* matrices are [in, out] */
    BIASED = 1 << 10,    /* all linear layers, unless attention_bias says no of attention's */
    PARALLEL = 1 << 11,  /* attention and feed-forward part may read the same input */
    POSITION_TABLE = 1 << 12,
    BIASED_INPUTS = 1 << 13, /* queries, keys and values have biases */
    HAS_ATTENTION_BIAS = 1 << 14,
    HAS_MLP_BIAS = 1 << 15,
    HAS_CAPS = 1 << 16,         /* on scores and logits */
    TIES = 1 << 17,             /* unless config.json says otherwise, the head is the table of embeddings */
    KEY_HEADS = 1 << 18,        /* fewer heads of keys than of queries */
    SEES_ALL = 1 << 19,         /* of encoders: tokens see those after them too; windows reach to either side */
    NORMS_AFTER = 1 << 20,      /* sums are normalised, not inputs */
    HAS_NORM_BIAS = 1 << 21,    /* norm_bias says whether norms have biases */
    FIRST_BARE = 1 << 22,       /* the first layer's attention reads its input as it is */
    GATE_LAST = 1 << 23,        /* of FUSED_GATE: the gate comes second */
    BIASED_DOWN = 1 << 24,      /* of the feed-forward part only the last layer has a bias */
    BUCKETS = 1 << 25,          /* scores depend on relative positions, as in T5; they are not scaled */
    BUCKETS_OF_LAYER = 1 << 26, /* of BUCKETS: every layer has a table of its own */
    TYPED = 1 << 27,            /* tokens have types */
    PREDICTION_HEAD = 1 << 28,  /* ModernBERT's, before the classifier or the decoder */
    CHOOSES_POSITIONS = 1 << 29 /* ESM: position_embedding_type says whether rotary or not */
} DecoderTraits;

/* Which layers see a window only, where layer_types does not say. */
typedef enum WindowRule {
    WINDOW_NEVER,
    WINDOW_ALWAYS,
    WINDOW_UPPER,
    WINDOW_PERIOD,
    WINDOW_UNROTATED,
    WINDOW_MODERNBERT /* all but the first of every few */
} WindowRule;

typedef struct DecoderForm {
    unsigned traits;
    WindowRule windows;
    int64_t period;                          /* of WINDOW_PERIOD: every so many layers see everything */
    int64_t window, head_width, key_heads;   /* where config.json says nothing; 0: none, hidden / heads, all heads */
    double theta, local_theta, norm_epsilon; /* where it says nothing; local_theta 0: one for all layers */
    double partial;                          /* share of a head that is turned, where it says nothing; 0: always all */
    int64_t original;                        /* length of pretraining; 0: the longest one */
    const char *lm_class;                    /* of the language model, where not "...ForCausalLM" */
    int64_t most_positions;                  /* where it says nothing; 0: it has to */
    const char *hidden, *layers, *heads, *intermediate, *positions, *activation, *epsilon, *width; /* members */
    const char *usual_activation; /* where it says nothing */
    /* What modules are called: of the model, of a layer, of its two parts. */
    const char *embeddings, *embedded_norm, *position_table, *layer, *last_norm, *lm_head, *token_classifier;
    const char *attention, *input_norm, *attended_norm, *mlp, *mlp_norm, *mlp_after_norm;
    const char *query, *key, *value, *output, *query_norm, *key_norm, *gate, *up, *down; /* query, up: the fused one */
    const char *up_alone; /* T5's up, where there is no gate */
} DecoderForm;

typedef struct ModelType {
    const char *name; /* the value of "model_type" */
    Family family;
    const char *class_prefix; /* "Bert" of BertModel */
    const char *base;         /* what names of the encoder's tensors begin with in a model with a head: "bert" */
    const DecoderForm *form;  /* of decoders */
    bool norms_first;         /* of BERT's form: inputs of both parts are normalised, and the last result */
} ModelType;

extern const DecoderForm decoder_llama, decoder_qwen2, decoder_qwen3, decoder_mistral, decoder_gemma2, decoder_gemma3,
    decoder_phi3, decoder_gpt2, decoder_gpt_neox, decoder_smollm3, decoder_modernbert, encoder_modernbert,
    encoder_eurobert, encoder_nomic, encoder_gte, encoder_jina, encoder_esm, encoder_t5, encoder_mt5, encoder_umt5;

/* How angles of rotary positions grow with the position. */
typedef enum RotaryKind {
    ROTARY_DEFAULT,
    ROTARY_LINEAR,
    ROTARY_DYNAMIC,
    ROTARY_LLAMA3,
    ROTARY_YARN,
    ROTARY_LONGROPE
} RotaryKind;

typedef struct RotaryConfig {
    RotaryKind kind;
    int64_t width;  /* of a head: so many of its first elements are turned */
    double partial; /* that share, where rope_parameters does not say */
    double theta, factor;
    double low, high;                     /* of LLAMA3: its frequency factors; of YARN: beta_slow and beta_fast */
    double attention_factor;              /* of YARN and LONGROPE: cosines and sines are multiplied by it */
    bool truncate;                        /* of YARN */
    bool knows_original;                  /* whatever rope_parameters says */
    int64_t original, positions;          /* lengths: that of pretraining, the longest */
    double *short_factors, *long_factors; /* of LONGROPE, for every pair */
} RotaryConfig;

typedef struct DecoderConfig {
    int64_t key_heads, head_width, window;
    bool *local, *rotates; /* per layer: sees its window only; turns queries and keys */
    bool input_bias, output_bias, mlp_bias, down_bias, norm_bias, parallel, scale_by_layer, gated;
    bool absolute, embedded_norm, token_dropout; /* of ESM: a table of positions; what embeddings go through */
    int64_t mask_token;                          /* of ESM's token_dropout */
    int64_t buckets, most_distance;              /* of BUCKETS */
    double scale;                                /* scores are multiplied by it */
    double score_cap, logit_cap;                 /* 0: none */
    RotaryConfig rotary[2];                      /* of layers that see everything, and of those with a window */
} DecoderConfig;

typedef enum Activation {
    ACTIVATION_GELU,
    ACTIVATION_GELU_TANH,
    ACTIVATION_RELU,
    ACTIVATION_SILU,
    ACTIVATION_TANH
} Activation;

/* What a classifier of texts reads: the first token, the mean of all, or the mean of what its dense layer makes of
 * them. */
typedef enum Pooling { POOL_FIRST, POOL_MEAN, POOL_LATE } Pooling;

/* Heads of ModernBERT and EuroBERT. */
typedef struct PredictionConfig {
    bool classifier_bias, decoder_bias;
    Pooling pooling;
    Activation activation;
} PredictionConfig;

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
    int distances;                          /* of BERT: 0: absolute positions; 1: relative_key, 2: relative_key_query */
    PredictionConfig prediction;
    DebertaConfig deberta;
    DecoderConfig decoder;
    const char *architecture; /* the class that wrote the folder; NULL: it does not say */
    Head head;                /* of that class; HEAD_FROM_FOLDER: one that no graph can be written for */
    json_t *json;             /* all of it, for the folder that is written back; config_free */
} HuggingFaceConfig;

#endif
