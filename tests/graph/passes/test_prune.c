/* Pruning: the same results and gradients from less work. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "graph/ops/autodiff.h"
#include "graph/passes/passes.h"
#include "tests/common/graph_evaluator.h"
#include "tests/graph/ops/operator_cases.h"

enum { BATCH = 2, TOKENS = 6, WIDTH = 8, HEADS = 2, TOKEN = 3 };

typedef struct Model {
    Graph graph;
    Diagnostics diagnostics;
    ValueId x, weights[5], hidden, result;
    int weight_count;
} Model;

static ValueId add(Model *model, Opcode op, const ValueId *inputs, int count, const Attribute *attributes,
                   int attribute_count)
{
    ValueId outputs[3] = {0};
    assert_true(graph_add_node(&model->graph, op, (NodeOrigin){.name = "n"}, inputs, count, attributes, attribute_count,
                               outputs, opcodes[op].outputs, &model->diagnostics));
    return outputs[0];
}

static ValueId binary(Model *model, Opcode op, ValueId a, ValueId b)
{
    return add(model, op, (ValueId[]){a, b}, 2, NULL, 0);
}

static ValueId shaped(Model *model, Opcode op, ValueId a, Attribute attribute)
{
    return add(model, op, &a, 1, &attribute, 1);
}

static double wave(int64_t i) { return sin(1.7 * (double)i + 0.3) / 2; }

static ValueId weight(Model *model, const Shape *shape)
{
    int64_t count = shape_elements(shape);
    double *data = arena_new_array(&model->graph.arena, double, (size_t)count);
    for (int64_t i = 0; i < count; i++) data[i] = wave(i * 7 + model->weight_count);
    char name[32];
    snprintf(name, sizeof name, "w%d", model->weight_count);
    return model->weights[model->weight_count++] = graph_add_parameter(&model->graph, name, DTYPE_F64, shape, data);
}

static ValueId heads(Model *model, ValueId x)
{
    Attribute split = INTEGERS("shape", BATCH, TOKENS, HEADS, WIDTH / HEADS), perm = INTEGERS("perm", 0, 2, 1, 3);
    return shaped(model, OP_Transpose, shaped(model, OP_Reshape, x, split), perm);
}

/* One encoder block without its feed-forward part. */
static void build_block(Model *model)
{
    *model = (Model){0};
    graph_init(&model->graph, "test");
    const Shape tokens = SHAPE(BATCH, TOKENS, WIDTH), square = SHAPE(WIDTH, WIDTH), vector = SHAPE(WIDTH);
    model->x = graph_add_input(&model->graph, "x", DTYPE_F64, &tokens);
    ValueId q = heads(model, binary(model, OP_MatMul, model->x, weight(model, &square)));
    ValueId k = heads(model, binary(model, OP_MatMul, model->x, weight(model, &square)));
    ValueId v = heads(model, binary(model, OP_MatMul, model->x, weight(model, &square)));
    k = shaped(model, OP_Transpose, k, (Attribute)INTEGERS("perm", 0, 1, 3, 2));
    ValueId scores = binary(model, OP_MatMul, q, k);
    ValueId context = binary(model, OP_MatMul, add(model, OP_Softmax, &scores, 1, NULL, 0), v);
    context = shaped(model, OP_Transpose, context, (Attribute)INTEGERS("perm", 0, 2, 1, 3));
    context = shaped(model, OP_Reshape, context, (Attribute)INTEGERS("shape", BATCH, TOKENS, WIDTH));
    ValueId sum = binary(model, OP_Add, context, model->x);
    Attribute epsilon = FLOAT("epsilon", 1e-5);
    ValueId norm_inputs[3] = {sum, weight(model, &vector), weight(model, &vector)};
    model->hidden = add(model, OP_LayerNormalization, norm_inputs, 3, &epsilon, 1);
}

