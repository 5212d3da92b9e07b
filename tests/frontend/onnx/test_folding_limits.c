/* Models of some hundred bytes that ask for constants of 10^12 elements, or for as many products: refused, or left to
 * be computed at run time, before anything of that size is allocated. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "frontend/onnx/import.h"
#include "graph/passes/fold.h"
#include "tests/common/limits.h"
#include "tests/common/scratch.h"
#include "tests/frontend/onnx/model_builder.h"

/* Imports the model within the limits of time and memory; constants of its graph must keep to those of folding. */
static bool import_limited(const char *path, Diagnostics *diagnostics)
{
    Graph graph;
    ImportedModel model;
    Limits limits = limits_begin();
    graph_init(&graph, path);
    bool ok = import_onnx(&graph, &model, path, &(ImportOptions){0}, diagnostics);
    double seconds = limits_end(&limits);
    if (seconds > LIMIT_SECONDS) fail_msg("%s: took %.1f s", path, seconds);
    size_t constants = 0;
    for (ValueId v = 1; v < graph.value_count; v++) {
        const Value *value = graph_value(&graph, v);
        if (value->role == ROLE_CONSTANT) constants += (size_t)shape_elements(&value->shape) * dtype_size(value->dtype);
    }
    assert_true(constants <= FOLD_LIMIT_BYTES + 4096);
    assert_true(model.folding.iterations <= FOLD_LIMIT_ITERATIONS);
    graph_free(&graph);
    imported_model_free(&model);
    return ok;
}

/* Models of some hundred bytes that would fold 6e10 products, 40 times 60 MB, or a constant of gigabytes. */
static void committed_models_are_within_limits(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        bool accepted; /* what is not folded can still be computed at run time */
    } models[] = {{"product", true}, {"many", true}, {"range", false}, {"cumsum", false}};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        char path[512];
        FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
        snprintf(path, sizeof path, SKY_TEST_DATA "/malformed/folding/%s.onnx", models[i].name);
        assert_int_equal(import_limited(path, &diagnostics), models[i].accepted);
    }
}

/* Imports the built model and frees the builder. */
static void expect(ModelBuilder *builder, const char *what, const char *problem)
{
    size_t size;
    const unsigned char *bytes = builder_end(builder, &size);
    Scratch file = scratch_file(bytes, size);
    Diagnostics diagnostics = {0};
    bool ok = import_limited(file.path, &diagnostics);
    char *report = diagnostics_text(&diagnostics);
    if (ok || !strstr(report, problem)) fail_msg("%s: expected '%s': %s", what, problem, ok ? "accepted" : report);
    free(report);
    diagnostics_free(&diagnostics);
    unlink(file.path);
    arena_free(&builder->arena);
}

/* A node over constants that would make 10^12 elements. */
typedef struct Bomb {
    const char *op, *problem;
    BuilderConstant inputs[3];
    int input_count;
} Bomb;

