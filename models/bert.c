#include "models/bert.h"

#include <math.h>
#include <string.h>

#include "frontend/onnx/onnx_builder.h"

enum { OPSET = 17, TOKEN_TYPES = 2 };
#define MOST_INSIDE ((int64_t)64 << 20) /* bytes of weights that the model itself may hold */
#define INITIAL_DEVIATION 0.02
#define NORM_EPSILON 1e-12f

typedef struct Bert {
    const BertConfig *config;
    OnnxBuilder builder;
    const char *mask;                             /* (batch, 1, 1, seq): 0, or the least float where nothing may look */
    const char *split_shape, *merge_shape;        /* to heads and back; 0 keeps a dimension */
    const char *key_scale;                        /* sqrt(hidden / heads) */
    const char *gelu_root, *gelu_one, *gelu_half; /* sqrt(2), 1, 0.5 */
} Bert;

#define apply(bert, scope, op, ...) onnx_builder_apply(&(bert)->builder, scope, op, __VA_ARGS__)

static const char *scope_in(Bert *bert, const char *scope, const char *name)
{
    return arena_format(&bert->builder.arena, "%s.%s", scope, name);
}

static const char *vector(Bert *bert, const char *scope, int64_t a)
{
    return onnx_builder_integers(&bert->builder, scope, &a, &(Shape){1, {1}});
}

static const char *scalar(Bert *bert, const char *scope, int64_t a)
{
    return onnx_builder_integers(&bert->builder, scope, &a, &(Shape){0});
}

/* (batch, seq, in) -> (batch, seq, out) */
static const char *linear(Bert *bert, const char *scope, const char *input, int64_t in, int64_t out)
{
    const char *weight = onnx_builder_weight(&bert->builder, scope, "weight", FILL_NORMAL, in, out);
    const char *bias = onnx_builder_weight(&bert->builder, scope, "bias", FILL_ZEROS, out, 0);
    return apply(bert, scope, "Add", bias, apply(bert, scope, "MatMul", input, weight));
}

/* (batch, in) -> (batch, out) */
static Onnx__NodeProto *linear_2d(Bert *bert, const char *scope, const char *input, int64_t in, int64_t out)
{
    const char *weight = onnx_builder_weight(&bert->builder, scope, "weight", FILL_NORMAL, out, in);
    const char *bias = onnx_builder_weight(&bert->builder, scope, "bias", FILL_ZEROS, out, 0);
    Onnx__NodeProto *node =
        onnx_builder_node(&bert->builder, scope, "Gemm", (const char *const[]){input, weight, bias}, 3);
    onnx_node_float(&bert->builder, node, "alpha", 1);
    onnx_node_float(&bert->builder, node, "beta", 1);
    onnx_node_integer(&bert->builder, node, "transB", 1);
    return node;
}

static const char *layer_norm(Bert *bert, const char *scope, const char *input)
{
    OnnxBuilder *builder = &bert->builder;
    const char *gain = onnx_builder_weight(builder, scope, "weight", FILL_ONES, bert->config->hidden, 0);
    const char *bias = onnx_builder_weight(builder, scope, "bias", FILL_ZEROS, bert->config->hidden, 0);
    Onnx__NodeProto *node =
        onnx_builder_node(builder, scope, "LayerNormalization", (const char *const[]){input, gain, bias}, 3);
    onnx_node_integer(builder, node, "axis", -1);
    onnx_node_float(builder, node, "epsilon", NORM_EPSILON);
    return onnx_node_output(node);
}

/* x/2 (1 + erf(x / sqrt 2)), in the exporter's order */
static const char *gelu(Bert *bert, const char *scope, const char *input)
{
    const char *erf = apply(bert, scope, "Erf", apply(bert, scope, "Div", input, bert->gelu_root));
    const char *product = apply(bert, scope, "Mul", input, apply(bert, scope, "Add", erf, bert->gelu_one));
    return apply(bert, scope, "Mul", product, bert->gelu_half);
}

static const char *transpose(Bert *bert, const char *scope, const char *input, const int64_t *order, size_t rank)
{
    Onnx__NodeProto *node = onnx_builder_node(&bert->builder, scope, "Transpose", &input, 1);
    onnx_node_integers(&bert->builder, node, "perm", order, rank);
    return onnx_node_output(node);
}

static const char *gather(Bert *bert, const char *scope, const char *data, const char *index, int64_t axis)
{
    Onnx__NodeProto *node = onnx_builder_node(&bert->builder, scope, "Gather", (const char *const[]){data, index}, 2);
    onnx_node_integer(&bert->builder, node, "axis", axis);
    return onnx_node_output(node);
}

