/* Waves: what runs at the same time touches nothing in common, and runs whole and once; sums in parts. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "codegen/stage/stage_builder.h"
#include "graph/ops/operator.h"
#include "runtime/device/execute.h"
#include "tests/codegen/stage/stage_run.h"

/* ---- What stages make of them ---- */

/* Bytes [begin, end) of a space that an operand may touch. */
typedef struct Range {
    uint64_t begin, end;
} Range;

static Range range_of(const SkyCall *call, uint32_t operand)
{
    const Kernel *kernel = call->interpreted;
    const KernelOperand *place = &kernel->operands[operand];
    int64_t first = 0, last = 0, size = (int64_t)dtype_size(place->dtype);
    for (int axis = 0; axis < kernel->axis_count; axis++) {
        int64_t reach = (kernel->extent[axis] - 1) * place->stride[axis];
        *(reach < 0 ? &first : &last) += reach;
    }
    if (place->elements) last = place->elements - 1;
    uint64_t start = call->operands[operand].offset;
    return (Range){start + (uint64_t)(first * size), start + (uint64_t)((last + 1) * size)};
}

static void check_apart(const SkyCall *a, const SkyCall *b)
{
    const Kernel *kernel_a = a->interpreted, *kernel_b = b->interpreted;
    for (uint32_t i = 0; i < a->operand_count; i++)
        for (uint32_t k = 0; k < b->operand_count; k++) {
            uint32_t space = a->operands[i].space;
            if (space != b->operands[k].space || space == SKY_SPACE_BLOCK) continue;
            if (!kernel_a->operands[i].written && !kernel_b->operands[k].written) continue;
            Range x = range_of(a, i), y = range_of(b, k);
            if (x.begin < y.end && y.begin < x.end) fail_msg("%s and %s of one wave meet", a->name, b->name);
        }
}

/* Returns how many groups and calls the largest wave has. */
static uint32_t check_list(const SkyCallList *list)
{
    uint32_t most = 0, next;
    for (uint32_t first = 0; first < list->count; first = next) {
        uint32_t works = 0;
        next = first + sky_wave_size(&list->calls[first]);
        assert_in_range(next, first + 1, list->count);
        for (uint32_t i = first; i < next; i += sky_group_size(&list->calls[i]), works++) {
            uint32_t others = i + sky_group_size(&list->calls[i]);
            assert_in_range(others, i + 1, next);
            for (uint32_t m = i; m < others; m++)
                for (uint32_t k = others; k < next; k++) check_apart(&list->calls[m], &list->calls[k]);
        }
        if (works > most) most = works;
    }
    return most;
}

static void calls_of_a_wave_touch_nothing_in_common(void **state)
{
    (void)state;
    for (int round = 0; round < 4; round++) {
        TrainingModel model;
        small_bert_load(&model, round == 3 ? 64 : 24, round % 2 * 0.25, round > 1);
        for (int form = STAGE_PLAIN; form <= STAGE_RECOMPUTE; form++)
            for (int first = 0; first < model.graph.layer_count; first++) {
                StageCode code;
                stage_build_as(&code, &model.graph, first, model.graph.layer_count - 1, (StageForm)form);
                uint32_t most[SKY_LIST_COUNT];
                for (int l = 0; l < SKY_LIST_COUNT; l++) most[l] = check_list(&code.stage.lists[l]);
                assert_int_equal(most[SKY_LIST_UPDATE], code.stage.lists[SKY_LIST_UPDATE].count);
                int gradients = form == STAGE_SPLIT ? SKY_LIST_WEIGHT_GRADIENT : SKY_LIST_BACKWARD;
                if (first == 0) assert_true(most[SKY_LIST_FORWARD] >= 3 && most[gradients] >= 3);
                stage_free(&code);
            }
        training_model_free(&model);
    }
}

/* A call that reads one value and writes another, or adds to it. */
static LoweredCall call_on(Kernel *kernel, ValueId from, ValueId to, bool adds)
{
    kernel_begin(kernel, "touches", 1, (int64_t[]){8});
    Register x = kernel_load(kernel, kernel_operand(kernel, DTYPE_F32, (int64_t[]){1}));
    int result = kernel_operand(kernel, DTYPE_F32, (int64_t[]){1});
    (adds ? kernel_store_add : kernel_store)(kernel, result, x);
    return (LoweredCall){.kernel = kernel, .operands = {{.value = from}, {.value = to}}};
}

