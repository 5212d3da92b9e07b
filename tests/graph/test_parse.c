/* What is printed is read back: every graph of tests/data/bert, after every pass; and what is no such text is refused
 * with its line. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>

#include "base/buffer.h"
#include "base/random.h"
#include "frontend/onnx/import.h"
#include "graph/ops/add_node.h"
#include "graph/passes/passes.h"
#include "tests/common/scratch.h"
#include "tests/graph/parse.h"

/* Fails unless the graph's text, read, is of a graph with that text. */
static void check_round_trip(const Graph *graph, const char *what)
{
    Graph again;
    Diagnostics diagnostics = {0};
    Buffer text = {0}, second = {0};
    graph_init(&again, what);
    graph_print(graph, &text);
    if (!graph_parse(&again, buffer_text(&text), &diagnostics) || !graph_check_types(&again, &diagnostics))
        fail_msg("%s", diagnostics_text(&diagnostics));
    graph_verify(&again);
    graph_print(&again, &second);
    assert_string_equal(buffer_text(&second), buffer_text(&text));
    buffer_free(&text);
    buffer_free(&second);
    graph_free(&again);
}

static void graphs_of_models_are_read_back(void **state)
{
    (void)state;
    enum { MODELS = 23 /* and one without a head, which has no loss */ };
    int count = 0;
    DIR *folder = opendir(SKY_TEST_DATA "/bert");
    assert_non_null(folder);
    for (const struct dirent *entry; (entry = readdir(folder));) {
        char path[1024];
        const char *suffix = strrchr(entry->d_name, '.');
        if (!suffix || strcmp(suffix, ".onnx") != 0) continue;
        snprintf(path, sizeof path, SKY_TEST_DATA "/bert/%s", entry->d_name);
        Graph graph;
        ImportedModel model;
        OptimizerSpec optimizer;
        FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
        graph_init(&graph, path);
        assert_true(optimizer_parse(&optimizer, "adamw", &diagnostics));
        const PassOptions options = {
            .want_loss = true,
            .loss = strstr(path, "-qa-") ? "cross-entropy:start_logits:starts+cross-entropy:end_logits:ends" : NULL,
            .dropout = count % 2 ? 0.1 : 0,
            .differentiate = true,
            .optimizer = &optimizer};
        bool ok = import_onnx(&graph, &model, path, &(ImportOptions){.default_dimension = 8}, &diagnostics);
        for (const Pass *pass = passes; ok && pass->name; pass++) {
            ok = pass_run(pass, &graph, &options, &model.folding, &diagnostics);
            if (ok) check_round_trip(&graph, pass->name);
        }
        FREED char *report = diagnostics_text(&diagnostics);
        if (!ok && !strstr(report, "no loss is given")) fail_msg("%s", report);
        count += ok;
        graph_free(&graph);
        imported_model_free(&model);
    }
    closedir(folder);
    assert_int_equal(count, MODELS);
}

/* Names that a file may have, numbers that need all their digits, layers of one name, all kinds of values. */
static void unusual_graphs_are_read_back(void **state)
{
    (void)state;
    static const char text[] = "layer a\\x20layer\n"
                               "layer twice\n"
                               "layer twice\n"
                               "input %1 : f64[2]  # line\\x0abreak \\x5cx # not the end\n"
                               "parameter %2 : f64[2]  # w\n"
                               "parameter %3 : f64[2] of %2 used as \"encoder \\x22w\\x22\"  # w (use 2)\n"
                               "constant %4 : f64[4] = [0.1*2, 1.0000000000000002, -inf]  # table\n"
                               "constant %5 : i64[0] = []  # \n"
                               "constant %6 : bool[3] = [1, 0*2]  # mask\n"
                               "input %7 : i64[2,3]  # classes\n"
                               "constant %8 : f32[2] = [0.5, 1]  # weights\n"
                               "input %13 : f32[2]  # numbers\n"
                               "forward:\n"
                               "  %9 = Add(%1, f64[1] 1.0000000000000002) : f64[2]  @a\\x20layer  # \n"
                               "  %10 = Mul(%9, %2) : f64[2]  @twice  # n\n"
                               "  %11 = Mul(%10, %3) {a=1, b=1.0, c=1e-30, d=\"x, \\x22\", e=[-1,2], f=nan} : f64[2]"
                               "  @twice:2  # n\n"
                               "backward:\n"
                               "  %12 = Neg(%11) : f64[2]  @twice:2  ^%11  # n\n"
                               "output f64 3  # number\n"
                               "output %11  # y\n"
                               "labels %7 ignoring -100 weighted %8 shifted\n"
                               "labels %7 ignoring -100\n"
                               "labels %1 ignoring 2 probabilities\n"
                               "labels %13 numbers\n";
    Graph graph;
    Diagnostics diagnostics = {0};
    FREED_WITH(buffer_free) Buffer again = {0};
    graph_init(&graph, "text");
    if (!graph_parse(&graph, text, &diagnostics)) fail_msg("%s", diagnostics_text(&diagnostics));
    graph_verify(&graph);
    graph_print(&graph, &again);
    assert_string_equal(buffer_text(&again), text);
    assert_string_equal(graph_value(&graph, 1)->name, "line\nbreak \\x # not the end");
    assert_string_equal(graph_value(&graph, 3)->use, "encoder \"w\"");
    assert_int_equal(graph_node(&graph, 3)->layer, 2);
    assert_int_equal(graph_node(&graph, 4)->differentiates, 3);
    graph_free(&graph);
}

