/* Groups: attention runs block by block, with the bits of whole kernels one after another and without their memory. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>

#include "graph/ops/add_node.h"
#include "graph/ops/operator.h"
#include "tests/codegen/stage/stage_run.h"

enum { MOST_THREADS = 5 };

/* Has calls run one after another, each whole: what lay in the space of blocks gets room for all of them. */
static void ungroup(SkyStage *stage)
{
    uint64_t base = stage->space_bytes[SKY_SPACE_SCRATCH], end = base;
    for (uint32_t c = 0; c < sky_call_count(stage); c++) {
        SkyCall *call = (SkyCall *)sky_call(stage, c);
        for (uint32_t i = 0; i < call->operand_count; i++) {
            SkyLocation *location = (SkyLocation *)&call->operands[i];
            if (location->space != SKY_SPACE_BLOCK) continue;
            uint64_t offset = base + location->offset * call->block_count;
            uint64_t bytes = (uint64_t)location->block_bytes * call->block_count;
            if (offset + bytes > end) end = offset + bytes;
            *location = (SkyLocation){.space = SKY_SPACE_SCRATCH, .offset = offset};
        }
        call->group_count = call->block_count = call->wave_count = 0;
    }
    stage->space_bytes[SKY_SPACE_SCRATCH] = end;
}

static void check_bits(int64_t sequence, double dropout, bool prune)
{
    TrainingModel model;
    size_t count, other_count;
    small_bert_load(&model, sequence, dropout, prune);
    FREED float *whole = stage_gradients(&model, ungroup, false, 1, &count);
    for (int threads = 1; threads <= MOST_THREADS; threads += 2) {
        FREED float *grouped = stage_gradients(&model, NULL, false, threads, &other_count);
        assert_int_equal(other_count, count);
        assert_memory_equal(grouped, whole, count * sizeof *whole);
    }
    FREED float *interpreted = stage_gradients(&model, NULL, true, 1, &other_count);
    assert_true(greatest_difference(whole, interpreted, count) < 1e-5);
    training_model_free(&model);
}

static void blocks_change_no_bit(void **state)
{
    (void)state;
    check_bits(24, 0, false);
    check_bits(24, 0, true);
    check_bits(24, 0.25, true);
    check_bits(33, 0.25, false); /* rows that vectors do not divide */
}

/* The value of forward that a value of backward repeats; 0: it repeats none. */
static ValueId repeated(const Graph *graph, ValueId value)
{
    NodeId producer = graph_value(graph, value)->producer;
    const Node *node = graph_node(graph, producer);
    if (!producer || node->phase != PHASE_BACKWARD) return 0;
    bool drawn_again = node->op == OP_Dropout && node->inputs[0] == graph_node(graph, node->differentiates)->inputs[0];
    bool repeats =
        drawn_again || node->op == OP_Softmax || (node->op == OP_Dropout && repeated(graph, node->inputs[0]));
    return repeats ? graph_node(graph, node->differentiates)->outputs[0] : 0;
}

/* Undoes what attention_recompute did; returns how much of it there was. */
static size_t keep_probabilities(Graph *graph)
{
    size_t undone = 0;
    for (NodeId n = (NodeId)graph->node_count - 1; n > 0; n--) {
        Node *node = graph_node(graph, n);
        for (int i = 0; node->op != OP_NONE && i < node->input_count; i++) {
            ValueId forward = node->inputs[i] ? repeated(graph, node->inputs[i]) : 0;
            if (!forward) continue;
            node->inputs[i] = forward;
            undone++;
        }
    }
    graph_remove_dead(graph);
    return undone;
}

static void computing_again_changes_no_bit(void **state)
{
    (void)state;
    enum { LONG = 64 }; /* four heads' widths */
    TrainingModel model;
    size_t count, other_count;
    for (int is_long = 0; is_long < 2; is_long++) {
        small_bert_load(&model, is_long ? LONG : LONG - 1, 0.25, false);
        FREED float *again = stage_gradients(&model, NULL, false, 1, &count);
        /* Of each layer: dropout's result in the gradients of values and, if long, probabilities in dropout and in the
         * gradients of scores. */
        assert_int_equal(keep_probabilities(&model.graph), SMALL_LAYERS * (is_long ? 3 : 1));
        FREED float *kept = stage_gradients(&model, NULL, false, 1, &other_count);
        assert_int_equal(other_count, count);
        assert_memory_equal(kept, again, count * sizeof *kept);
        training_model_free(&model);
    }
}

