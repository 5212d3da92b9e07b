#include "frontend/huggingface/encoder.h"
#include "frontend/huggingface/heads.h"

#include <string.h>

/* (batch, in) -> (batch, out): with SCOPE.weight [out, in] and, if `bias`, SCOPE.bias */
static const char *linear_rows(Network *network, const char *scope, const char *input, int64_t out, bool bias)
{
    const char *inputs[3] = {input, network_matrix(network, scope, out, network->config->hidden),
                             bias ? network_vector(network, scope, "bias", FILL_ZEROS, out) : NULL};
    Onnx__NodeProto *node = onnx_builder_node(&network->builder, scope, "Gemm", inputs, bias ? 3 : 2);
    onnx_node_float(&network->builder, node, "alpha", 1);
    onnx_node_float(&network->builder, node, "beta", 1);
    onnx_node_integer(&network->builder, node, "transB", 1);
    return onnx_node_output(node);
}

static const char *dense_rows(Network *network, const char *scope, const char *input, Activation activation)
{
    const char *dense = linear_rows(network, scope, input, network->config->hidden, true);
    return network_activation(network, scope, activation, dense);
}

/* (batch, seq, hidden) -> (batch, hidden): the mean over the tokens that the mask lets through */
static const char *mean_of_tokens(Network *network, const char *scope, const char *input)
{
    const char *axis = network_list(network, scope, 1);
    const char *mask = network_apply(network, scope, "Unsqueeze", network->inputs[1], network_list(network, scope, 2));
    mask = network_cast(network, scope, mask, ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT);
    const char *terms[2] = {network_apply(network, scope, "Mul", input, mask), mask}, *sums[2];
    for (int i = 0; i < 2; i++) {
        Onnx__NodeProto *sum =
            onnx_builder_node(&network->builder, scope, "ReduceSum", (const char *const[]){terms[i], axis}, 2);
        onnx_node_integer(&network->builder, sum, "keepdims", 0);
        sums[i] = onnx_node_output(sum);
    }
    const char *count =
        network_apply(network, scope, "Max", sums[1], onnx_builder_float(&network->builder, scope, 1e-9f));
    return network_apply(network, scope, "Div", sums[0], count);
}

/* ---- Pooled outputs ---- */

/* The module of the encoder's own pooler; NULL of families without. */
static const char *pooler_scope(Network *network)
{
    switch (network->config->type->family) {
    case FAMILY_BERT:
    case FAMILY_ROBERTA:
    case FAMILY_MPNET: return network_encoder_scope(network, "pooler.dense");
    case FAMILY_ALBERT: return network_encoder_scope(network, "pooler");
    default: return NULL;
    }
}

/* (batch, hidden): the input of a sequence classifier, whose module becomes *classifier. */
static const char *pool(Network *network, const char *x, const char **classifier)
{
    const HuggingFaceConfig *config = network->config;
    *classifier = "classifier";
    if (network->pooled) return network->pooled;
    bool predicts = config->type->form && config->type->form->traits & PREDICTION_HEAD;
    const Pooling pooling = config->prediction.pooling;
    if (config_is_decoder(config)) {
        if (!predicts) *classifier = "score";
        return decoder_last_token(network, predicts ? prediction_head(network, "head", x) : x);
    }
    if (predicts || config->type->family == FAMILY_EUROBERT) {
        const int64_t hidden = config->hidden;
        if (pooling == POOL_FIRST) x = network_first_token(network, "head", x);
        if (pooling == POOL_MEAN) x = mean_of_tokens(network, "head", x);
        if (predicts) return prediction_head(network, "head", x);
        x = network_activation(network, "dense", ACTIVATION_GELU, network_linear(network, "dense", x, hidden, hidden));
        return pooling == POOL_LATE ? mean_of_tokens(network, "head", x) : x;
    }
    const char *first = network_first_token(network, "classifier", x);
    switch (config->type->family) {
    case FAMILY_BERT:
    case FAMILY_ALBERT: return dense_rows(network, pooler_scope(network), first, ACTIVATION_TANH);
    case FAMILY_NOMIC: /* whose encoders have no pooler when they are alone */
    case FAMILY_GTE: return dense_rows(network, network_encoder_scope(network, "pooler.dense"), first, ACTIVATION_TANH);
    case FAMILY_DISTILBERT: return dense_rows(network, "pre_classifier", first, ACTIVATION_RELU);
    case FAMILY_DEBERTA: return dense_rows(network, "pooler.dense", first, config->deberta.pooler_activation);
    default: break;
    }
    *classifier = "classifier.out_proj";
    return dense_rows(network, "classifier.dense", first,
                      config->type->family == FAMILY_ELECTRA ? ACTIVATION_GELU : ACTIVATION_TANH);
}