static const struct {
    const char *text, *problem;
} refused[] = {
    {"hello\n", "text:1:1: error: expected a value"},
    {"\ninput %1 : f32[2\n", "text:2:17: error: expected ','"},
    {"input %1 : f31[2]  # x\n", "'f31' is no type"},
    {"input %1 : f32[-1]  # x\n", "impossible shape"},
    {"input %1 : f32[4611686018427387904,4]  # x\n", "impossible shape"},
    {"input %1 : f32[1,1,1,1,1,1,1,1,1]  # x\n", "more than 8 dimensions"},
    {"input %1 : f32[99999999999999999999]  # x\n", "expected an integer"},
    {"input %0 : f32[]  # x\n", "numbers from 1"},
    {"input %4294967297 : f32[]  # x\n", "numbers from 1"},
    {"input %1 : f32[]  # x\ninput %1 : f32[]  # y\n", "text:2:9: error: a second value %1"},
    {"input %1 : f32[] x\n", "expected '# '"},
    {"input %1 : f32[]  # x\\xg0\n", "expected a byte"},
    {"input %1 : f32[]  # x\\x00\n", "expected a byte"},
    {"state %1 : f32[]  # m\n", "expected the parameter"},
    {"parameter %1 : f32[] of %2  # m\ninput %2 : f32[]  # x\n", "there is no value %2 yet"},
    {"constant %1 : f32[2] = [1]\n", "1 elements are missing"},
    {"constant %1 : f32[2] = [1, 2, 3]\n", "more than 2 elements"},
    {"constant %1 : f32[2] = [1*3]\n", "not so many elements"},
    {"constant %1 : f32[2] = [1*-1]\n", "not so many elements"},
    {"constant %1 : f32[1000000000000] = [0*1000000000000]\n", "too large"},
    {"scalars %1 : f32[8]  # a\nscalars %2 : f32[8]  # b\n", "a second value that holds"},
    {"  %2 = Neg(%1) : f32[]  # n\n", "there is no value %1 yet"},
    {"  %1 = Nothing() : f32[]  # n\n", "there is no operator"},
    {"  %1 = Neg() : f32[]  # n\n", "does not take 0 inputs"},
    {"  %1 = Neg(_) : f32[]  # n\n", "input 0 of Neg is missing"},
    {"  %1, %2 = Neg(f32 1) : f32[] : f32[]  # n\n", "has 1 outputs, not 2"},
    {"  %1 = Neg(f32[2] 1) : f32[]  # n\n", "has one element"},
    {"  %1 = Neg(f32 1) : f32[]  @x  # n\n", "there is no layer 'x'"},
    {"  %1 = Neg(f32 1) : f32[]  ^%1  # n\n", "not made by a node before"},
    {"  %1 = Neg(f32 1) {a} : f32[]  # n\n", "expected '='"},
    {"  %1 = Neg(f32 1) : f32[]\n", "expected '# '"},
    {"update:\n  %1 = Neg(f32 1) : f32[]  # n\nforward:\n  %2 = Neg(%1) : f32[]  # n\n", "a later phase"},
    {"loss f32 1\nloss f32 1\n", "a second loss"},
    {"labels %1 ignoring 0\n", "there is no value"},
    {"input %1 : i64[2]  # x\nlabels %1\n", "expected 'ignoring'"},
    {"input %1 : i64[2]  # x\nlabels %1 ignoring 0 weighted %1\n", "cannot be weights"},
    {"input %1 : i64[2]  # x\nlabels %1 ignoring 0\nlabels %1 numbers\n", "too many labels"},
    {"input %1 : f32[]  # x\ngradient %1 of %1\n", "is no parameter"},
    {"parameter %1 : f32[]  # x\ngradient %1 of %1\n", "cannot be a gradient"},
};

static void other_texts_are_refused_with_their_line(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        Graph graph;
        Diagnostics diagnostics = {0};
        graph_init(&graph, "text");
        if (graph_parse(&graph, refused[i].text, &diagnostics)) fail_msg("accepted: %s", refused[i].text);
        assert_int_equal(diagnostics.errors, 1);
        expect_complaint(&diagnostics, EXIT_BAD_INPUT, refused[i].problem);
        graph_free(&graph);
    }
}

/* Whatever stands in a text, reading ends, and what was read has the invariants of a graph. */
static void damaged_texts_do_no_harm(void **state)
{
    (void)state;
    static const char text[] = "layer a\ninput %1 : f32[2]  # x\nparameter %2 : f32[2]  # w\n"
                               "constant %3 : i64[4] = [1, 2*3]\nforward:\n  %4 = Mul(%1, %2) : f32[2]  @a  # n\n"
                               "  %5 = ReduceSum(%4) {axes=[0], keepdims=0} : f32[]  @a  # n\nbackward:\n"
                               "  %6, %7 = AccumulateGradient(%1) : f32[2] : f32[8,2]  @a  ^%4  # n\n"
                               "output %4  # y\nloss %5 summed\ngradient %6 of %2\n";
    static const char bytes[] = "%1290[]{}()*,:=@^#\\x\"\n -.e_f";
    uint64_t seed = 1;
    int accepted = 0;
    for (int round = 0; round < 20000; round++) {
        char damaged[sizeof text];
        memcpy(damaged, text, sizeof text);
        for (int i = 0; i < 1 + round % 3; i++) {
            size_t at = random_draw_below(&seed, sizeof text - 1);
            damaged[at] = bytes[random_draw_below(&seed, sizeof bytes - 1)];
        }
        Graph graph;
        FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
        graph_init(&graph, "text");
        if (graph_parse(&graph, damaged, &diagnostics)) {
            graph_verify(&graph);
            accepted += graph_check_types(&graph, &diagnostics);
        }
        graph_free(&graph);
    }
    assert_true(accepted > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(graphs_of_models_are_read_back),
        cmocka_unit_test(unusual_graphs_are_read_back),
        cmocka_unit_test(other_texts_are_refused_with_their_line),
        cmocka_unit_test(damaged_texts_do_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
