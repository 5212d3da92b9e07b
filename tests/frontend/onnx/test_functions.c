/* Functions of a model: calls become bodies, attributes go along, and what a hostile file makes of it ends. */
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

enum { MOST_FUNCTIONS = 32, MOST_NODES = 4, MOST_NAMES = 4 };

#define DOMAIN "test.functions"

typedef struct Model {
    OnnxBuilder builder;
    Onnx__FunctionProto function[MOST_FUNCTIONS], *functions[MOST_FUNCTIONS];
    Onnx__OperatorSetIdProto imported[2], *imports[2];
    Graph graph;
    ImportedModel imported_model;
    Diagnostics diagnostics;
    Scratch file;
} Model;

static void begin(Model *model)
{
    *model = (Model){.file = scratch_text("")};
    onnx_builder_open(&model->builder, "test", 17);
    model->imported[0] = model->builder.opset;
    onnx__operator_set_id_proto__init(&model->imported[1]);
    model->imported[1].domain = (char *)DOMAIN;
    model->imported[1].has_version = true;
    model->imported[1].version = 1;
    for (int i = 0; i < 2; i++) model->imports[i] = &model->imported[i];
    model->builder.model.opset_import = model->imports;
    model->builder.model.n_opset_import = 2;
    model->builder.model.functions = model->functions;
    onnx_builder_input(&model->builder, "x", ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, &(BuilderDimension){3, NULL}, 1);
    onnx_builder_output(&model->builder, "y", ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, NULL, 0);
}

static void end(Model *model)
{
    graph_free(&model->graph);
    imported_model_free(&model->imported_model);
    diagnostics_free(&model->diagnostics);
    onnx_builder_close(&model->builder);
    unlink(model->file.path);
}

/* Splits "a b c" at spaces; "-" is an empty name. */
static char **names(Model *model, const char *text, size_t *count)
{
    Arena *arena = &model->builder.arena;
    char **result = arena_new_array(arena, char *, MOST_NAMES);
    for (*count = 0; *text; (*count)++) {
        assert_true(*count < MOST_NAMES);
        size_t length = strcspn(text, " ");
        result[*count] = *text == '-' ? arena_string(arena, "") : arena_string_n(arena, text, length);
        text += length + (text[length] == ' ');
    }
    return result;
}

static Onnx__NodeProto *make_node(Model *model, const char *domain, const char *op, const char *inputs,
                                  const char *outputs)
{
    Onnx__NodeProto *node = arena_new(&model->builder.arena, Onnx__NodeProto);
    onnx__node_proto__init(node);
    node->domain = (char *)domain;
    node->op_type = (char *)op;
    node->input = names(model, inputs, &node->n_input);
    node->output = names(model, outputs, &node->n_output);
    return node;
}

static Onnx__FunctionProto *add_function(Model *model, const char *name, const char *inputs, const char *outputs)
{
    size_t i = model->builder.model.n_functions++;
    Onnx__FunctionProto *function = model->functions[i] = &model->function[i];
    assert_true(i < MOST_FUNCTIONS);
    onnx__function_proto__init(function);
    function->domain = (char *)DOMAIN;
    function->name = (char *)name;
    function->input = names(model, inputs, &function->n_input);
    function->output = names(model, outputs, &function->n_output);
    function->opset_import = model->imports;
    function->n_opset_import = 2;
    function->node = arena_new_array(&model->builder.arena, Onnx__NodeProto *, MOST_NODES);
    return function;
}

static Onnx__NodeProto *add_inside(Model *model, Onnx__FunctionProto *function, const char *domain, const char *op,
                                   const char *inputs, const char *outputs)
{
    assert_true(function->n_node < MOST_NODES);
    return function->node[function->n_node++] = make_node(model, domain, op, inputs, outputs);
}

/* A node of the graph itself. */
static Onnx__NodeProto *add_call(Model *model, const char *op, const char *inputs, const char *outputs)
{
    Onnx__NodeProto *node = make_node(model, DOMAIN, op, inputs, outputs);
    Onnx__GraphProto *graph = &model->builder.graph;
    Onnx__NodeProto **nodes = arena_new_array(&model->builder.arena, Onnx__NodeProto *, graph->n_node + 1);
    if (graph->n_node) memcpy(nodes, graph->node, graph->n_node * sizeof *nodes);
    nodes[graph->n_node++] = node;
    graph->node = nodes;
    return node;
}