static void calls_wait_for_what_others_touch(void **state)
{
    (void)state;
    enum { VALUES = 8, SHARED = 6, HOLDER = 7 };
    Graph graph = {.value_count = VALUES};
    ValueId holder[VALUES] = {[SHARED] = HOLDER, [HOLDER] = HOLDER};
    const StageIndex index = {.arrays = value_arrays_create(VALUES)};
    const StageBuilder builder = {.graph = &graph, .index = &index, .holder = holder};
    for (ValueId v = 0; v < VALUES; v++) value_arrays_visit(index.arrays, v);
    Kernel first, other;
    LoweredCall call = call_on(&first, 1, 2, true);
    const struct {
        ValueId from, to;
        bool waits;
    } cases[] = {{2, 3, true}, {3, 2, true}, {3, 1, true}, {1, 3, false}, {3, 4, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Touched touched = stage_touched_create(&builder);
        LoweredCall next = call_on(&other, cases[i].from, cases[i].to, i % 2);
        assert_false(stage_waits(&builder, &next, &touched));
        stage_touch(&builder, &call, &touched);
        assert_int_equal(stage_waits(&builder, &next, &touched), cases[i].waits);
        stage_touched_clear(&touched);
        assert_false(stage_waits(&builder, &next, &touched));
        stage_touched_free(&touched);
    }
    /* Uses of one parameter have one place. */
    Touched touched = stage_touched_create(&builder);
    call = call_on(&first, 1, HOLDER, false);
    LoweredCall reader = call_on(&other, SHARED, 3, false);
    stage_touch(&builder, &call, &touched);
    assert_true(stage_waits(&builder, &reader, &touched));
    stage_touched_free(&touched);
    value_arrays_free(index.arrays);
}

/* ---- Sums in parts ---- */

static uint32_t sums_in_parts(const SkyStage *stage)
{
    uint32_t count = 0;
    for (uint32_t c = 0; c < sky_call_count(stage); c++) {
        const Kernel *kernel = sky_call(stage, c)->interpreted;
        count += strstr(kernel->label, "PartialSums") != NULL;
    }
    return count;
}

/* As if all sums were too short to be cut: the second output of a node that accumulates a gradient holds the parts, and
 * without rows it holds none. Whether to cut is decided by shape alone, as results must not depend on a wish, so there
 * is no option that says it. */
static void forbid_parts(Graph *graph)
{
    for (NodeId n = 1; n < graph->node_count; n++)
        if (graph_node(graph, n)->op == OP_AccumulateGradient)
            graph_value(graph, graph_node(graph, n)->outputs[1])->shape.dim[0] = 0;
}

static uint32_t count_parts(TrainingModel *model, int first, int last, StageForm form)
{
    StageCode code;
    stage_build_as(&code, &model->graph, first, last, form);
    uint32_t count = sums_in_parts(&code.stage);
    stage_free(&code);
    return count;
}

static uint32_t count_all_parts(TrainingModel *model)
{
    return count_parts(model, 0, model->graph.layer_count - 1, STAGE_PLAIN);
}

/* Or the losses of a pipeline would depend on where it is cut. */
static void stages_cut_the_same_sums(void **state)
{
    (void)state;
    TrainingModel model;
    small_bert_load(&model, 88, 0.1, true);
    for (int form = STAGE_PLAIN; form <= STAGE_RECOMPUTE; form++) {
        uint32_t count = 0;
        for (int layer = 0; layer < model.graph.layer_count; layer++)
            count += count_parts(&model, layer, layer, (StageForm)form);
        assert_int_equal(count, count_all_parts(&model));
    }
    training_model_free(&model);
}

/* 3 x 86 rows are not divided by 8 parts, but by 2: of biases and gains nothing is cut, and of small matrices. */
static void sums_in_parts_are_the_same_sums(void **state)
{
    (void)state;
    const int64_t sequence[] = {88, 86, 8};
    uint32_t cut[3];
    for (int i = 0; i < 3; i++) {
        TrainingModel model;
        size_t count, other_count;
        small_bert_load(&model, sequence[i], 0.1, false);
        cut[i] = count_all_parts(&model);
        FREED float *parts = stage_gradients(&model, NULL, false, 1, &count);
        for (int threads = 2; threads <= 5; threads += 3) {
            FREED float *same = stage_gradients(&model, NULL, false, threads, &other_count);
            assert_memory_equal(same, parts, count * sizeof *parts);
        }
        forbid_parts(&model.graph);
        assert_int_equal(count_all_parts(&model), 0);
        FREED float *whole = stage_gradients(&model, NULL, false, 1, &other_count);
        assert_int_equal(other_count, count);
        assert_true(greatest_difference(parts, whole, count) < 1e-5);
        training_model_free(&model);
    }
    /* Of each layer 6 matrices and biases, and 2 gains with their biases; the embeddings' normalisation. */
    assert_in_range(cut[0], SMALL_LAYERS * 16, SMALL_LAYERS * 16 + 4);
    assert_int_equal(cut[2], 0); /* too short */
}

/* ---- What threads make of them ---- */

enum { CALLS = 150, MOST_UNITS = 40, ROUNDS = 4, SEEDS = 6 };

/* What a call's kernel is told. */
typedef struct Told {
    int32_t units, before_first, before_end; /* calls of the wave before */
} Told;

static Told told[CALLS];
static int32_t counts[CALLS][MOST_UNITS]; /* how often each unit ran */
static int32_t failures;

/* Counts its units, and that all of the wave before have been counted as often. */
static void count_units(void *const *operands, int64_t begin, int64_t end, void *scratch, int64_t limit)
{
    (void)scratch, (void)limit;
    int32_t call = (int32_t)((const Told *)operands[0] - told);
    if (begin >= end || begin < 0 || end > told[call].units) __atomic_fetch_add(&failures, 1, __ATOMIC_RELAXED);
    for (int64_t i = begin; i < end; i++) {
        int32_t round = __atomic_add_fetch(&counts[call][i], 1, __ATOMIC_RELAXED);
        for (int32_t b = told[call].before_first; b < told[call].before_end; b++)
            for (int32_t k = 0; k < told[b].units; k++)
                if (counts[b][k] != round) __atomic_fetch_add(&failures, 1, __ATOMIC_RELAXED);
    }
}

static uint32_t below(uint32_t bound)
{
    static uint64_t drawn;
    return (uint32_t)random_below(random_stream(7, "waves"), drawn++, bound);
}

/* Waves of one to seven calls and groups of very unequal length. A group's later calls do what its first one does. */
static uint32_t make_up_calls(SkyCall *calls, SkyLocation *operands)
{
    uint32_t count = 0, before_first = 0, before_end = 0;
    while (count + 16 < CALLS) {
        uint32_t first = count, works = 1 + below(7);
        for (uint32_t w = 0; w < works; w++) {
            bool group = below(5) == 0;
            uint32_t units = below(MOST_UNITS / 2) * (group ? 2 : 1) + (group ? 2 : 0);
            for (uint32_t m = 0; m < (group ? 2U : 1U); m++, count++) {
                operands[count] = (SkyLocation){.space = SKY_SPACE_CONSTANT, .offset = count * sizeof *told};
                told[count] = (Told){(int32_t)units, (int32_t)before_first, (int32_t)before_end};
                calls[count] = (SkyCall){.kernel = count_units,
                                         .operands = &operands[count],
                                         .operand_count = 1,
                                         .group_count = group && !m ? 2 : 0,
                                         .block_count = group ? units / 2 : 0,
                                         .units = units,
                                         .nanoseconds = (int64_t)below(4) * below(60000),
                                         .name = "counts"};
            }
        }
        calls[first].wave_count = count - first;
        before_first = first;
        before_end = count;
    }
    return count;
}

static void every_unit_of_a_wave_runs_once(void **state)
{
    (void)state;
    static SkyCall calls[CALLS];
    static SkyLocation operands[CALLS];
    for (int s = 0; s < SEEDS; s++) {
        SkyStage stage = {.slot_count = 1, .constants = told};
        SkyCallList *forward = &stage.lists[SKY_LIST_FORWARD];
        *forward = (SkyCallList){.calls = calls, .count = make_up_calls(calls, operands)};
        const SkyProgram program = {.stages = &stage, .stage_count = 1};
        for (int threads = 1; threads <= 5; threads++) {
            Diagnostics diagnostics = {0};
            Execution execution;
            assert_true(execution_open(&execution, &program, threads, NULL, &diagnostics));
            memset(counts, 0, sizeof counts);
            if (threads == 4) execution_keep_apart(&execution);
            for (int round = 0; round < ROUNDS; round++)
                assert_true(execution_run(&execution, 0, SKY_LIST_FORWARD, 0, &diagnostics));
            for (uint32_t c = 0; c < forward->count; c++)
                for (int32_t i = 0; i < told[c].units; i++) assert_int_equal(counts[c][i], ROUNDS);
            assert_int_equal(failures, 0);
            execution_close(&execution);
        }
    }
}

/* A thread has the same piece of every call that all share, and whole calls are shared out by what they take. */
static void parts_are_alike(void **state)
{
    (void)state;
    SkyCall calls[6];
    const int64_t units[] = {40, 2, 2, 2, 2, 80}, nanoseconds[] = {100000, 60000, 10000, 20000, 30000, 50000};
    for (int i = 0; i < 6; i++)
        calls[i] = (SkyCall){.kernel = count_units, .units = units[i], .nanoseconds = nanoseconds[i], .name = "part"};
    calls[0].wave_count = 6;
    WaveList list;
    wave_list_make(&list, calls, 6, (SkyPresent){1, 1}, 4, false);
    assert_int_equal(list.count, 1);
    assert_int_equal(list.waves[0].sharers, 4);
    for (int thread = 0; thread < 4; thread++) assert_in_range(list.waves[0].parts[thread].units, 30, 34);
    assert_true(list.owner[0] < 0 && list.owner[5] < 0);
    assert_int_equal(list.owner[1], 1);
    for (int i = 2; i < 5; i++) assert_in_range(list.owner[i], 1, 3);
    wave_list_free(&list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_of_a_wave_touch_nothing_in_common), cmocka_unit_test(calls_wait_for_what_others_touch),
        cmocka_unit_test(sums_in_parts_are_the_same_sums),         cmocka_unit_test(stages_cut_the_same_sums),
        cmocka_unit_test(every_unit_of_a_wave_runs_once),          cmocka_unit_test(parts_are_alike)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