static const Bomb bombs[] = {
    {"ConstantOfShape", "too large", {INTEGERS(1e12)}, 1},
    {"ConstantOfShape", "too large", {INTEGERS(1e6, 1e6)}, 1},
    {"ConstantOfShape", "too large", {INTEGERS(1e12, 0)}, 1}, /* nothing now, but not when the 0 is reshaped away */
    {"ConstantOfShape", "too large", {INTEGERS(4294967296, 4294967296, 4294967296)}, 1},
    {"ConstantOfShape", "too large", {INTEGERS(-1e12)}, 1},
    {"Expand", "too large", {FLOATS(1), INTEGERS(1e12)}, 2},
    {"Expand", "too large", {INTEGERS(1), INTEGERS(1e6, 1e6)}, 2},
    {"Tile", "too large", {FLOATS(1), INTEGERS(1e12)}, 2},
    {"Tile", "too large", {FLOATS(1, 2, 3, 4), INTEGERS(9e18)}, 2}, /* the product overflows */
    {"Tile", "too large", {FLOATS(1, 2), INTEGERS(-1e12)}, 2},
    {"Range", "too large", {INTEGER(0), INTEGER(1e12), INTEGER(1)}, 3},
    {"Range", "too large", {INTEGER(9e18), INTEGER(-9e18), INTEGER(-1)}, 3}, /* the difference overflows */
    {"Range", "too large", {{1, 0, {0}}, {1, 0, {1e12}}, {1, 0, {1}}}, 3},
    {"Range", "too large", {{1, 0, {0}}, {1, 0, {1e38}}, {1, 0, {1e-38}}}, 3},
    {"Pad", "too large", {FLOATS(1), INTEGERS(0, 1e12)}, 2},
    {"Pad", "too large", {FLOATS(1), INTEGERS(9e18, 9e18)}, 2},
    {"Pad", "removes more elements than the axis has", {FLOATS(1), INTEGERS(-9e18, 0)}, 2},
    {"OneHot", "impossible depth", {INTEGERS(0, 1), INTEGER(1e12), FLOATS(0, 1)}, 3},
    {"OneHot", "exceed", {INTEGERS(0, 1), INTEGER(1e8), FLOATS(0, 1)}, 3},
};

static void a_single_operator_cannot_allocate_without_limit(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bombs / sizeof *bombs; i++) {
        const Bomb *bomb = &bombs[i];
        ModelBuilder builder;
        char *inputs[3];
        builder_begin(&builder);
        for (int j = 0; j < bomb->input_count; j++) inputs[j] = builder_constant(&builder, &bomb->inputs[j]);
        builder_node(&builder, bomb->op, "y", inputs, (size_t)bomb->input_count);
        expect(&builder, bomb->op, bomb->problem);
    }
}

/* A constant of this shape, which costs little, as the value `name`. */
static void expand(ModelBuilder *builder, char *name, double rows, double columns)
{
    BuilderConstant one = FLOATS(1), shape = INTEGERS(rows, columns);
    char *inputs[] = {builder_constant(builder, &one), builder_constant(builder, &shape)};
    builder_node(builder, "Expand", name, inputs, 2);
}

static void two_modest_constants_make_no_huge_one(void **state)
{
    (void)state;
    static const char *const operators[] = {"Add", "MatMul", "Equal", "Max", "Pow"};
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++) {
        ModelBuilder builder;
        builder_begin(&builder);
        expand(&builder, "a", 1 << 20, 1);
        expand(&builder, "b", 1, 1 << 20);
        builder_node(&builder, operators[i], "y", (char *[]){"a", "b"}, 2);
        expect(&builder, operators[i], "too large");
    }
    ModelBuilder builder;
    builder_begin(&builder);
    expand(&builder, "a", 1, 1 << 20);
    BuilderConstant axis = INTEGERS(1);
    builder_node(&builder, "CumSum", "y", (char *[]){"a", builder_constant(&builder, &axis)}, 2);
    expect(&builder, "CumSum", "too large"); /* a triangle of 2^40 */
}

/* 2^40 elements after forty concatenations of a value with itself. */
static void doubling_ends(void **state)
{
    (void)state;
    enum { TIMES = 40 };
    static char names[TIMES + 1][8];
    ModelBuilder builder;
    builder_begin(&builder);
    BuilderConstant one = FLOATS(1);
    char *value = builder_constant(&builder, &one);
    for (int i = 0; i < TIMES; i++) {
        snprintf(names[i], sizeof names[i], "v%d", i);
        const char *name = i + 1 < TIMES ? names[i] : "y";
        builder_integer_attribute(&builder, builder_node(&builder, "Concat", name, (char *[]){value, value}, 2), "axis",
                                  0);
        value = names[i];
    }
    expect(&builder, "doubling", "too large");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(committed_models_are_within_limits),
        cmocka_unit_test(a_single_operator_cannot_allocate_without_limit),
        cmocka_unit_test(two_modest_constants_make_no_huge_one),
        cmocka_unit_test(doubling_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