/* The attribute `name` of the node is what the call says of `reference`. */
static void refer(Model *model, Onnx__NodeProto *node, const char *name, const char *reference)
{
    onnx_node_float(&model->builder, node, name, 0);
    Onnx__AttributeProto *attribute = node->attribute[node->n_attribute - 1];
    attribute->ref_attr_name = (char *)reference;
}

/* Field 11 of a function, which the installed schema may not know: the attribute's value where a call says none. */
static void set_default(Model *model, Onnx__FunctionProto *function, const char *name, float value)
{
    Onnx__NodeProto scratch = ONNX__NODE_PROTO__INIT;
    onnx_node_float(&model->builder, &scratch, name, value);
    size_t size = onnx__attribute_proto__get_packed_size(scratch.attribute[0]);
    assert_true(size < 128);
    uint8_t *data = arena_allocate(&model->builder.arena, size + 1);
    data[0] = (uint8_t)size;
    onnx__attribute_proto__pack(scratch.attribute[0], data + 1);
    function->base.n_unknown_fields = 1;
    function->base.unknown_fields = arena_new(&model->builder.arena, ProtobufCMessageUnknownField);
    *function->base.unknown_fields =
        (ProtobufCMessageUnknownField){11, PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED, size + 1, data};
}

static bool import(Model *model)
{
    assert_true(onnx_builder_write(&model->builder, model->file.path,
                                   &(InitialWeights){.present = true, .most_inside = 4096}, &model->diagnostics));
    graph_init(&model->graph, model->file.path);
    return import_onnx(&model->graph, &model->imported_model, model->file.path, &(ImportOptions){0},
                       &model->diagnostics);
}

static void check_output(Model *model, const double expected[3])
{
    bool ok = import(model);
    if (!ok) diagnostics_print(&model->diagnostics, stderr);
    assert_true(ok);
    Evaluator evaluator;
    evaluator_init(&evaluator, &model->graph);
    float *x = evaluator.buffer[model->graph.inputs[0]];
    for (int i = 0; i < 3; i++) x[i] = (float)(i - 1); /* -1, 0, 1 */
    assert_true(evaluator_run(&evaluator));
    const float *y = evaluator.buffer[model->graph.outputs[0].value];
    for (int i = 0; i < 3; i++) assert_true(fabs((double)y[i] - expected[i]) < 1e-6);
    evaluator_free(&evaluator);
}

static void assert_refused(Model *model, const char *reason)
{
    assert_false(import(model));
    assert_int_equal(model->diagnostics.exit_code, EXIT_BAD_INPUT);
    if (!strstr(model->diagnostics.first->message, reason)) fail_msg("%s", model->diagnostics.first->message);
    end(model);
}

/* A function that calls another, whose attribute comes from the outermost call, from a default, or from nowhere. */
static void test_nested(void **state)
{
    (void)state;
    static const struct {
        bool say, fall_back;
        double slope;
    } tries[] = {{true, true, 0.5}, {true, false, 0.5}, {false, true, 0.25}, {false, false, 0.01}};
    for (size_t i = 0; i < sizeof tries / sizeof *tries; i++) {
        Model model;
        begin(&model);
        Onnx__FunctionProto *inner = add_function(&model, "Bent", "a", "b");
        refer(&model, add_inside(&model, inner, "", "LeakyRelu", "a", "b"), "alpha", "slope");
        Onnx__FunctionProto *outer = add_function(&model, "BentTwice", "a b", "c");
        if (tries[i].fall_back) set_default(&model, outer, "steepness", 0.25f);
        refer(&model, add_inside(&model, outer, DOMAIN, "Bent", "a", "t"), "slope", "steepness");
        add_inside(&model, outer, "", "Add", "t a", "u"); /* the optional `b` is not read */
        add_inside(&model, outer, "", "Identity", "u", "c");
        Onnx__NodeProto *call = add_call(&model, "BentTwice", "x", "y");
        if (tries[i].say) onnx_node_float(&model.builder, call, "steepness", 0.5f);
        check_output(&model, (const double[]){-1 - tries[i].slope, 0, 2});
        end(&model);
    }
}