/* Of groups in the list: how many there are, and how many calls they have at least. */
static uint32_t count_groups(const SkyCallList *list, uint32_t *least_calls)
{
    uint32_t groups = 0;
    *least_calls = UINT32_MAX;
    for (uint32_t c = 0; c < list->count; c++) {
        if (!list->calls[c].group_count) continue;
        assert_int_equal(list->calls[c].block_count, SMALL_BATCH * SMALL_HEADS);
        if (list->calls[c].group_count < *least_calls) *least_calls = list->calls[c].group_count;
        groups++;
    }
    return groups;
}

static void attention_is_in_groups(void **state)
{
    (void)state;
    for (int dropping = 0; dropping < 2; dropping++) {
        TrainingModel model;
        StageCode code;
        uint32_t calls = 0;
        small_bert_load(&model, 24, 0.25 * dropping, false);
        stage_build(&code, &model.graph, 0, model.graph.layer_count - 1);
        assert_int_equal(count_groups(&code.stage.lists[SKY_LIST_FORWARD], &calls), SMALL_LAYERS);
        assert_int_equal(calls, 3); /* scores, softmax, context */
        assert_int_equal(count_groups(&code.stage.lists[SKY_LIST_BACKWARD], &calls), SMALL_LAYERS);
        assert_int_equal(calls, 5 + dropping); /* gradients of probabilities, values, scores, queries, keys; dropout */
        stage_free(&code);
        training_model_free(&model);
    }
}

static ValueId add(Graph *graph, Opcode op, ValueId a, ValueId b, Attribute attribute)
{
    static int number;
    Diagnostics diagnostics = {0};
    ValueId result;
    NodeOrigin origin = {.name = arena_format(&graph->arena, "node %d", number++)};
    int attributes = attribute.name ? 1 : 0;
    assert_true(graph_add_node(graph, op, origin, (ValueId[]){a, b}, b ? 2 : 1, &attribute, attributes, &result, 1,
                               &diagnostics));
    return result;
}

/* A product that reads other blocks than its own of what the group makes, of which there are as many, stays outside. */
static void blocks_that_cross_are_no_group(void **state)
{
    (void)state;
    const Shape shape = {4, {2, 2, 8, 8}};
    for (int crossing = 0; crossing < 2; crossing++) {
        Graph graph;
        StageCode code;
        uint32_t calls = 0;
        graph_init(&graph, "crossing");
        ValueId x = graph_add_input(&graph, "x", DTYPE_F32, &shape),
                w = graph_add_input(&graph, "w", DTYPE_F32, &shape);
        ValueId scores = add(&graph, OP_MatMul, x, w, (Attribute){0});
        ValueId context = add(&graph, OP_MatMul, add(&graph, OP_Softmax, scores, 0, attribute_integer("axis", -1)), x,
                              (Attribute){0});
        if (crossing)
            context = add(&graph, OP_Transpose, context, 0, attribute_integers("perm", (int64_t[]){1, 0, 2, 3}, 4));
        graph_add_output(&graph, "y", add(&graph, OP_MatMul, context, w, (Attribute){0}));
        graph.layer_count = 1;
        graph.layer_names = (const char *[]){"all"};
        stage_build(&code, &graph, 0, 0);
        uint32_t groups = 0;
        for (uint32_t c = 0; c < sky_call_count(&code.stage); c++)
            if (sky_call(&code.stage, c)->group_count) groups++, calls = sky_call(&code.stage, c)->group_count;
        assert_int_equal(groups, 1);
        assert_int_equal(calls, crossing ? 3 : 4);
        stage_free(&code);
        graph_free(&graph);
    }
}

static void long_sequences_take_no_memory_for_scores(void **state)
{
    (void)state;
    enum { LONG = 2048 };
    TrainingModel model;
    StageCode code;
    small_bert_load(&model, LONG, 0, false);
    stage_build(&code, &model.graph, 0, model.graph.layer_count - 1);
    uint64_t head = LONG * LONG * sizeof(float), scores = SMALL_BATCH * SMALL_HEADS * head;
    assert_true(code.stage.space_bytes[SKY_SPACE_SLOT] + code.stage.space_bytes[SKY_SPACE_SCRATCH] < scores);
    assert_in_range(code.stage.space_bytes[SKY_SPACE_BLOCK], 2 * head, 3 * head);
    stage_free(&code);
    training_model_free(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_change_no_bit), cmocka_unit_test(computing_again_changes_no_bit),
        cmocka_unit_test(attention_is_in_groups), cmocka_unit_test(blocks_that_cross_are_no_group),
        cmocka_unit_test(long_sequences_take_no_memory_for_scores)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
