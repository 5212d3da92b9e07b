#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "base/safetensors.h"
#include "frontend/onnx/export.h"
#include "frontend/onnx/import.h"
#include "tests/common/graph_evaluator.h"
#include "tests/common/scratch.h"

typedef struct Imported {
    Graph graph;
    ImportedModel model;
    Diagnostics diagnostics;
    bool ok;
} Imported;

static const DimensionBinding small_dimensions[] = {{"batch", 2}, {"seq", 6}};

static void import(Imported *imported, const char *path, ImportOptions options)
{
    *imported = (Imported){0};
    if (!options.dimensions) {
        options.dimensions = small_dimensions;
        options.dimension_count = 2;
    }
    graph_init(&imported->graph, path);
    imported->ok = import_onnx(&imported->graph, &imported->model, path, &options, &imported->diagnostics);
    if (imported->ok) graph_verify(&imported->graph);
}

static void release(Imported *imported)
{
    graph_free(&imported->graph);
    imported_model_free(&imported->model);
    diagnostics_free(&imported->diagnostics);
}

static const char *data_path(const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, SKY_TEST_DATA "/%s.onnx", name);
    return path;
}

static const ImportedParameter *find_parameter(const Imported *imported, const char *name)
{
    for (size_t i = 0; i < imported->model.parameter_count; i++)
        if (strcmp(imported->model.parameters[i].name, name) == 0) return &imported->model.parameters[i];
    return NULL;
}

static size_t distinct_parameters(const Imported *imported)
{
    size_t count = 0;
    for (size_t i = 0; i < imported->model.parameter_count; i++) count += !imported->model.parameters[i].tied;
    return count;
}

static void assert_reported(const Imported *imported, int exit_code, const char *text)
{
    FREED char *report = diagnostics_text(&imported->diagnostics);
    if (imported->ok || imported->diagnostics.exit_code != exit_code || !strstr(report, text))
        fail_msg("exit code %d, no '%s' in: %s", imported->diagnostics.exit_code, text, report);
}

/* ---- BERT exports ---- */

/* Parameters as counted in the PyTorch modules that were exported. */
static const struct {
    const char *export;
    size_t names, parameters;
    bool dropout_off;
} exports[] = {
    {"bert/bert-nano-seqcls-opset11-dyn", 41, 41, false},
    {"bert/bert-nano-seqcls-opset13-dyn", 41, 41, false},
    {"bert/bert-nano-seqcls-opset13-dyn-loss", 41, 41, false},
    {"bert/bert-nano-seqcls-opset13-dyn-traindrop", 41, 41, true},
    {"bert/bert-nano-seqcls-opset14-dyn-nofold", 41, 41, false},
    {"bert/bert-nano-seqcls-opset14-fix", 41, 41, false},
    {"bert/bert-nano-seqcls-opset17-dyn", 41, 41, false},
    {"bert/bert-nano-seqcls-opset17-dyn-dedup-trap-eval-fold", 41, 41, false},
    {"bert/bert-nano-seqcls-opset17-dyn-dedup-trap-eval-nofold", 41, 41, false},
    {"bert/bert-nano-seqcls-opset17-dyn-dedup-trap-train-nofold", 41, 41, true},
    {"bert/bert-nano-seqcls-opset17-dyn-gelunew", 41, 41, false},
    {"bert/bert-nano-seqcls-opset17-dyn-idsonly", 41, 41, false},
    {"bert/bert-nano-seqcls-opset17-dyn-loss", 41, 41, false},
    {"bert/bert-nano-seqcls-opset17-dyn-nofold", 41, 41, false},
    {"bert/bert-nano-seqcls-opset17-dyn-relu", 41, 41, false},
    {"bert/bert-nano-seqcls-opset17-fix", 41, 41, false},
    {"bert/bert-nano24-seqcls-opset14-dyn-nofold", 393, 393, false},
    {"bert/bert-nano-mlm-opset17-dyn", 43, 42, false}, /* the decoder is the transposed word embeddings */
    {"bert/bert-nano-mlm-opset17-dyn-loss-nofold", 42, 42, false},
    {"bert/bert-nano-model-opset14-dyn", 39, 39, false},
    {"bert/bert-nano-qa-opset17-dyn", 39, 39, false},
    {"bert/bert-nano-tokcls-opset17-dyn", 39, 39, false},
    {"bert/distilbert-nano-seqcls-opset11-dyn", 40, 40, false},
    {"bert/roberta-nano-seqcls-opset14-dyn", 41, 41, false},
};

