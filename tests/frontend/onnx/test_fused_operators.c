/* The operators of com.microsoft against plain loops: a model of one node is written, imported and interpreted. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "frontend/onnx/import.h"
#include "frontend/onnx/onnx_builder.h"
#include "tests/common/graph_evaluator.h"
#include "tests/common/scratch.h"

enum { BATCH = 2, LENGTH = 3, WIDTH = 4, HEADS = 2, MOST_INPUTS = 9, MOST_OUTPUTS = 4 };

typedef struct Input {
    const char *name; /* "": absent */
    DType dtype;
    Shape shape;
} Input;

/* A model of one node, and the values of its inputs as the evaluator holds them. */
typedef struct Model {
    OnnxBuilder builder;
    Onnx__NodeProto *node;
    Graph graph;
    ImportedModel imported;
    Evaluator evaluator;
    Diagnostics diagnostics;
    Scratch file;
} Model;

static double wave(int64_t i) { return sin(1.3 * (double)i + 0.7); }

static void begin(Model *model, const char *op, const Input *inputs, int input_count, int output_count)
{
    *model = (Model){.file = scratch_text("")};
    onnx_builder_open(&model->builder, "test", 17);
    const char *names[MOST_INPUTS];
    for (int i = 0; i < input_count; i++) {
        names[i] = inputs[i].name;
        BuilderDimension dimensions[MAX_RANK];
        for (int k = 0; k < inputs[i].shape.rank; k++) dimensions[k] = (BuilderDimension){inputs[i].shape.dim[k], NULL};
        int32_t type =
            inputs[i].dtype == DTYPE_F32 ? ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT : ONNX__TENSOR_PROTO__DATA_TYPE__INT32;
        if (*names[i]) onnx_builder_input(&model->builder, names[i], type, dimensions, inputs[i].shape.rank);
    }
    model->node = onnx_builder_node(&model->builder, "", op, names, (size_t)input_count);
    model->node->domain = (char *)"com.microsoft";
    char **outputs = arena_new_array(&model->builder.arena, char *, MOST_OUTPUTS);
    for (int i = 0; i < output_count; i++) {
        outputs[i] = arena_format(&model->builder.arena, "y%d", i);
        onnx_builder_output(&model->builder, outputs[i], ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, NULL, 0);
    }
    model->node->output = outputs;
    model->node->n_output = (size_t)output_count;
}

/* Imports the model and fills its inputs: floats with waves, integers with 0, 1, 2 ... */
static void load(Model *model)
{
    assert_true(onnx_builder_write(&model->builder, model->file.path, &(InitialWeights){0}, &model->diagnostics));
    graph_init(&model->graph, model->file.path);
    bool ok = import_onnx(&model->graph, &model->imported, model->file.path, &(ImportOptions){0}, &model->diagnostics);
    if (!ok) diagnostics_print(&model->diagnostics, stderr);
    assert_true(ok);
    evaluator_init(&model->evaluator, &model->graph);
    for (size_t i = 0; i < model->graph.input_count; i++) {
        const Value *value = graph_value(&model->graph, model->graph.inputs[i]);
        void *data = model->evaluator.buffer[model->graph.inputs[i]];
        for (int64_t k = 0; k < shape_elements(&value->shape); k++)
            element_store_double(value->dtype, data, k,
                                 value->dtype == DTYPE_F32 ? wave(k + 11 * (int64_t)i) : (double)k);
    }
}

static double *as_doubles(const Model *model, ValueId id)
{
    const Value *value = graph_value(&model->graph, id);
    int64_t count = shape_elements(&value->shape);
    double *numbers = memory_allocate((size_t)count * sizeof *numbers);
    for (int64_t i = 0; i < count; i++) numbers[i] = element_as_double(value->dtype, model->evaluator.buffer[id], i);
    return numbers;
}

static double *input(const Model *model, int i) { return as_doubles(model, model->graph.inputs[i]); }

static void *input_data(const Model *model, int i) { return model->evaluator.buffer[model->graph.inputs[i]]; }

