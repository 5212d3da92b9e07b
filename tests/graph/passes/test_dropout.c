/* Dropout in graphs: where it is put, and that its mask is that of the whole batch. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "codegen/stage/call_fusion.h"
#include "frontend/onnx/import.h"
#include "graph/ops/add_node.h"
#include "graph/ops/operator.h"
#include "graph/passes/passes.h"
#include "runtime/program/step.h"
#include "tests/common/graph_evaluator.h"
#include "tests/common/scratch.h"

enum { ROWS = 6, WIDTH = 40, ELEMENTS = ROWS * WIDTH };

/* ---- The mask ---- */

/* Drops a quarter of 1, 2, 3 ...: rows first ... first + rows - 1 of a batch of ROWS. */
static void drop(const char *name, int64_t first, int64_t rows, bool training, int64_t step, float *result)
{
    Graph graph;
    Evaluator evaluator;
    Diagnostics diagnostics = {0};
    graph_init(&graph, "test");
    Shape shape = {2, {rows, WIDTH}};
    ValueId x = graph_add_input(&graph, "x", DTYPE_F32, &shape);
    ValueId y = graph_add_dropout(&graph, x, 0.25, (NodeOrigin){.name = name}, &diagnostics);
    assert_true(y);
    graph_add_output(&graph, "y", y);
    evaluator_init(&evaluator, &graph);
    float *input = evaluator.buffer[x], *scalars = evaluator.buffer[graph.scalars];
    for (int64_t i = 0; i < rows * WIDTH; i++) input[i] = (float)(1 + first * WIDTH + i);
    if (training) step_scalars_drop(scalars, 11, step);
    step_scalars_rows(scalars, first, 1);
    assert_true(evaluator_run(&evaluator));
    memcpy(result, evaluator.buffer[y], (size_t)(rows * WIDTH) * sizeof *result);
    evaluator_free(&evaluator);
    graph_free(&graph);
}

static void micro_batches_have_the_mask_of_the_batch(void **state)
{
    (void)state;
    float whole[ELEMENTS], parts[ELEMENTS];
    drop("a", 0, ROWS, true, 5, whole);
    for (int64_t size = 1; size < ROWS; size++) {
        for (int64_t first = 0; first < ROWS; first += size)
            drop("a", first, first + size < ROWS ? size : ROWS - first, true, 5, parts + first * WIDTH);
        assert_memory_equal(parts, whole, sizeof whole);
    }
}

static void elements_are_kept_and_scaled_or_dropped(void **state)
{
    (void)state;
    enum { STEPS = 200 };
    float result[ELEMENTS];
    double dropped = 0;
    for (int step = 0; step < STEPS; step++) {
        drop("a", 0, ROWS, true, step, result);
        for (int i = 0; i < ELEMENTS; i++) {
            dropped += result[i] == 0;
            if (result[i] != 0) assert_true(fabs(result[i] - (1 + i) / 0.75) < 1e-5 * (1 + i));
        }
    }
    assert_true(fabs(dropped - 0.25 * STEPS * ELEMENTS) < 5 * sqrt(0.1875 * STEPS * ELEMENTS));
    drop("a", 0, ROWS, false, 0, result);
    for (int i = 0; i < ELEMENTS; i++) assert_true(result[i] == (float)(1 + i));
}

static void steps_and_nodes_have_masks_of_their_own(void **state)
{
    (void)state;
    float a[ELEMENTS], other_step[ELEMENTS], other_node[ELEMENTS];
    drop("a", 0, ROWS, true, 0, a);
    drop("a", 0, ROWS, true, 1, other_step);
    drop("b", 0, ROWS, true, 0, other_node);
    assert_memory_not_equal(a, other_step, sizeof a);
    assert_memory_not_equal(a, other_node, sizeof a);
    Graph graph;
    Diagnostics diagnostics = {0};
    graph_init(&graph, "test");
    ValueId x = graph_add_input(&graph, "x", DTYPE_F32, &(Shape){2, {ROWS, WIDTH}}), key[2];
    for (int i = 0; i < 2; i++) {
        ValueId y = graph_add_dropout(&graph, x, 0.25, (NodeOrigin){.name = "same"}, &diagnostics);
        key[i] = graph_node(&graph, graph_value(&graph, y)->producer)->inputs[1];
    }
    assert_memory_not_equal(graph_value(&graph, key[0])->data, graph_value(&graph, key[1])->data, sizeof(int64_t));
    graph_free(&graph);
}