/* What a classifier reads of the block, by a Gather or by a Slice. */
static void select_token(Model *model, bool slice)
{
    ValueId result;
    if (slice) {
        Attribute attributes[3] = {INTEGERS("starts", 0, TOKEN, 0), INTEGERS("steps", 1, 1, 1),
                                   INTEGERS("shape", BATCH, 1, WIDTH)};
        result = add(model, OP_Slice, &model->hidden, 1, attributes, 3);
    } else {
        int64_t index = TOKEN - TOKENS;
        ValueId position = graph_add_constant(&model->graph, NULL, DTYPE_I64, &(Shape){0}, &index);
        Attribute axis = attribute_integer("axis", 1);
        result = add(model, OP_Gather, (ValueId[]){model->hidden, position}, 2, &axis, 1);
    }
    model->result = add(model, OP_Tanh, &result, 1, NULL, 0);
    graph_add_output(&model->graph, "result", model->result);
    Attribute all = attribute_integer("keepdims", 0);
    model->graph.loss = add(model, OP_ReduceSum, &model->result, 1, &all, 1);
}

typedef struct Results {
    double result[BATCH * WIDTH], gradient[5][WIDTH * WIDTH], flops;
} Results;

static void evaluate(Model *model, Results *results)
{
    *results = (Results){0};
    assert_true(differentiate(&model->graph, &model->diagnostics));
    graph_remove_dead(&model->graph);
    graph_verify(&model->graph);
    Evaluator evaluator;
    evaluator_init(&evaluator, &model->graph);
    double *x = evaluator.buffer[model->x];
    for (int64_t i = 0; i < BATCH * TOKENS * WIDTH; i++) x[i] = wave(i * 3);
    assert_true(evaluator_run(&evaluator));
    memcpy(results->result, evaluator.buffer[model->result], sizeof results->result);
    for (int i = 0; i < model->weight_count; i++) {
        ValueId gradient = model->graph.gradients[model->weights[i]];
        size_t bytes = (size_t)shape_elements(&graph_value(&model->graph, gradient)->shape) * sizeof(double);
        memcpy(results->gradient[i], evaluator.buffer[gradient], bytes);
    }
    for (size_t i = 0; i < evaluator.lowering.call_count; i++)
        results->flops += kernel_flops(evaluator.lowering.calls[i].kernel);
    evaluator_free(&evaluator);
}

static void destroy(Model *model)
{
    graph_free(&model->graph);
    diagnostics_free(&model->diagnostics);
}

static void a_block_of_which_one_token_is_read(void **state)
{
    (void)state;
    for (int slice = 0; slice < 2; slice++) {
        Results results[2];
        for (int pruned = 0; pruned < 2; pruned++) {
            Model model;
            build_block(&model);
            select_token(&model, slice);
            if (pruned) {
                prune_unread(&model.graph, &(PassOptions){0}, &model.diagnostics);
                assert_int_equal(graph_value(&model.graph, model.hidden)->shape.dim[1], 1);
            }
            evaluate(&model, &results[pruned]);
            destroy(&model);
        }
        for (int i = 0; i < BATCH * WIDTH; i++) assert_true(fabs(results[0].result[i] - results[1].result[i]) < 1e-14);
        for (int w = 0; w < 5; w++)
            for (int i = 0; i < WIDTH * WIDTH; i++)
                assert_true(fabs(results[0].gradient[w][i] - results[1].gradient[w][i]) < 1e-13);
        assert_true(results[1].flops < 0.7 * results[0].flops);
    }
}