static void add_interface(Bert *bert)
{
    const BertConfig *config = bert->config;
    const BuilderDimension batch = {config->batch, "batch"}, sequence = {config->sequence, "seq"};
    static const char *const inputs[] = {"input_ids", "attention_mask", "token_type_ids"};
    for (size_t i = 0; i < 3; i++)
        onnx_builder_input(&bert->builder, inputs[i], ONNX__TENSOR_PROTO__DATA_TYPE__INT64,
                           (BuilderDimension[]){batch, sequence}, 2);
    if (config->head == BERT_SEQUENCE_CLASSIFIER)
        onnx_builder_output(&bert->builder, "logits", ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT,
                            (BuilderDimension[]){batch, {config->classes, NULL}}, 2);
    else
        onnx_builder_output(&bert->builder, "logits", ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT,
                            (BuilderDimension[]){batch, sequence, {config->vocabulary, NULL}}, 3);
}

static void add_constants(Bert *bert)
{
    const BertConfig *config = bert->config;
    const int64_t width = config->hidden / config->heads;
    const int64_t split[4] = {0, 0, config->heads, width}, merge[3] = {0, 0, config->hidden};
    bert->split_shape = onnx_builder_integers(&bert->builder, "bert", split, &(Shape){1, {4}});
    bert->merge_shape = onnx_builder_integers(&bert->builder, "bert", merge, &(Shape){1, {3}});
    bert->key_scale = onnx_builder_float(&bert->builder, "bert", sqrtf((float)width));
    bert->gelu_root = onnx_builder_float(&bert->builder, "bert", 1.41421356f);
    bert->gelu_one = onnx_builder_float(&bert->builder, "bert", 1);
    bert->gelu_half = onnx_builder_float(&bert->builder, "bert", 0.5f);
}

/* (1 - mask) * -3.4e38, as (batch, 1, 1, seq) */
static void add_mask(Bert *bert)
{
    const char *mask = apply(bert, "bert", "Unsqueeze", "attention_mask", vector(bert, "bert", 1));
    mask = apply(bert, "bert", "Unsqueeze", mask, vector(bert, "bert", 2));
    Onnx__NodeProto *cast = onnx_builder_node(&bert->builder, "bert", "Cast", &mask, 1);
    onnx_node_integer(&bert->builder, cast, "to", ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT);
    const char *hidden = apply(bert, "bert", "Sub", bert->gelu_one, onnx_node_output(cast));
    bert->mask = apply(bert, "bert", "Mul", hidden, onnx_builder_float(&bert->builder, "bert", -3.40282347e38f));
}

/* 0 ... seq - 1, as (1, seq): the front of a constant */
static const char *add_positions(Bert *bert, const char *scope)
{
    int64_t count = bert->config->positions;
    int64_t *numbers = arena_new_array(&bert->builder.arena, int64_t, (size_t)count);
    for (int64_t i = 0; i < count; i++) numbers[i] = i;
    const char *all = onnx_builder_integers(&bert->builder, scope, numbers, &(Shape){2, {1, count}});
    const char *shape = apply(bert, scope, "Shape", "input_ids");
    const char *length = gather(bert, scope, shape, scalar(bert, scope, 1), 0);
    const char *end = apply(bert, scope, "Unsqueeze", length, vector(bert, scope, 0));
    const char *axis = vector(bert, scope, 1);
    return apply(bert, scope, "Slice", all, vector(bert, scope, 0), end, axis, axis);
}

static const char *embedding(Bert *bert, const char *scope, const char *index, int64_t rows)
{
    const char *table = onnx_builder_weight(&bert->builder, scope, "weight", FILL_NORMAL, rows, bert->config->hidden);
    return gather(bert, scope, table, index, 0);
}

static const char *add_embeddings(Bert *bert)
{
    const char *scope = "bert.embeddings";
    const BertConfig *config = bert->config;
    const char *words = embedding(bert, "bert.embeddings.word_embeddings", "input_ids", config->vocabulary);
    const char *types = embedding(bert, "bert.embeddings.token_type_embeddings", "token_type_ids", TOKEN_TYPES);
    const char *sum = apply(bert, scope, "Add", words, types);
    const char *places =
        embedding(bert, "bert.embeddings.position_embeddings", add_positions(bert, scope), config->positions);
    return layer_norm(bert, "bert.embeddings.LayerNorm", apply(bert, scope, "Add", sum, places));
}