/* Dropout of what a softmax makes: joined to it, whether or not something else reads that too. */
static void dropout_joins_what_makes_its_input(void **state)
{
    (void)state;
    for (int kept = 0; kept < 2; kept++) {
        Graph graph;
        Evaluator evaluator;
        Diagnostics diagnostics = {0};
        float result[2][ELEMENTS];
        graph_init(&graph, "test");
        ValueId x = graph_add_input(&graph, "x", DTYPE_F32, &(Shape){2, {ROWS, WIDTH}}), y;
        NodeOrigin origin = {.name = "n"};
        assert_true(graph_add_node(&graph, OP_Softmax, origin, &x, 1, NULL, 0, &y, 1, &diagnostics));
        ValueId dropped = graph_add_dropout(&graph, y, 0.25, origin, &diagnostics);
        graph_add_output(&graph, "dropped", dropped);
        for (int fused = 0; fused < 2; fused++) {
            evaluator_init(&evaluator, &graph);
            FREED bool *keep = memory_allocate(graph.value_count);
            keep[dropped] = true;
            keep[y] = kept;
            size_t count = evaluator.lowering.call_count, live = 0;
            ValueArrays *arrays = value_arrays_create(graph.value_count);
            if (fused) fuse_calls(&evaluator.lowering, 0, count, keep, arrays);
            value_arrays_free(arrays);
            for (size_t i = 0; i < count; i++)
                if (!evaluator.lowering.calls[i].dead) evaluator.lowering.calls[live++] = evaluator.lowering.calls[i];
            evaluator.lowering.call_count = live;
            assert_int_equal(live, fused ? 1 : 2);
            for (int i = 0; i < ELEMENTS; i++) ((float *)evaluator.buffer[x])[i] = (float)sin(i);
            step_scalars_drop(evaluator.buffer[graph.scalars], 1, 2);
            assert_true(evaluator_run(&evaluator));
            memcpy(result[fused], evaluator.buffer[dropped], sizeof result[fused]);
            double sum = 0;
            for (int i = 0; i < ELEMENTS; i++) sum += ((float *)evaluator.buffer[y])[i];
            if (kept) assert_true(fabs(sum - ROWS) < 1e-5);
            evaluator_free(&evaluator);
        }
        for (int i = 0; i < ELEMENTS; i++) assert_true(fabsf(result[0][i] - result[1][i]) < 1e-7f);
        graph_free(&graph);
    }
}

/* ---- Places ---- */

typedef struct Loaded {
    Graph graph;
    ImportedModel model;
    Diagnostics diagnostics;
} Loaded;

static void load(Loaded *loaded, const char *name, ImportOptions import)
{
    static const DimensionBinding dimensions[] = {{"batch", 2}, {"seq", 8}};
    static char path[512];
    *loaded = (Loaded){0};
    snprintf(path, sizeof path, SKY_TEST_DATA "/bert/%s.onnx", name);
    import.dimensions = dimensions;
    import.dimension_count = 2;
    graph_init(&loaded->graph, path);
    if (!import_onnx(&loaded->graph, &loaded->model, path, &import, &loaded->diagnostics))
        fail_msg("%s", diagnostics_text(&loaded->diagnostics));
    graph_remove_dead(&loaded->graph);
    fuse_composites(&loaded->graph, &(PassOptions){0}, &loaded->diagnostics);
    if (import.dropout_given)
        assert_true(insert_dropout(&loaded->graph, &(PassOptions){.dropout = import.dropout}, &loaded->diagnostics));
    prune_unread(&loaded->graph, &(PassOptions){0}, &loaded->diagnostics);
    graph_verify(&loaded->graph);
}