static void every_export_imports_with_its_parameters(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof exports / sizeof *exports; i++) {
        Imported imported;
        import(&imported, data_path(exports[i].export), (ImportOptions){.dropout_off = exports[i].dropout_off});
        char *report = diagnostics_text(&imported.diagnostics);
        if (!imported.ok) fail_msg("%s: %s", exports[i].export, report);
        free(report);
        if (imported.model.parameter_count != exports[i].names ||
            distinct_parameters(&imported) != exports[i].parameters)
            fail_msg("%s: %zu names of %zu parameters", exports[i].export, imported.model.parameter_count,
                     distinct_parameters(&imported));
        release(&imported);
    }
}

/* Loads the batch of a reference file into the graph's inputs; the graph has their shapes. */
static void load_inputs(Evaluator *evaluator, const SafeTensors *reference)
{
    const Graph *graph = evaluator->graph;
    for (size_t i = 0; i < graph->input_count; i++) {
        const Value *value = graph_value(graph, graph->inputs[i]);
        char name[128];
        snprintf(name, sizeof name, "in/%s", value->name);
        const SafeTensor *tensor = safetensors_find(reference, name);
        if (!tensor) fail_msg("no %s", name);
        assert_true(shape_equal(&tensor->shape, &value->shape));
        for (int64_t e = 0; e < shape_elements(&value->shape); e++)
            element_store_integer(value->dtype, evaluator->buffer[graph->inputs[i]], e,
                                  element_as_integer(tensor->dtype, tensor->data, e));
    }
}

static void logits_are_pytorchs(void **state)
{
    (void)state;
    static const char *const names[] = {"bert/bert-nano-seqcls-opset11-dyn", "bert/bert-nano-seqcls-opset13-dyn-loss",
                                        "bert/bert-nano-seqcls-opset14-dyn-nofold",
                                        "bert/bert-nano-seqcls-opset17-fix"};
    SafeTensors reference;
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    assert_true(safetensors_open(&reference, SKY_TEST_DATA "/bert/seqcls.ref.safetensors", &diagnostics));
    const SafeTensor *logits = safetensors_find(&reference, "logits"),
                     *ids = safetensors_find(&reference, "in/input_ids");
    const DimensionBinding dimensions[] = {{"batch", ids->shape.dim[0]}, {"seq", ids->shape.dim[1]}};
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        Imported imported;
        import(&imported, data_path(names[n]), (ImportOptions){.dimensions = dimensions, .dimension_count = 2});
        assert_true(imported.ok);
        graph_remove_dead(&imported.graph);
        Evaluator evaluator;
        evaluator_init(&evaluator, &imported.graph);
        load_inputs(&evaluator, &reference);
        assert_true(evaluator_run(&evaluator));
        const NamedValue *output = &imported.graph.outputs[imported.graph.output_count - 1];
        assert_string_equal(output->name, "logits");
        for (int64_t i = 0; i < shape_elements(&logits->shape); i++) {
            double expected = element_as_double(logits->dtype, logits->data, i),
                   found = element_as_double(DTYPE_F32, evaluator.buffer[output->value], i);
            if (fabs(expected - found) > 1e-6)
                fail_msg("%s: logit %d is %g, not %g", names[n], (int)i, found, expected);
        }
        evaluator_free(&evaluator);
        release(&imported);
    }
    safetensors_close(&reference);
}

