/* What lowering promises besides right results: views, merged axes, copies only where needed, diagnostics. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/common/graph_evaluator.h"
#include "tests/graph/ops/operator_cases.h"

/* Adds a node of one output to a graph under test. */
static ValueId node(Graph *graph, Opcode op, const ValueId *inputs, int count, const Attribute *attributes,
                    int attribute_count)
{
    Diagnostics diagnostics = {0};
    ValueId output = 0;
    assert_true(graph_add_node(graph, op, (NodeOrigin){.name = "n"}, inputs, count, attributes, attribute_count,
                               &output, 1, &diagnostics));
    return output;
}

static void attention_heads_are_views(void **state)
{
    (void)state;
    Graph graph;
    graph_init(&graph, "test");
    Shape tokens = SHAPE(2, 16, 32);
    ValueId q = graph_add_input(&graph, "q", DTYPE_F32, &tokens), k = graph_add_input(&graph, "k", DTYPE_F32, &tokens);
    Attribute heads = INTEGERS("shape", 2, 16, 4, 8), by_head = INTEGERS("perm", 0, 2, 1, 3);
    Attribute columns = INTEGERS("perm", 0, 2, 3, 1);
    q = node(&graph, OP_Reshape, &q, 1, &heads, 1);
    q = node(&graph, OP_Transpose, &q, 1, &by_head, 1);
    k = node(&graph, OP_Reshape, &k, 1, &heads, 1);
    k = node(&graph, OP_Transpose, &k, 1, &columns, 1);
    ValueId scores = node(&graph, OP_MatMul, (ValueId[]){q, k}, 2, NULL, 0);
    Attribute flat = INTEGERS("shape", 2, 64, 16);
    node(&graph, OP_Reshape, &scores, 1, &flat, 1);
    Evaluator evaluator;
    evaluator_init(&evaluator, &graph);
    assert_int_equal(evaluator.lowering.call_count, 1);
    const Kernel *kernel = evaluator.lowering.calls[0].kernel;
    assert_int_equal(kernel_classify(kernel), KERNEL_CLASS_GEMM);
    assert_int_equal(kernel->axis_count, 5);
    evaluator_free(&evaluator);
    graph_free(&graph);
}

static void linear_layers_merge_their_rows(void **state)
{
    (void)state;
    Graph graph;
    graph_init(&graph, "test");
    Shape tokens = SHAPE(2, 16, 32), matrix = SHAPE(32, 8);
    ValueId x = graph_add_input(&graph, "x", DTYPE_F32, &tokens);
    ValueId w = graph_add_parameter(&graph, "w", DTYPE_F32, &matrix, NULL);
    node(&graph, OP_MatMul, (ValueId[]){x, w}, 2, NULL, 0);
    Evaluator evaluator;
    evaluator_init(&evaluator, &graph);
    const Kernel *kernel = evaluator.lowering.calls[0].kernel;
    assert_int_equal(kernel->axis_count, 3);
    assert_int_equal(kernel->extent[0], 32);
    evaluator_free(&evaluator);
    graph_free(&graph);
}

static void reading_bf16_as_float32_costs_no_call(void **state)
{
    (void)state;
    Graph graph;
    graph_init(&graph, "test");
    Shape tokens = SHAPE(4, 16), matrix = SHAPE(16, 16);
    ValueId x = graph_add_input(&graph, "x", DTYPE_BF16, &tokens);
    ValueId w = graph_add_parameter(&graph, "w", DTYPE_F32, &matrix, NULL);
    Attribute wide = attribute_integer("to", DTYPE_F32), narrow = attribute_integer("to", DTYPE_BF16);
    ValueId read = node(&graph, OP_Cast, &x, 1, &wide, 1);
    ValueId y = node(&graph, OP_MatMul, (ValueId[]){read, w}, 2, NULL, 0);
    y = node(&graph, OP_Cast, &y, 1, &narrow, 1);
    Evaluator evaluator;
    evaluator_init(&evaluator, &graph);
    assert_int_equal(evaluator.lowering.call_count, 2);
    assert_int_equal(evaluator.lowering.calls[0].kernel->operands[0].dtype, DTYPE_BF16);
    assert_int_equal(evaluator.lowering.calls[0].operands[0].value, x);
    evaluator_free(&evaluator);
    graph_free(&graph);
}

static void a_view_that_strides_cannot_express_is_copied(void **state)
{
    (void)state;
    Graph graph;
    graph_init(&graph, "test");
    Shape shape = SHAPE(2, 3, 4);
    ValueId x = graph_add_input(&graph, "x", DTYPE_F32, &shape);
    Attribute perm = INTEGERS("perm", 0, 2, 1), flat = INTEGERS("shape", 24);
    ValueId turned = node(&graph, OP_Transpose, &x, 1, &perm, 1);
    ValueId y = node(&graph, OP_Reshape, &turned, 1, &flat, 1);
    graph_add_output(&graph, "y", y);
    graph_add_output(&graph, "turned", turned);
    Evaluator evaluator;
    evaluator_init(&evaluator, &graph);
    assert_int_equal(evaluator.lowering.call_count, 2); /* one for the reshape, one for the output that is a view */
    for (int i = 0; i < 24; i++) ((float *)evaluator.buffer[x])[i] = (float)i;
    assert_true(evaluator_run(&evaluator));
    for (int i = 0; i < 24; i++) {
        float expected = (float)(i / 12 * 12 + i % 3 * 4 + i / 3 % 4);
        assert_true(((float *)evaluator.buffer[y])[i] == expected);
        assert_true(((float *)evaluator.buffer[turned])[i] == expected);
    }
    evaluator_free(&evaluator);
    graph_free(&graph);
}