static const struct {
    Opcode op;
    Attribute attributes[4];
    int attribute_count;
    int axis; /* of the operator's result, whose index 1 is read */
    bool passes;
} passages[] = {
    {OP_Neg, {{0}}, 0, 1, true},
    {OP_Reshape, {INTEGERS("shape", 2, 3, 2, 2, 5)}, 1, 1, true},
    {OP_Reshape, {INTEGERS("shape", 2, 3, 2, 2, 5)}, 1, 2, false},
    {OP_Reshape, {INTEGERS("shape", 6, 4, 5)}, 1, 1, true},
    {OP_Reshape, {INTEGERS("shape", 6, 4, 5)}, 1, 0, false},
    {OP_Transpose, {INTEGERS("perm", 2, 0, 3, 1)}, 1, 3, true},
    {OP_Expand, {INTEGERS("shape", 3, 2, 3, 4, 5)}, 1, 0, false},
    {OP_Expand, {INTEGERS("shape", 3, 1, 3, 4, 5)}, 1, 4, true},
    {OP_ReduceSum, {INTEGERS("axes", 1), INTEGER("keepdims", 0)}, 2, 1, true},
    {OP_ReduceMax, {INTEGERS("axes", -1), INTEGER("keepdims", 1)}, 2, 1, true},
    {OP_Softmax, {{0}}, 0, 2, true},
    {OP_Softmax, {{0}}, 0, 3, false},
    {OP_Slice,
     {INTEGERS("starts", 0, 1, 0, 0), INTEGERS("steps", 1, 1, 1, 2), INTEGERS("shape", 2, 2, 4, 3)},
     3,
     2,
     true},
    {OP_Slice,
     {INTEGERS("starts", 0, 1, 0, 0), INTEGERS("steps", 1, 1, 1, 2), INTEGERS("shape", 2, 2, 4, 3)},
     3,
     1,
     false},
};

enum { MOST_RESULTS = 256 };

/* The graph of one passage: its result, and how many elements the operator's input has after pruning, if that is asked
 * for. */
static int64_t run_passage(size_t c, bool pruned, double *results, int64_t *count)
{
    Model model = {0};
    graph_init(&model.graph, "test");
    const Shape shape = SHAPE(2, 3, 4, 5);
    model.x = graph_add_input(&model.graph, "x", DTYPE_F64, &shape);
    ValueId source = add(&model, OP_Sin, &model.x, 1, NULL, 0);
    ValueId middle = add(&model, passages[c].op, &source, 1, passages[c].attributes, passages[c].attribute_count);
    int64_t one = 1;
    ValueId index = graph_add_constant(&model.graph, NULL, DTYPE_I64, &(Shape){0}, &one);
    Attribute axis = attribute_integer("axis", passages[c].axis);
    assert_true(graph_value(&model.graph, middle)->shape.dim[passages[c].axis] >= 2);
    model.result = add(&model, OP_Gather, (ValueId[]){middle, index}, 2, &axis, 1);
    graph_add_output(&model.graph, "result", model.result);
    if (pruned) prune_unread(&model.graph, &(PassOptions){0}, &model.diagnostics);
    graph_verify(&model.graph);

    Evaluator evaluator;
    evaluator_init(&evaluator, &model.graph);
    for (int64_t i = 0; i < shape_elements(&shape); i++) ((double *)evaluator.buffer[model.x])[i] = wave(i);
    assert_true(evaluator_run(&evaluator));
    *count = shape_elements(&graph_value(&model.graph, model.result)->shape);
    assert_true(*count <= MOST_RESULTS);
    memcpy(results, evaluator.buffer[model.result], (size_t)*count * sizeof(double));
    int64_t elements = shape_elements(&graph_value(&model.graph, source)->shape);
    evaluator_free(&evaluator);
    destroy(&model);
    return elements;
}

/* A selection meets each kind of operator that it passes, or stops at. */
static void parts_pass_operators_that_keep_their_axis(void **state)
{
    (void)state;
    for (size_t c = 0; c < sizeof passages / sizeof passages[0]; c++) {
        double whole[MOST_RESULTS], part[MOST_RESULTS];
        int64_t count;
        int64_t before = run_passage(c, false, whole, &count), after = run_passage(c, true, part, &count);
        if ((after < before) != passages[c].passes) fail_msg("case %zu: %d elements", c, (int)after);
        assert_memory_equal(whole, part, (size_t)count * sizeof(double));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_block_of_which_one_token_is_read),
        cmocka_unit_test(parts_pass_operators_that_keep_their_axis),
    };
    return cmocka_run_group_tests_name("prune", tests, NULL, NULL);
}