static void check_output(Model *model, int output, const double *expected, int64_t count)
{
    ValueId id = model->graph.outputs[output].value;
    assert_int_equal(shape_elements(&graph_value(&model->graph, id)->shape), count);
    FREED double *got = as_doubles(model, id);
    for (int64_t i = 0; i < count; i++)
        if (!(fabs(got[i] - expected[i]) < 2e-6))
            fail_msg("element %d of output %d is %g, not %g", (int)i, output, got[i], expected[i]);
}

static void end(Model *model)
{
    evaluator_free(&model->evaluator);
    graph_free(&model->graph);
    imported_model_free(&model->imported);
    onnx_builder_close(&model->builder);
    diagnostics_free(&model->diagnostics);
    unlink(model->file.path);
}

static double gelu(double x) { return 0.5 * x * erfc(-x / sqrt(2)); }
static double gelu_tanh(double x) { return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }

static void check_gelu(const char *op, double (*function)(double))
{
    const Input inputs[] = {{"x", DTYPE_F32, {2, {LENGTH, WIDTH}}}, {"bias", DTYPE_F32, {1, {WIDTH}}}};
    Model model;
    begin(&model, op, inputs, 2, 1);
    load(&model);
    assert_true(evaluator_run(&model.evaluator));
    double *x = input(&model, 0), *bias = input(&model, 1), expected[LENGTH * WIDTH];
    for (int i = 0; i < LENGTH * WIDTH; i++) expected[i] = function(x[i] + bias[i % WIDTH]);
    check_output(&model, 0, expected, LENGTH * WIDTH);
    free(x), free(bias);
    end(&model);
}

static void gelus_with_bias(void **state)
{
    (void)state;
    check_gelu("BiasGelu", gelu);
    check_gelu("FastGelu", gelu_tanh);
}

static void products_with_transposition_and_factor(void **state)
{
    (void)state;
    const Input inputs[] = {{"a", DTYPE_F32, {3, {BATCH, WIDTH, LENGTH}}}, {"b", DTYPE_F32, {2, {5, WIDTH}}}};
    Model model;
    begin(&model, "FusedMatMul", inputs, 2, 1);
    onnx_node_integer(&model.builder, model.node, "transA", 1);
    onnx_node_integer(&model.builder, model.node, "transB", 1);
    onnx_node_float(&model.builder, model.node, "alpha", 0.5f);
    load(&model);
    assert_true(evaluator_run(&model.evaluator));
    double *a = input(&model, 0), *b = input(&model, 1), expected[BATCH * LENGTH * 5] = {0};
    for (int x = 0; x < BATCH; x++)
        for (int m = 0; m < LENGTH; m++)
            for (int n = 0; n < 5; n++)
                for (int k = 0; k < WIDTH; k++)
                    expected[(x * LENGTH + m) * 5 + n] += 0.5 * a[(x * WIDTH + k) * LENGTH + m] * b[n * WIDTH + k];
    check_output(&model, 0, expected, BATCH * LENGTH * 5);
    free(a), free(b);
    end(&model);
}

/* One row normalised in place. */
static void normalize_row(double *row, const double *gain, const double *bias, double epsilon)
{
    double mean = 0, variance = 0;
    for (int i = 0; i < WIDTH; i++) mean += row[i] / WIDTH;
    for (int i = 0; i < WIDTH; i++) variance += (row[i] - mean) * (row[i] - mean) / WIDTH;
    for (int i = 0; i < WIDTH; i++) row[i] = (row[i] - mean) / sqrt(variance + epsilon) * gain[i] + bias[i];
}

static void normalization_of_a_residual(void **state)
{
    (void)state;
    const Shape tokens = {3, {BATCH, LENGTH, WIDTH}}, row = {1, {WIDTH}};
    const Input inputs[] = {{"x", DTYPE_F32, tokens},
                            {"skip", DTYPE_F32, tokens},
                            {"gain", DTYPE_F32, row},
                            {"beta", DTYPE_F32, row},
                            {"bias", DTYPE_F32, row}};
    Model model;
    begin(&model, "SkipLayerNormalization", inputs, 5, 4);
    onnx_node_float(&model.builder, model.node, "epsilon", 0.25f);
    load(&model);
    assert_true(evaluator_run(&model.evaluator));
    enum { COUNT = BATCH * LENGTH * WIDTH };
    double *x = input(&model, 0), *skip = input(&model, 1), *gain = input(&model, 2), *beta = input(&model, 3);
    double *bias = input(&model, 4), sum[COUNT], expected[COUNT];
    for (int i = 0; i < COUNT; i++) sum[i] = expected[i] = x[i] + skip[i] + bias[i % WIDTH];
    for (int i = 0; i < COUNT; i += WIDTH) normalize_row(expected + i, gain, beta, 0.25);
    check_output(&model, 0, expected, COUNT);
    check_output(&model, 3, sum, COUNT);
    free(x), free(skip), free(gain), free(beta), free(bias);
    end(&model);
}