static void release(Loaded *loaded)
{
    graph_free(&loaded->graph);
    imported_model_free(&loaded->model);
    diagnostics_free(&loaded->diagnostics);
}

/* The operators and shapes before and after every Dropout. */
static void describe(const Graph *graph, Buffer *text)
{
    for (NodeId n = 1; n < graph->node_count; n++) {
        const Node *node = graph_node(graph, n);
        if (node->op != OP_Dropout) continue;
        char shape[256];
        NodeId before = graph_value(graph, node->inputs[0])->producer;
        buffer_print(text, "%s %s ->", opcodes[graph_node(graph, before)->op].name,
                     shape_format(&graph_value(graph, node->outputs[0])->shape, shape));
        for (NodeId r = 1; r < graph->node_count; r++)
            for (int i = 0; i < graph_node(graph, r)->input_count; i++)
                if (graph_node(graph, r)->inputs[i] == node->outputs[0])
                    buffer_print(text, " %s", opcodes[graph_node(graph, r)->op].name);
        buffer_print(text, "\n");
    }
}

static void dropout_goes_where_bert_has_it(void **state)
{
    (void)state;
    Loaded exported, inserted;
    Buffer wanted = {0}, found = {0};
    load(&exported, "bert-nano-seqcls-opset13-dyn-traindrop", (ImportOptions){0});
    load(&inserted, "bert-nano-seqcls-opset13-dyn", (ImportOptions){.dropout_given = true, .dropout = 0.1});
    describe(&exported.graph, &wanted);
    describe(&inserted.graph, &found);
    assert_string_equal(buffer_text(&found), buffer_text(&wanted));
    buffer_free(&wanted);
    buffer_free(&found);
    release(&exported);
    release(&inserted);
}

static void all_families_have_places(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int places;
    } cases[] = {{"bert-nano-seqcls-opset17-dyn", 8},
                 {"bert-nano-seqcls-opset17-dyn-relu", 8},
                 {"bert-nano-seqcls-opset11-dyn", 8},
                 {"bert-nano-tokcls-opset17-dyn", 8},
                 {"bert-nano-qa-opset17-dyn", 7},
                 {"bert-nano-mlm-opset17-dyn", 7},
                 {"roberta-nano-seqcls-opset14-dyn", 8},
                 {"distilbert-nano-seqcls-opset11-dyn", 8},
                 {"bert-nano-seqcls-opset17-dyn-gelunew", 8}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Loaded loaded;
        FREED_WITH(buffer_free) Buffer text = {0};
        load(&loaded, cases[i].name, (ImportOptions){.dropout_given = true, .dropout = 0.1});
        describe(&loaded.graph, &text);
        int lines = 0;
        for (const char *c = buffer_text(&text); *c; c++) lines += *c == '\n';
        FREED char *report = diagnostics_text(&loaded.diagnostics);
        if (lines != cases[i].places || strstr(report, "dropout goes") || strstr(report, "to drop elements"))
            fail_msg("%s: %s%s", cases[i].name, buffer_text(&text), report);
        release(&loaded);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(micro_batches_have_the_mask_of_the_batch),
        cmocka_unit_test(elements_are_kept_and_scaled_or_dropped),
        cmocka_unit_test(steps_and_nodes_have_masks_of_their_own),
        cmocka_unit_test(dropout_joins_what_makes_its_input),
        cmocka_unit_test(dropout_goes_where_bert_has_it),
        cmocka_unit_test(all_families_have_places),
    };
    return cmocka_run_group_tests_name("dropout", tests, NULL, NULL);
}
