#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "frontend/onnx/import.h"
#include "models/bert.h"
#include "frontend/onnx/onnx_builder.h"
#include "tests/common/scratch.h"

/* Elements of all parameters together. */
static int64_t expected_elements(const BertConfig *config)
{
    const int64_t h = config->hidden, inner = config->intermediate;
    const int64_t layer = 4 * (h * h + h) + (h * inner + inner) + (inner * h + h) + 4 * h;
    const int64_t head = config->head == BERT_SEQUENCE_CLASSIFIER ? h * h + h + config->classes * (h + 1)
                                                                  : h * h + h + 2 * h + config->vocabulary;
    return (config->vocabulary + config->positions + 2 /* types of tokens */) * h + 2 * h + config->layers * layer +
           head;
}

static const BertConfig small = {.layers = 3,
                                 .hidden = 8,
                                 .heads = 2,
                                 .intermediate = 16,
                                 .vocabulary = 32,
                                 .positions = 12,
                                 .classes = 5,
                                 .weights = true,
                                 .seed = 1};

static void write_model(const BertConfig *config, const char *path)
{
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    if (!bert_write(config, path, &diagnostics)) fail_msg("%s", diagnostics_text(&diagnostics));
}

typedef struct Imported {
    Graph graph;
    ImportedModel model;
    Diagnostics diagnostics;
    bool ok;
} Imported;

static void import(Imported *imported, const char *path, bool no_weights)
{
    const DimensionBinding dimensions[] = {{"batch", 2}, {"seq", 7}};
    const ImportOptions options = {.dimensions = dimensions, .dimension_count = 2, .no_weights = no_weights};
    *imported = (Imported){0};
    graph_init(&imported->graph, path);
    imported->ok = import_onnx(&imported->graph, &imported->model, path, &options, &imported->diagnostics);
}

static void imported_free(Imported *imported)
{
    graph_free(&imported->graph);
    imported_model_free(&imported->model);
    diagnostics_free(&imported->diagnostics);
}

static void expect_import(Imported *imported, const char *path, bool no_weights)
{
    import(imported, path, no_weights);
    if (!imported->ok || imported->diagnostics.warnings) fail_msg("%s", diagnostics_text(&imported->diagnostics));
}

static const Value *find_parameter(const Imported *imported, const char *name)
{
    for (size_t i = 0; i < imported->model.parameter_count; i++)
        if (strcmp(imported->model.parameters[i].name, name) == 0)
            return graph_value(&imported->graph, imported->model.parameters[i].value);
    fail_msg("there is no parameter %s", name);
    return NULL;
}

static void expect_parameter(const Imported *imported, const char *name, Shape shape, double mean, double deviation)
{
    const Value *value = find_parameter(imported, name);
    assert_true(shape_equal(&value->shape, &shape));
    double sum = 0, squares = 0, n = (double)shape_elements(&shape);
    for (int64_t i = 0; i < shape_elements(&shape); i++) {
        double element = element_as_double(value->dtype, value->data, i);
        sum += element;
        squares += (element - mean) * (element - mean);
    }
    assert_true(fabs(sum / n - mean) <= 4 * deviation / sqrt(n));
    assert_true(fabs(sqrt(squares / n) - deviation) <= 3 * deviation / sqrt(n));
}

static int64_t elements_of_all(const Imported *imported)
{
    int64_t sum = 0;
    for (size_t i = 0; i < imported->model.parameter_count; i++)
        sum += shape_elements(&graph_value(&imported->graph, imported->model.parameters[i].value)->shape);
    return sum;
}

static void expect_output(const Imported *imported, Shape shape)
{
    assert_int_equal(imported->graph.output_count, 1);
    const Value *output = graph_value(&imported->graph, imported->graph.outputs[0].value);
    assert_string_equal(imported->graph.outputs[0].name, "logits");
    assert_true(shape_equal(&output->shape, &shape));
}

static void a_classifier_has_the_parameters_of_its_kind(void **state)
{
    (void)state;
    Scratch file = scratch_text("");
    Imported imported;
    write_model(&small, file.path);
    expect_import(&imported, file.path, false);
    expect_output(&imported, (Shape){2, {2, 5}});
    assert_int_equal(imported.model.parameter_count, 5 + 3 * 16 + 4);
    assert_int_equal(elements_of_all(&imported), expected_elements(&small));
    expect_parameter(&imported, "bert.embeddings.word_embeddings.weight", (Shape){2, {32, 8}}, 0, 0.02);
    expect_parameter(&imported, "bert.encoder.layer.2.intermediate.dense.weight", (Shape){2, {8, 16}}, 0, 0.02);
    expect_parameter(&imported, "bert.encoder.layer.0.attention.self.query.bias", (Shape){1, {8}}, 0, 0);
    expect_parameter(&imported, "bert.encoder.layer.1.output.LayerNorm.weight", (Shape){1, {8}}, 1, 0);
    expect_parameter(&imported, "classifier.weight", (Shape){2, {5, 8}}, 0, 0.02);
    imported_free(&imported);
    unlink(file.path);
}