static void classify_sequence(Network *network, const char *x, int64_t labels)
{
    const char *classifier, *pooled = pool(network, x, &classifier);
    const HuggingFaceConfig *config = network->config;
    bool bias = !config_is_decoder(config) || config->prediction.classifier_bias;
    network_output(network, "logits", linear_rows(network, classifier, pooled, labels, bias),
                   (BuilderDimension[]){network->batch, {labels, NULL}}, 2);
}

/* (batch, seq, labels) */
static const char *classify_tokens(Network *network, const char *scope, const char *x, int64_t labels)
{
    if (network->config->type->family == FAMILY_MODERNBERT) x = prediction_head(network, "head", x);
    return network_linear(network, scope, x, network->config->hidden, labels);
}

static void find_answer(Network *network, const char *x)
{
    static const char *const names[2] = {"start_logits", "end_logits"};
    bool modern = network->config->type->family == FAMILY_MODERNBERT;
    const char *scope = modern ? "classifier" : "qa_outputs", *both = classify_tokens(network, scope, x, 2);
    for (int64_t i = 0; i < 2; i++)
        network_output(network, names[i], network_gather(network, scope, both, network_integer(network, scope, i), -1),
                       (BuilderDimension[]){network->batch, network->sequence}, 2);
}

/* ---- Masked language models ---- */

typedef struct LanguageModelNames {
    const char *dense, *norm, *decoder, *bias;
} LanguageModelNames;

static const LanguageModelNames *language_model_names(const HuggingFaceConfig *config)
{
    static const LanguageModelNames bert = {"cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm",
                                            "cls.predictions.decoder", "cls.predictions.bias"},
                                    roberta = {"lm_head.dense", "lm_head.layer_norm", "lm_head.decoder",
                                               "lm_head.bias"},
                                    distilbert = {"vocab_transform", "vocab_layer_norm", "vocab_projector",
                                                  "vocab_projector.bias"},
                                    electra = {"generator_predictions.dense", "generator_predictions.LayerNorm",
                                               "generator_lm_head", "generator_lm_head.bias"},
                                    albert = {"predictions.dense", "predictions.LayerNorm", "predictions.decoder",
                                              "predictions.bias"},
                                    deberta = {"lm_predictions.lm_head.dense", "lm_predictions.lm_head.LayerNorm", NULL,
                                               "lm_predictions.lm_head.bias"},
                                    modernbert = {"head.dense", "head.norm", "decoder", "decoder.bias"},
                                    nomic = {"cls.predictions.transform.dense", "cls.predictions.transform.layer_norm",
                                             "cls.predictions.decoder", "cls.predictions.bias"},
                                    gte = {"lm_head.dense", "lm_head.norm", "lm_head.decoder", "lm_head.decoder.bias"},
                                    eurobert = {NULL, NULL, "lm_head", "lm_head.bias"};
    switch (config->type->family) {
    case FAMILY_ROBERTA:
    case FAMILY_MPNET: return &roberta;
    case FAMILY_DISTILBERT: return &distilbert;
    case FAMILY_ELECTRA: return &electra;
    case FAMILY_ALBERT: return &albert;
    case FAMILY_MODERNBERT: return &modernbert;
    case FAMILY_NOMIC: return &nomic;
    case FAMILY_GTE: return &gte;
    case FAMILY_EUROBERT: return &eurobert;
    case FAMILY_DEBERTA: return config->deberta.legacy_head ? &bert : &deberta;
    default: return &bert;
    }
}

/* The activation between dense layer and norm, which differs in some families. */
static Activation language_model_activation(const HuggingFaceConfig *config)
{
    switch (config->type->family) {
    case FAMILY_ROBERTA:
    case FAMILY_MPNET:
    case FAMILY_GTE:
    case FAMILY_ELECTRA: return ACTIVATION_GELU;
    default: return config->activation;
    }
}

static const char *decode(Network *network, const LanguageModelNames *names, const char *x, int64_t width)
{
    static const int64_t swap[2] = {1, 0};
    const HuggingFaceConfig *config = network->config;
    const DecoderForm *form = config->type->form;
    bool chooses = config->type->family == FAMILY_MODERNBERT || config->type->family == FAMILY_EUROBERT;
    const char *scope = names->decoder ? names->decoder : "lm_predictions.lm_head";
    const char *table = network_encoder_scope(network, "%s", form ? form->embeddings : "embeddings.word_embeddings");
    bool tied = config->ties_decoder || !names->decoder;
    const char *weight = network->table
                             ? network->table
                             : network_matrix(network, tied ? table : names->decoder, config->vocabulary, width);
    const char *logits = network_apply(network, scope, "MatMul", x, network_transpose(network, scope, weight, swap, 2));
    if (chooses && !config->prediction.decoder_bias) return logits;
    /* The decoder's bias has two names; files hold either. Where nothing is tied, transformers 5 writes both, and adds
     * the decoder's own. */
    const char *other = network_scope(network, scope, "bias");
    bool own = network_has(network, other) && (!tied || !network_has(network, names->bias));
    const char *bias = own ? other : names->bias;
    const Shape shape = {1, {config->vocabulary}};
    return network_apply(network, scope, "Add", logits, network_parameter(network, bias, &shape, FILL_ZEROS));
}