static const char *add_attention(Bert *bert, const char *scope, const char *input)
{
    const int64_t hidden = bert->config->hidden, swap[4] = {0, 2, 1, 3}, swap_keys[4] = {0, 2, 3, 1};
    const char *self = scope_in(bert, scope, "self");
    const char *queries = linear(bert, scope_in(bert, self, "query"), input, hidden, hidden);
    const char *keys = linear(bert, scope_in(bert, self, "key"), input, hidden, hidden);
    const char *values = linear(bert, scope_in(bert, self, "value"), input, hidden, hidden);
    queries = transpose(bert, self, apply(bert, self, "Reshape", queries, bert->split_shape), swap, 4);
    keys = transpose(bert, self, apply(bert, self, "Reshape", keys, bert->split_shape), swap_keys, 4);
    values = transpose(bert, self, apply(bert, self, "Reshape", values, bert->split_shape), swap, 4);
    const char *scores = apply(bert, self, "Div", apply(bert, self, "MatMul", queries, keys), bert->key_scale);
    const char *masked = apply(bert, self, "Add", scores, bert->mask);
    Onnx__NodeProto *softmax = onnx_builder_node(&bert->builder, self, "Softmax", &masked, 1);
    onnx_node_integer(&bert->builder, softmax, "axis", -1);
    const char *context = apply(bert, self, "MatMul", onnx_node_output(softmax), values);
    context = apply(bert, self, "Reshape", transpose(bert, self, context, swap, 4), bert->merge_shape);
    const char *output = scope_in(bert, scope, "output");
    const char *dense = linear(bert, scope_in(bert, output, "dense"), context, hidden, hidden);
    return layer_norm(bert, scope_in(bert, output, "LayerNorm"), apply(bert, output, "Add", dense, input));
}

static const char *add_layer(Bert *bert, int64_t number, const char *input)
{
    const int64_t hidden = bert->config->hidden, inner = bert->config->intermediate;
    const char *scope = arena_format(&bert->builder.arena, "bert.encoder.layer.%lld", (long long)number);
    const char *attended = add_attention(bert, scope_in(bert, scope, "attention"), input);
    const char *intermediate = scope_in(bert, scope, "intermediate"), *output = scope_in(bert, scope, "output");
    const char *wide = linear(bert, scope_in(bert, intermediate, "dense"), attended, hidden, inner);
    wide = gelu(bert, scope_in(bert, intermediate, "intermediate_act_fn"), wide);
    const char *dense = linear(bert, scope_in(bert, output, "dense"), wide, inner, hidden);
    return layer_norm(bert, scope_in(bert, output, "LayerNorm"), apply(bert, output, "Add", dense, attended));
}

static void add_classifier(Bert *bert, const char *input)
{
    const int64_t hidden = bert->config->hidden;
    const char *first = gather(bert, "bert.pooler", input, scalar(bert, "bert.pooler", 0), 1);
    const char *pooled = onnx_node_output(linear_2d(bert, "bert.pooler.dense", first, hidden, hidden));
    pooled = apply(bert, "bert.pooler.activation", "Tanh", pooled);
    onnx_node_name_output(&bert->builder, linear_2d(bert, "classifier", pooled, hidden, bert->config->classes),
                          "logits");
}

static void add_language_model(Bert *bert, const char *input)
{
    const int64_t hidden = bert->config->hidden, swap[2] = {1, 0};
    const char *scope = "cls.predictions", *decoder = "cls.predictions.decoder";
    const char *x = linear(bert, "cls.predictions.transform.dense", input, hidden, hidden);
    x = layer_norm(bert, "cls.predictions.transform.LayerNorm",
                   gelu(bert, "cls.predictions.transform.transform_act_fn", x));
    const char *words = transpose(bert, decoder, "bert.embeddings.word_embeddings.weight", swap, 2);
    const char *product = apply(bert, decoder, "MatMul", x, words);
    const char *bias = onnx_builder_weight(&bert->builder, scope, "bias", FILL_ZEROS, bert->config->vocabulary, 0);
    Onnx__NodeProto *logits =
        onnx_builder_node(&bert->builder, decoder, "Add", (const char *const[]){bias, product}, 2);
    onnx_node_name_output(&bert->builder, logits, "logits");
}

bool bert_write(const BertConfig *config, const char *path, Diagnostics *diagnostics)
{
    Bert bert = {.config = config};
    onnx_builder_open(&bert.builder, "bert", OPSET);
    add_interface(&bert);
    add_constants(&bert);
    add_mask(&bert);
    const char *x = add_embeddings(&bert);
    for (int64_t i = 0; i < config->layers; i++) x = add_layer(&bert, i, x);
    if (config->head == BERT_SEQUENCE_CLASSIFIER)
        add_classifier(&bert, x);
    else
        add_language_model(&bert, x);
    const InitialWeights weights = {
        .present = config->weights, .seed = config->seed, .deviation = INITIAL_DEVIATION, .most_inside = MOST_INSIDE};
    bool ok = onnx_builder_write(&bert.builder, path, &weights, diagnostics);
    onnx_builder_close(&bert.builder);
    return ok;
}