static void a_language_model_shares_the_word_embeddings(void **state)
{
    (void)state;
    Scratch file = scratch_text("");
    Imported imported;
    BertConfig config = small;
    config.head = BERT_MASKED_LANGUAGE_MODEL;
    write_model(&config, file.path);
    expect_import(&imported, file.path, false);
    expect_output(&imported, (Shape){3, {2, 7, 32}});
    assert_int_equal(imported.model.parameter_count, 5 + 3 * 16 + 5);
    assert_int_equal(elements_of_all(&imported), expected_elements(&config));
    imported_free(&imported);
    unlink(file.path);
}

static void fixed_dimensions_are_in_the_file(void **state)
{
    (void)state;
    Scratch file = scratch_text("");
    Imported imported;
    BertConfig config = small;
    config.batch = 3, config.sequence = 12;
    write_model(&config, file.path);
    import(&imported, file.path, false);
    assert_true(imported.ok);
    expect_output(&imported, (Shape){2, {3, 5}});
    imported_free(&imported);
    unlink(file.path);
}

static bool same_bytes(const char *a, const char *b)
{
    MappedFile first, second;
    Diagnostics diagnostics = {0};
    assert_true(file_map(&first, a, &diagnostics) && file_map(&second, b, &diagnostics));
    bool same = first.size == second.size && memcmp(first.bytes, second.bytes, first.size) == 0;
    file_unmap(&first);
    file_unmap(&second);
    return same;
}

static void the_seed_alone_decides(void **state)
{
    (void)state;
    Scratch a = scratch_text(""), b = scratch_text("");
    BertConfig config = small;
    write_model(&config, a.path);
    write_model(&config, b.path);
    assert_true(same_bytes(a.path, b.path));
    config.seed = 2;
    write_model(&config, b.path);
    assert_false(same_bytes(a.path, b.path));
    unlink(a.path);
    unlink(b.path);
}

static void absent_weights_are_missing(void **state)
{
    (void)state;
    Scratch file = scratch_text("");
    Imported imported;
    BertConfig config = small;
    config.weights = false;
    write_model(&config, file.path);
    import(&imported, file.path, false);
    assert_false(imported.ok);
    assert_int_equal(imported.diagnostics.exit_code, EXIT_BAD_INPUT);
    imported_free(&imported);
    expect_import(&imported, file.path, true);
    assert_null(find_parameter(&imported, "classifier.weight")->data);
    imported_free(&imported);
    unlink(file.path);
}

/* y = W x + b, with W larger than one piece of what is drawn at a time. */
static void write_linear(const char *path, int64_t most_inside)
{
    enum { ROWS = 300, COLUMNS = 301 };
    OnnxBuilder builder;
    onnx_builder_open(&builder, "linear", 17);
    onnx_builder_input(&builder, "x", ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT,
                       (BuilderDimension[]){{2, NULL}, {ROWS, NULL}}, 2);
    onnx_builder_output(&builder, "logits", ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT,
                        (BuilderDimension[]){{2, NULL}, {COLUMNS, NULL}}, 2);
    const char *bias = onnx_builder_weight(&builder, "linear", "bias", FILL_ONES, COLUMNS, 0);
    const char *weight = onnx_builder_weight(&builder, "linear", "weight", FILL_NORMAL, ROWS, COLUMNS);
    const char *product = onnx_builder_apply(&builder, "linear", "MatMul", "x", weight);
    Onnx__NodeProto *sum = onnx_builder_node(&builder, "linear", "Add", (const char *const[]){product, bias}, 2);
    onnx_node_name_output(&builder, sum, "logits");
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    const InitialWeights weights = {.present = true, .seed = 7, .deviation = 0.5, .most_inside = most_inside};
    assert_true(onnx_builder_write(&builder, path, &weights, &diagnostics));
    onnx_builder_close(&builder);
}

static void weights_beside_the_model_are_the_same(void **state)
{
    (void)state;
    Scratch inside = scratch_text(""), outside = scratch_text("");
    char data[80];
    snprintf(data, sizeof data, "%s.data", outside.path);
    write_linear(inside.path, 1 << 20);
    assert_int_equal(access(data, F_OK), -1);
    write_linear(outside.path, 0);
    assert_int_equal(access(data, F_OK), 0);
    Imported a, b;
    import(&a, inside.path, false);
    import(&b, outside.path, false);
    assert_true(a.ok && b.ok);
    for (int i = 0; i < 2; i++) {
        const char *name = i ? "linear.weight" : "linear.bias";
        const Value *first = find_parameter(&a, name), *second = find_parameter(&b, name);
        assert_true(shape_equal(&first->shape, &second->shape));
        assert_memory_equal(first->data, second->data, (size_t)shape_elements(&first->shape) * sizeof(float));
    }
    imported_free(&a);
    imported_free(&b);
    unlink(inside.path);
    unlink(outside.path);
    unlink(data);
}

static void what_cannot_be_written_is_reported(void **state)
{
    (void)state;
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    assert_false(bert_write(&small, scratch_absent().path, &diagnostics));
    assert_int_equal(diagnostics.exit_code, EXIT_BAD_INPUT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_classifier_has_the_parameters_of_its_kind),
        cmocka_unit_test(a_language_model_shares_the_word_embeddings),
        cmocka_unit_test(fixed_dimensions_are_in_the_file),
        cmocka_unit_test(the_seed_alone_decides),
        cmocka_unit_test(absent_weights_are_missing),
        cmocka_unit_test(weights_beside_the_model_are_the_same),
        cmocka_unit_test(what_cannot_be_written_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