static void predict_tokens(Network *network, const char *x)
{
    const HuggingFaceConfig *config = network->config;
    const LanguageModelNames *names = language_model_names(config);
    int64_t width = config->hidden;
    if (config->type->family == FAMILY_MODERNBERT) {
        x = prediction_head(network, "head", x);
    } else if (names->dense) {
        if (names->decoder && config->embedding != config->hidden) width = config->embedding;
        x = network_linear(network, names->dense, x, config->hidden, width);
        x = network_activation(network, names->dense, language_model_activation(config), x);
        x = network_norm(network, names->norm, x, width, config->norm_epsilon, true);
    }
    network_output(network, "logits", decode(network, names, x, width),
                   (BuilderDimension[]){network->batch, network->sequence, {config->vocabulary, NULL}}, 3);
}

/* ---- Encoders alone ---- */

static void output_states(Network *network, const char *x)
{
    const BuilderDimension hidden = {network->config->hidden, NULL};
    const char *pooler = pooler_scope(network);
    network_output(network, "last_hidden_state", x, (BuilderDimension[]){network->batch, network->sequence, hidden}, 3);
    if (!pooler || !network_has(network, network_scope(network, pooler, "weight"))) return;
    const char *first = network_first_token(network, pooler, x);
    network_output(network, "pooler_output", dense_rows(network, pooler, first, ACTIVATION_TANH),
                   (BuilderDimension[]){network->batch, hidden}, 2);
}

/* Of pairs, the first half is of the first texts. */
static void output_embeddings(Network *network, const char *x, bool pairs)
{
    const char *scope = "embedding", *axis = network_list(network, scope, 0), *step = network_list(network, scope, 1);
    const BuilderDimension dimensions[] = {network->batch, {network->config->hidden, NULL}};
    if (!pairs) return network_output(network, "embedding", x, dimensions, 2);
    const char *shapes[2] = {network_apply(network, scope, "Shape", "input_ids"),
                             network_apply(network, scope, "Shape", network->inputs[0])};
    const char *ends[3] = {axis};
    for (int i = 0; i < 2; i++) ends[i + 1] = network_gather(network, scope, shapes[i], axis, 0);
    for (int i = 0; i < 2; i++)
        network_output(network, i ? "embedding_2" : "embedding",
                       network_apply(network, scope, "Slice", x, ends[i], ends[i + 1], axis, step), dimensions, 2);
}

/* Heads that the library has no class for, or one that reads more than the encoder. */
static bool lacks(const ModelType *type, HeadKind kind)
{
    bool bare = type->form && type->family != FAMILY_MODERNBERT && type->form != &encoder_jina;
    switch (kind) {
    case HEAD_QUESTION: return bare;
    case HEAD_TOKENS: return type->form == &decoder_modernbert;
    case HEAD_SEQUENCE:
    case HEAD_REGRESSION:
    case HEAD_MASKED: return type->family == FAMILY_T5;
    default: return false;
    }
}

const char *head_problem(const HuggingFaceConfig *config, const Head *head)
{
    bool decoder = config_is_decoder(config);
    if (!decoder && head->kind == HEAD_NEXT)
        return "predicts masked tokens: --head lm is for decoders, --head mlm for it";
    if (decoder && head->kind == HEAD_MASKED) return "is a decoder, which predicts the next token: give --head lm";
    if (decoder && head->kind == HEAD_QUESTION) return "is a decoder: heads for questions are for encoders";
    if (lacks(config->type, head->kind)) return "has no class with this head in the Hugging Face library";
    return NULL;
}

void head_build(Network *network, const Head *head, const char *x)
{
    const DecoderForm *form = config_is_decoder(network->config) ? network->config->type->form : NULL;
    switch (head->kind) {
    case HEAD_SEQUENCE:
    case HEAD_REGRESSION: classify_sequence(network, x, head->labels); break;
    case HEAD_TOKENS:
        network_output(network, "logits",
                       classify_tokens(network, form ? form->token_classifier : "classifier", x, head->labels),
                       (BuilderDimension[]){network->batch, network->sequence, {head->labels, NULL}}, 3);
        break;
    case HEAD_QUESTION: find_answer(network, x); break;
    case HEAD_MASKED: predict_tokens(network, x); break;
    case HEAD_NEXT:
        network_output(network, "logits", decoder_predict(network, x),
                       (BuilderDimension[]){network->batch, network->sequence, {network->config->vocabulary, NULL}}, 3);
        break;
    case HEAD_MEAN:
    case HEAD_FIRST:
        x = head->kind == HEAD_MEAN ? mean_of_tokens(network, "embedding", x)
                                    : network_first_token(network, "embedding", x);
        output_embeddings(network, x, head->pairs);
        break;
    default: output_states(network, x);
    }
}