static void a_loss_in_the_model_is_found(void **state)
{
    (void)state;
    Imported imported;
    import(&imported, data_path("bert/bert-nano-seqcls-opset13-dyn-loss"), (ImportOptions){0});
    assert_true(imported.ok);
    const Graph *graph = &imported.graph;
    assert_string_equal(graph->outputs[0].name, "loss");
    assert_int_equal(graph->loss, graph->outputs[0].value);
    assert_int_equal(graph->label_count, 1);
    assert_string_equal(graph_value(graph, graph->labels[0].input)->name, "labels");
    assert_int_equal(graph->labels[0].ignore_index, -100);
    assert_true(graph->loss_is_summed);
    assert_int_equal(graph_value(graph, graph->scalars)->role, ROLE_SCALARS);
    release(&imported);
}

/* ---- Parameters ---- */

static void merged_initializers_are_split_by_use(void **state)
{
    (void)state;
    const char *path = data_path("bert/bert-nano-seqcls-opset17-dyn-dedup-trap-eval-nofold");
    Imported imported;
    import(&imported, path, (ImportOptions){0});
    const ImportedParameter *first = find_parameter(&imported, "m.bert.embeddings.LayerNorm.weight"),
                            *last = find_parameter(&imported, "m.bert.embeddings.LayerNorm.weight#4");
    assert_non_null(first);
    assert_non_null(last);
    assert_null(find_parameter(&imported, "m.bert.embeddings.LayerNorm.weight#5"));
    assert_int_equal(first->initializer, last->initializer);
    assert_int_not_equal(first->value, last->value);
    assert_true(first->split == 0 && last->split == 4 && last->node > 0);
    assert_true(imported.diagnostics.warnings >= 3);
    release(&imported);

    import(&imported, path, (ImportOptions){.keep_ties = true});
    assert_int_equal(distinct_parameters(&imported), 21);
    release(&imported);
}

static void transposed_copies_are_tied(void **state)
{
    (void)state;
    const char *path = data_path("bert/bert-nano-mlm-opset17-dyn");
    Imported imported;
    import(&imported, path, (ImportOptions){0});
    const ImportedParameter *decoder = find_parameter(&imported, "onnx::MatMul_325");
    assert_true(decoder->tied && decoder->transposed);
    assert_string_equal(graph_value(&imported.graph, decoder->value)->name, "m.bert.embeddings.word_embeddings.weight");
    release(&imported);

    import(&imported, path, (ImportOptions){.untie = true});
    assert_int_equal(distinct_parameters(&imported), 43);
    release(&imported);
}

static void parameters_say_where_their_bytes_lie(void **state)
{
    (void)state;
    Imported imported;
    import(&imported, data_path("bert/bert-nano-seqcls-opset17-fix"), (ImportOptions){0});
    MappedFile file;
    assert_true(file_map(&file, data_path("bert/bert-nano-seqcls-opset17-fix"), &imported.diagnostics));
    for (size_t i = 0; i < imported.model.parameter_count; i++) {
        const ImportedParameter *parameter = &imported.model.parameters[i];
        assert_non_null(parameter->file);
        assert_memory_equal(file.bytes + parameter->offset, graph_value(&imported.graph, parameter->value)->data,
                            parameter->bytes);
    }
    file_unmap(&file);
    release(&imported);
}

/* ---- Dimensions ---- */

static void unbound_dimensions_are_named(void **state)
{
    (void)state;
    Imported imported;
    const DimensionBinding other = {"heads", 2};
    import(&imported, data_path("bert/bert-nano-seqcls-opset17-dyn"),
           (ImportOptions){.dimensions = &other, .dimension_count = 1});
    assert_reported(&imported, EXIT_BAD_INPUT, "--dim batch=8 --dim seq=8");
    release(&imported);
}