static void check_embedding(bool segments)
{
    const Shape ids = {2, {BATCH, LENGTH}}, row = {1, {WIDTH}};
    const Input inputs[] = {{"ids", DTYPE_I32, ids},
                            {segments ? "segments" : "", DTYPE_I32, ids},
                            {"words", DTYPE_F32, {2, {7, WIDTH}}},
                            {"positions", DTYPE_F32, {2, {5, WIDTH}}},
                            {segments ? "table" : "", DTYPE_F32, {2, {6, WIDTH}}},
                            {"gain", DTYPE_F32, row},
                            {"beta", DTYPE_F32, row},
                            {"mask", DTYPE_I32, ids}};
    Model model;
    begin(&model, "EmbedLayerNormalization", inputs, 8, 2);
    onnx_node_float(&model.builder, model.node, "epsilon", 0.25f);
    model.builder.graph.output[1]->type->tensor_type->elem_type = ONNX__TENSOR_PROTO__DATA_TYPE__INT32;
    load(&model);
    int at = segments ? 2 : 1;
    int32_t *mask = input_data(&model, at + (segments ? 5 : 4));
    for (int i = 0; i < BATCH * LENGTH; i++) mask[i] = i != LENGTH - 1;
    assert_true(evaluator_run(&model.evaluator));
    double *words = input(&model, at), *positions = input(&model, at + 1), *table = input(&model, at + 2);
    double *gain = input(&model, at + (segments ? 3 : 2)), *beta = input(&model, at + (segments ? 4 : 3));
    double expected[BATCH * LENGTH * WIDTH];
    for (int i = 0; i < BATCH * LENGTH; i++) { /* the ids, and the segments, are 0, 1, 2 ... */
        for (int k = 0; k < WIDTH; k++) {
            expected[i * WIDTH + k] = words[i * WIDTH + k] + positions[i % LENGTH * WIDTH + k];
            if (segments) expected[i * WIDTH + k] += table[i * WIDTH + k];
        }
        normalize_row(expected + i * WIDTH, gain, beta, 0.25);
    }
    check_output(&model, 0, expected, BATCH * LENGTH * WIDTH);
    check_output(&model, 1, (double[]){LENGTH - 1, LENGTH}, BATCH);
    free(words), free(positions), free(table), free(gain), free(beta);
    end(&model);
}

static void embeddings_with_and_without_segments(void **state)
{
    (void)state;
    check_embedding(true);
    check_embedding(false);
}

typedef enum MaskKind { MASK_LENGTHS, MASK_ENDS, MASK_KEYS, MASK_PAIRS, MASK_POSITIONS, MASK_KINDS } MaskKind;

static bool allowed(MaskKind kind, const int32_t *mask, int batch, int query, int key)
{
    switch (kind) {
    case MASK_LENGTHS: return key < mask[batch];
    case MASK_ENDS: return key < mask[batch] && key >= mask[BATCH + batch];
    case MASK_KEYS: return mask[batch * LENGTH + key] != 0;
    case MASK_POSITIONS: return mask[query * (LENGTH + 1) + key] != 0;
    default: return mask[(batch * LENGTH + query) * LENGTH + key] != 0;
    }
}