static void views_stop_at_received_values(void **state)
{
    (void)state;
    Graph graph;
    graph_init(&graph, "test");
    Shape shape = SHAPE(2, 3);
    ValueId x = graph_add_input(&graph, "x", DTYPE_F32, &shape);
    ValueId turned = node(&graph, OP_Transpose, &x, 1, NULL, 0);
    ValueId y = node(&graph, OP_Neg, &turned, 1, NULL, 0);
    NodeId last = graph_value(&graph, y)->producer;
    for (int stop = 0; stop < 2; stop++) {
        Lowering lowering;
        lowering_begin(&lowering, &graph);
        if (stop) lowering_stop_at(&lowering, turned);
        lowering_run(&lowering, &last, 1);
        assert_int_equal(lowering.call_count, 1);
        assert_int_equal(lowering.calls[0].operands[0].value, stop ? turned : x);
        lowering_free(&lowering);
    }
    graph_free(&graph);
}

static void wrong_inputs_are_diagnosed(void **state)
{
    (void)state;
    Graph graph;
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    graph_init(&graph, "model.onnx");
    Shape left = SHAPE(2, 3), right = SHAPE(4, 5);
    ValueId a = graph_add_input(&graph, "a", DTYPE_F32, &left), b = graph_add_input(&graph, "b", DTYPE_F32, &right);
    ValueId c = graph_add_input(&graph, "c", DTYPE_I64, &left);
    const struct {
        Opcode op;
        int count;
        ValueId inputs[2];
        Attribute attribute;
    } wrong[] = {
        {OP_Add, 2, {a, b}, {0}},
        {OP_Add, 2, {a, c}, {0}},
        {OP_Add, 1, {a, 0}, {0}},
        {OP_MatMul, 2, {a, b}, {0}},
        {OP_Exp, 1, {c, 0}, {0}},
        {OP_Gather, 2, {a, b}, {0}},
        {OP_Gather, 2, {a, c}, INTEGER("axis", 2)},
        {OP_Reshape, 1, {a, 0}, INTEGERS("shape", 4, 2)},
        {OP_Reshape, 1, {a, 0}, INTEGERS("shape", INT64_MAX, INT64_MAX)},
        {OP_Expand, 1, {a, 0}, INTEGERS("shape", 1L << 40, 1L << 40, 2, 3)},
        {OP_Transpose, 1, {a, 0}, INTEGERS("perm", 0, 0)},
        {OP_ReduceSum, 1, {a, 0}, INTEGERS("axes", 2)},
        {OP_Concat, 2, {a, b}, INTEGER("axis", 0)},
        {OP_Cast, 1, {a, 0}, INTEGER("to", 99)},
        {OP_Where, 2, {a, b}, {0}},
    };
    int count = sizeof wrong / sizeof wrong[0];
    for (int i = 0; i < count; i++) {
        ValueId output;
        assert_false(graph_add_node(&graph, wrong[i].op, (NodeOrigin){.name = "n"}, wrong[i].inputs, wrong[i].count,
                                    &wrong[i].attribute, wrong[i].attribute.name != NULL, &output, 1, &diagnostics));
        assert_int_equal(diagnostics.errors, i + 1);
    }
    assert_int_equal(diagnostics.exit_code, EXIT_BAD_INPUT);
    graph_free(&graph);
}

/* Softmax of scores, masked or not, transposed, times values; whether kernels are told that shares often are 0. */
static void check_shares(bool masked)
{
    Graph graph;
    graph_init(&graph, "test");
    Shape square = SHAPE(4, 16, 16), values = SHAPE(4, 16, 8);
    ValueId x = graph_add_input(&graph, "x", DTYPE_F32, &square), v = graph_add_input(&graph, "v", DTYPE_F32, &values);
    ValueId mask = graph_add_input(&graph, "mask", DTYPE_BOOL, &square);
    ValueId other = graph_constant_scalar(&graph, DTYPE_F32, masked ? -1e38 : -1);
    x = node(&graph, OP_Where, (ValueId[]){mask, x, other}, 3, NULL, 0);
    x = node(&graph, OP_Add, (ValueId[]){x, x}, 2, NULL, 0);
    x = node(&graph, OP_Softmax, &x, 1, NULL, 0);
    Attribute exchanged = INTEGERS("perm", 0, 2, 1);
    x = node(&graph, OP_Transpose, &x, 1, &exchanged, 1);
    node(&graph, OP_MatMul, (ValueId[]){x, v}, 2, NULL, 0);
    Evaluator evaluator;
    evaluator_init(&evaluator, &graph);
    const LoweredCall *calls = evaluator.lowering.calls;
    size_t count = evaluator.lowering.call_count;
    assert_int_equal(calls[count - 2].kernel->operands[1].often_zero, masked); /* what the softmax writes */
    assert_int_equal(calls[count - 1].kernel->operands[0].often_zero, masked);
    assert_false(calls[count - 1].kernel->operands[1].often_zero);
    evaluator_free(&evaluator);
    graph_free(&graph);
}

static void shares_of_masked_keys_are_often_zero(void **state)
{
    (void)state;
    check_shares(false);
    check_shares(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_heads_are_views),
        cmocka_unit_test(linear_layers_merge_their_rows),
        cmocka_unit_test(reading_bf16_as_float32_costs_no_call),
        cmocka_unit_test(a_view_that_strides_cannot_express_is_copied),
        cmocka_unit_test(views_stop_at_received_values),
        cmocka_unit_test(shares_of_masked_keys_are_often_zero),
        cmocka_unit_test(wrong_inputs_are_diagnosed),
    };
    return cmocka_run_group_tests_name("lowering", tests, NULL, NULL);
}