static void dimensions_come_from_options_then_inputs_then_the_default(void **state)
{
    (void)state;
    Imported imported;
    const DimensionBinding batch = {"batch", 3};
    const InputShape ids = {.name = "input_ids", .shape = {2, {9, 5}}};
    import(&imported, data_path("bert/bert-nano-seqcls-opset17-dyn"),
           (ImportOptions){.dimensions = &batch, .dimension_count = 1, .input_shapes = &ids, .input_shape_count = 1});
    assert_true(imported.ok);
    const Shape *shape = &graph_value(&imported.graph, imported.graph.inputs[0])->shape;
    assert_true(shape->dim[0] == 3 && shape->dim[1] == 5);
    release(&imported);
    import(&imported, data_path("bert/bert-nano-seqcls-opset17-dyn"),
           (ImportOptions){.dimensions = &batch, .dimension_count = 1, .default_dimension = 4});
    assert_true(imported.ok);
    assert_int_equal(graph_value(&imported.graph, imported.graph.inputs[0])->shape.dim[1], 4);
    release(&imported);
}

/* ---- Errors ---- */

static void other_files_are_refused_with_the_reason(void **state)
{
    (void)state;
    Imported imported;
    import(&imported, "/no/such.onnx", (ImportOptions){0});
    assert_reported(&imported, EXIT_BAD_INPUT, "/no/such.onnx: error: cannot open");
    release(&imported);

    Scratch text = scratch_text("This is not a model.\n");
    import(&imported, text.path, (ImportOptions){0});
    assert_reported(&imported, EXIT_BAD_INPUT, "is text, not an ONNX model");
    release(&imported);
    unlink(text.path);

    MappedFile whole;
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    assert_true(file_map(&whole, data_path("bert/bert-nano-seqcls-opset17-fix"), &diagnostics));
    Scratch cut = scratch_file(whole.bytes, whole.size / 2);
    import(&imported, cut.path, (ImportOptions){0});
    assert_reported(&imported, EXIT_BAD_INPUT, "graph is longer than the file, which is cut short");
    release(&imported);
    unlink(cut.path);
    file_unmap(&whole);
}

/* The model with other operators in every seventh node. */
static Scratch with_operators(const char *path, const char *const *ops, size_t count)
{
    OnnxModel model;
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    assert_true(onnx_model_open(&model, path, false, &diagnostics));
    Onnx__GraphProto *graph = model.proto->graph;
    for (size_t i = 0; i < count; i++) graph->node[i * 7]->op_type = (char *)ops[i];
    size_t size = onnx__model_proto__get_packed_size(model.proto);
    FREED uint8_t *bytes = memory_allocate(size);
    onnx__model_proto__pack(model.proto, bytes);
    Scratch scratch = scratch_file(bytes, size);
    onnx_model_close(&model);
    return scratch;
}

static void all_unsupported_operators_are_listed(void **state)
{
    (void)state;
    Scratch scratch = with_operators(data_path("bert/bert-nano-seqcls-opset17-fix"),
                                     (const char *[]){"NonMaxSuppression", "Loop"}, 2);
    Imported imported;
    import(&imported, scratch.path, (ImportOptions){0});
    assert_reported(&imported, EXIT_UNSUPPORTED_OPERATOR, "node '/m/bert/Constant' (NonMaxSuppression, opset 17)");
    assert_reported(&imported, EXIT_UNSUPPORTED_OPERATOR, "node '/m/bert/Sub' (Loop, opset 17)");
    assert_int_equal(imported.diagnostics.errors, 2);
    release(&imported);
    unlink(scratch.path);
}

static int count_dropouts(const Graph *graph, double ratio)
{
    int count = 0;
    for (NodeId n = 1; n < graph->node_count; n++) {
        const Node *node = graph_node(graph, n);
        if (node->op != OP_Dropout) continue;
        assert_true(fabs(node_float(node, "ratio", 0) - ratio) < 1e-7);
        count++;
    }
    return count;
}