/* One row of attention for one head, from packed queries, keys and values. */
static void attend(const double *packed, const int32_t *mask, MaskKind kind, bool causal, int batch, int query,
                   int head, double *result)
{
    enum { SIZE = WIDTH / HEADS };
    double weights[LENGTH], sum = 0;
    const double *q = packed + (batch * LENGTH + query) * 3 * WIDTH + head * SIZE;
    for (int key = 0; key < LENGTH; key++) {
        const double *k = packed + (batch * LENGTH + key) * 3 * WIDTH + WIDTH + head * SIZE;
        weights[key] = 0;
        for (int i = 0; i < SIZE; i++) weights[key] += q[i] * k[i] / sqrt(SIZE);
        if (!allowed(kind, mask, batch, query, key)) weights[key] -= 10000;
        if (causal && key > query) weights[key] -= 10000;
    }
    double most = fmax(fmax(weights[0], weights[1]), weights[2]);
    for (int key = 0; key < LENGTH; key++) sum += weights[key] = exp(weights[key] - most);
    for (int i = 0; i < SIZE; i++) {
        result[head * SIZE + i] = 0;
        for (int key = 0; key < LENGTH; key++)
            result[head * SIZE + i] +=
                weights[key] / sum * packed[(batch * LENGTH + key) * 3 * WIDTH + 2 * WIDTH + head * SIZE + i];
    }
}

static void check_attention(MaskKind kind, bool causal)
{
    static const Shape masks[MASK_KINDS] = {{1, {BATCH}},
                                            {1, {2 * BATCH}},
                                            {2, {BATCH, LENGTH}},
                                            {3, {BATCH, LENGTH, LENGTH}},
                                            {4, {1, 1, LENGTH + 1, LENGTH + 1}}};
    static const int32_t values[MASK_KINDS][BATCH * LENGTH * LENGTH] = {
        {2, 3},
        {2, 3, 0, 1},
        {1, 0, 1, 1, 1, 0},
        {1, 0, 1, 1, 1, 0, 1, 1, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1},
        {1, 0, 1, 0, 1, 1, 0, 1, 1, 0, 1, 1, 1, 1, 1, 1}};
    const Input inputs[] = {{"x", DTYPE_F32, {3, {BATCH, LENGTH, WIDTH}}},
                            {"weights", DTYPE_F32, {2, {WIDTH, 3 * WIDTH}}},
                            {"bias", DTYPE_F32, {1, {3 * WIDTH}}},
                            {"mask", DTYPE_I32, masks[kind]}};
    Model model;
    begin(&model, "Attention", inputs, 4, 1);
    onnx_node_integer(&model.builder, model.node, "num_heads", HEADS);
    onnx_node_integer(&model.builder, model.node, "unidirectional", causal);
    load(&model);
    memcpy(input_data(&model, 3), values[kind], (size_t)shape_elements(&masks[kind]) * sizeof(int32_t));
    assert_true(evaluator_run(&model.evaluator));

    double *x = input(&model, 0), *weights = input(&model, 1), *bias = input(&model, 2);
    double packed[BATCH * LENGTH * 3 * WIDTH], expected[BATCH * LENGTH * WIDTH];
    for (int i = 0; i < BATCH * LENGTH; i++)
        for (int n = 0; n < 3 * WIDTH; n++) {
            packed[i * 3 * WIDTH + n] = bias[n];
            for (int k = 0; k < WIDTH; k++) packed[i * 3 * WIDTH + n] += x[i * WIDTH + k] * weights[k * 3 * WIDTH + n];
        }
    for (int i = 0; i < BATCH * LENGTH * HEADS; i++)
        attend(packed, values[kind], kind, causal, i / HEADS / LENGTH, i / HEADS % LENGTH, i % HEADS,
               expected + i / HEADS * WIDTH);
    check_output(&model, 0, expected, BATCH * LENGTH * WIDTH);
    free(x), free(weights), free(bias);
    end(&model);
}

static void attention_with_every_kind_of_mask(void **state)
{
    (void)state;
    for (int kind = 0; kind < MASK_KINDS; kind++) {
        check_attention((MaskKind)kind, false);
        /* A query that is left no key at all compares numbers near the filter value, which float32 keeps too few digits
         * of. */
        if (kind != MASK_ENDS) check_attention((MaskKind)kind, true);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gelus_with_bias),
        cmocka_unit_test(products_with_transposition_and_factor),
        cmocka_unit_test(normalization_of_a_residual),
        cmocka_unit_test(embeddings_with_and_without_segments),
        cmocka_unit_test(attention_with_every_kind_of_mask),
    };
    return cmocka_run_group_tests_name("fused operators", tests, NULL, NULL);
}