/* Two calls of one function stay apart; nodes stand in any order; an output may be an input. */
static void test_names(void **state)
{
    (void)state;
    Model model;
    begin(&model);
    Onnx__FunctionProto *function = add_function(&model, "Double", "a", "twice a");
    add_inside(&model, function, "", "Neg", "t", "twice");
    add_inside(&model, function, "", "Sub", "zero s", "t");
    add_inside(&model, function, "", "Add", "a a", "s");
    add_inside(&model, function, "", "Sub", "a a", "zero");
    add_call(&model, "Double", "z", "y -");
    add_call(&model, "Double", "x", "z same");
    onnx_builder_output(&model.builder, "same", ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, NULL, 0);
    check_output(&model, (const double[]){-4, 0, 4});
    assert_int_equal(model.graph.output_count, 2);
    assert_int_equal(model.graph.outputs[1].value, model.graph.inputs[0]);
    end(&model);
}

/* What the model defines itself goes before what skycc knows. */
static void test_own_definition(void **state)
{
    (void)state;
    Model model;
    begin(&model);
    Onnx__FunctionProto *function = add_function(&model, "Relu", "a", "b");
    add_inside(&model, function, "", "Relu", "a", "t");
    add_inside(&model, function, "", "Sub", "t a", "b");
    add_call(&model, "Relu", "x", "y");
    check_output(&model, (const double[]){1, 0, 0});
    end(&model);
}

/* A parameter that a body uses is the graph's, under its own name. */
static void test_parameters(void **state)
{
    (void)state;
    Model model;
    begin(&model);
    const char *weight = onnx_builder_weight(&model.builder, "scope", "weight", FILL_ONES, 3, 0);
    add_inside(&model, add_function(&model, "Scale", "a w", "b"), "", "Mul", "a w", "b");
    add_call(&model, "Scale", "x scope.weight", "y");
    check_output(&model, (const double[]){-1, 0, 1});
    assert_int_equal(model.imported_model.parameter_count, 1);
    assert_string_equal(model.imported_model.parameters[0].name, weight);
    end(&model);
}

static void test_recursion(void **state)
{
    (void)state;
    Model model;
    begin(&model);
    add_inside(&model, add_function(&model, "Even", "a", "b"), DOMAIN, "Odd", "a", "b");
    add_inside(&model, add_function(&model, "Odd", "a", "b"), DOMAIN, "Even", "a", "b");
    add_call(&model, "Even", "x", "y");
    assert_refused(&model, "calls itself");
}

/* Every level calls the one below twice. */
static void test_doubling(void **state)
{
    (void)state;
    static char level[MOST_FUNCTIONS][8];
    for (int nodes = 0; nodes < 2; nodes++) {
        Model model;
        begin(&model);
        for (int i = 0; i < 30; i++) {
            snprintf(level[i], sizeof *level, "L%d", i);
            Onnx__FunctionProto *function = add_function(&model, level[i], "a", "b");
            for (int k = 0; k < 2 && i > 0; k++)
                add_inside(&model, function, DOMAIN, level[i - 1], k ? "t" : "a", k ? "b" : "t");
            if (i == 0 && nodes) add_inside(&model, function, "", "Neg", "a", "b");
        }
        add_call(&model, "L29", "x", "y");
        assert_refused(&model, "expands to too many nodes");
    }
}

static void test_refused_calls(void **state)
{
    (void)state;
    Model model;
    begin(&model);
    add_inside(&model, add_function(&model, "One", "a", "b"), "", "Neg", "a", "b");
    add_call(&model, "One", "x x", "y");
    assert_refused(&model, "too many inputs or outputs");

    begin(&model);
    for (int i = 0; i < 2; i++) add_inside(&model, add_function(&model, "One", "a", "b"), "", "Neg", "a", "b");
    add_call(&model, "One", "x", "y");
    assert_refused(&model, "is defined twice");

    begin(&model);
    add_inside(&model, add_function(&model, "One", "a a", "b"), "", "Neg", "a", "b");
    add_call(&model, "One", "x x", "y");
    assert_refused(&model, "two inputs of the same name");

    begin(&model);
    add_inside(&model, add_function(&model, "One", "a b", "c"), "", "Add", "a b", "c");
    add_call(&model, "One", "x", "y"); /* what the body needs is not given */
    assert_refused(&model, "has 1 inputs");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nested),        cmocka_unit_test(test_names),     cmocka_unit_test(test_own_definition),
        cmocka_unit_test(test_parameters),    cmocka_unit_test(test_recursion), cmocka_unit_test(test_doubling),
        cmocka_unit_test(test_refused_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