static void dropout_is_kept_changed_or_taken_out(void **state)
{
    (void)state;
    static const struct {
        ImportOptions options;
        int count;
        double ratio;
    } cases[] = {{{0}, 8, 0.1},
                 {{.dropout_off = true}, 0, 0},
                 {{.dropout_given = true, .dropout = 0.25}, 8, 0.25},
                 {{.dropout_given = true, .dropout = 0}, 0, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Imported imported;
        import(&imported, data_path("bert/bert-nano-seqcls-opset13-dyn-traindrop"), cases[i].options);
        assert_true(imported.ok);
        assert_int_equal(count_dropouts(&imported.graph, cases[i].ratio), cases[i].count);
        release(&imported);
    }
}

/* ---- Export ---- */

/* Every parameter gets its position in the list as value of every element. */
static bool numbered(void *context, const char *name, TrainedTensor *trained)
{
    const Imported *imported = context;
    const ImportedParameter *parameter = find_parameter(imported, name);
    if (!parameter) return false;
    Arena *arena = &((Imported *)context)->model.arena;
    *trained = (TrainedTensor){DTYPE_F32, graph_value(&imported->graph, parameter->value)->shape, NULL, 0};
    int64_t elements = shape_elements(&trained->shape);
    float *data = arena_new_array(arena, float, (size_t)elements);
    for (int64_t i = 0; i < elements; i++) data[i] = (float)(parameter - imported->model.parameters);
    trained->data = data;
    return true;
}

static void export_gives_every_split_an_initializer(void **state)
{
    (void)state;
    const char *path = data_path("bert/bert-nano-seqcls-opset17-dyn-dedup-trap-eval-nofold");
    Imported before, after;
    import(&before, path, (ImportOptions){0});
    Scratch scratch = scratch_text("");
    assert_true(export_onnx(path, scratch.path, numbered, &before, &before.diagnostics));
    import(&after, scratch.path, (ImportOptions){.untie = true});
    assert_true(after.ok);
    assert_int_equal(after.model.parameter_count, 41);
    assert_int_equal(after.model.onnx.proto->graph->n_initializer, 41);
    for (size_t i = 0; i < 41; i++) {
        const ImportedParameter *parameter = find_parameter(&after, before.model.parameters[i].name);
        assert_non_null(parameter);
        assert_true(element_as_double(DTYPE_F32, graph_value(&after.graph, parameter->value)->data, 0) == (double)i);
    }
    release(&after);
    release(&before);
    unlink(scratch.path);
}

static bool nothing(void *context, const char *name, TrainedTensor *trained)
{
    (void)context, (void)name, (void)trained;
    return false;
}

static void export_misses_no_parameter_silently(void **state)
{
    (void)state;
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    Scratch scratch = scratch_text("untouched");
    assert_false(
        export_onnx(data_path("bert/bert-nano-seqcls-opset17-fix"), scratch.path, nothing, NULL, &diagnostics));
    assert_int_equal(diagnostics.errors, 41);
    MappedFile file;
    assert_true(file_map(&file, scratch.path, &diagnostics));
    assert_int_equal(file.size, strlen("untouched"));
    file_unmap(&file);
    unlink(scratch.path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_export_imports_with_its_parameters),
        cmocka_unit_test(logits_are_pytorchs),
        cmocka_unit_test(a_loss_in_the_model_is_found),
        cmocka_unit_test(merged_initializers_are_split_by_use),
        cmocka_unit_test(transposed_copies_are_tied),
        cmocka_unit_test(parameters_say_where_their_bytes_lie),
        cmocka_unit_test(unbound_dimensions_are_named),
        cmocka_unit_test(dimensions_come_from_options_then_inputs_then_the_default),
        cmocka_unit_test(other_files_are_refused_with_the_reason),
        cmocka_unit_test(all_unsupported_operators_are_listed),
        cmocka_unit_test(dropout_is_kept_changed_or_taken_out),
        cmocka_unit_test(export_gives_every_split_an_initializer),
        cmocka_unit_test(export_misses_no_parameter_silently),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
