/* The forms of a stage: what a plan counts for split backward and for recomputation is what their layout takes. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "codegen/stage/stage.h"
#include "driver/compile/training_model.h"
#include "partitioner/problem.h"
#include "profiler/costs/model_costs.h"

enum { THREADS = 2 };

typedef struct Fixture {
    TrainingModel model;
    Costs costs;
    Problem problem;
} Fixture;

/* Of the sequence: with the longer one backward computes attention's probabilities again. */
static int64_t length;

static int set_up(void **state)
{
    const DimensionBinding dimensions[] = {{"batch", 4}, {"seq", length}};
    static ClusterDevice device = {.name = "device", .slowdown = 1, .threads = THREADS, .memory_bytes = COSTS_NO_LIMIT};
    static Fixture fixture;
    const Cluster cluster = {.devices = &device, .device_count = 1, .keep_inputs = -1, .keep_labels = -1};
    const ModelOptions options = {
        .import = {.dimensions = dimensions, .dimension_count = 2}, .want_loss = true, .train = true};
    Diagnostics diagnostics = {0};
    *state = &fixture;
    return !training_model_load(&fixture.model, SKY_TEST_DATA "/bert/bert-nano-seqcls-opset17-dyn.onnx", &options,
                                &diagnostics) ||
           !model_costs(&fixture.costs, &fixture.model.graph, false, &cluster, NULL, "nano", "", 4, &diagnostics) ||
           !problem_create(&fixture.problem, &fixture.costs, PLAN_OBJECTIVE_STEP, PLAN_1F1B, 4, &diagnostics);
}

static int tear_down(void **state)
{
    Fixture *fixture = *state;
    problem_free(&fixture->problem);
    costs_free(&fixture->costs);
    training_model_free(&fixture->model);
    return 0;
}

typedef void (*StageCheck)(const Fixture *fixture, int first, int last);

static void for_each_stage(Fixture *fixture, StageCheck check)
{
    for (int first = 0; first < fixture->costs.layer_count; first++)
        for (int last = first; last < fixture->costs.layer_count; last++) check(fixture, first, last);
}

static uint64_t bytes_of(const Fixture *fixture, int first, int last, StageForm form, uint32_t in_flight)
{
    StageCode code;
    stage_build_as(&code, (Graph *)&fixture->model.graph, first, last, form);
    uint64_t bytes = stage_bytes(&code.stage, in_flight, THREADS);
    stage_free(&code);
    return bytes;
}

static void check_memory(const Fixture *fixture, int first, int last)
{
    for (int in_flight = 1; in_flight <= 4; in_flight += 3) {
        uint32_t slots = (uint32_t)in_flight;
        int64_t plain = problem_stage_bytes(&fixture->problem, first, last + 1, in_flight), split = plain;
        int64_t again = problem_recompute_bytes(&fixture->problem, first, last + 1, in_flight);
        for (int l = first; l <= last; l++) split += in_flight * fixture->costs.layers[l].split_bytes;
        assert_true(bytes_of(fixture, first, last, STAGE_PLAIN, slots) <= (uint64_t)plain);
        assert_true(bytes_of(fixture, first, last, STAGE_SPLIT, slots) <= (uint64_t)split);
        assert_true(bytes_of(fixture, first, last, STAGE_RECOMPUTE, slots) <= (uint64_t)again);
    }
}

static void plans_count_enough_memory_for_every_form(void **state) { for_each_stage(*state, check_memory); }

static size_t kernel_count(const SkyCallList *list, const Kernel *kernel)
{
    size_t found = 0;
    Hash wanted = kernel_hash(kernel);
    for (uint32_t i = 0; i < list->count; i++) {
        Hash hash = kernel_hash(list->calls[i].interpreted);
        found += hash_equal(hash, wanted);
    }
    return found;
}

static void check_halves(const Fixture *fixture, int first, int last)
{
    StageCode whole, split;
    uint32_t put_off = 0;
    stage_build(&whole, (Graph *)&fixture->model.graph, first, last);
    stage_build_as(&split, (Graph *)&fixture->model.graph, first, last, STAGE_SPLIT);
    const SkyCallList *all = &whole.stage.lists[SKY_LIST_BACKWARD], *now = &split.stage.lists[SKY_LIST_BACKWARD];
    const SkyCallList *later = &split.stage.lists[SKY_LIST_WEIGHT_GRADIENT];
    assert_int_equal(all->count, now->count + later->count);
    for (uint32_t i = 0; i < all->count; i++) {
        const Kernel *kernel = all->calls[i].interpreted;
        put_off += whole.puts_off[i];
        assert_int_equal(kernel_count(all, kernel), kernel_count(now, kernel) + kernel_count(later, kernel));
    }
    assert_int_equal(put_off, later->count);
    assert_int_equal(whole.stage.space_bytes[SKY_SPACE_SLOT] + whole.split_bytes,
                     split.stage.space_bytes[SKY_SPACE_SLOT]);
    stage_free(&whole);
    stage_free(&split);
}

/* So that what was measured for the whole holds for the halves, and the bits stay the same. */
static void halves_of_backward_have_the_kernels_of_the_whole(void **state) { for_each_stage(*state, check_halves); }

/* Recomputation runs no more of forward than backward reads, and keeps no stash. */
static void check_recomputed(const Fixture *fixture, int first, int last)
{
    StageCode whole, again;
    stage_build(&whole, (Graph *)&fixture->model.graph, first, last);
    stage_build_as(&again, (Graph *)&fixture->model.graph, first, last, STAGE_RECOMPUTE);
    const SkyStage *a = &whole.stage, *b = &again.stage;
    uint32_t forward = a->lists[SKY_LIST_FORWARD].count, backward = a->lists[SKY_LIST_BACKWARD].count;
    assert_int_equal(b->lists[SKY_LIST_FORWARD].count, forward);
    assert_in_range(b->lists[SKY_LIST_BACKWARD].count, backward, backward + forward);
    assert_true(b->space_bytes[SKY_SPACE_SLOT] <= a->space_bytes[SKY_SPACE_SLOT]);
    if (first == 1 && last == 4) /* two whole blocks */
        assert_true(3 * b->space_bytes[SKY_SPACE_SLOT] < a->space_bytes[SKY_SPACE_SLOT]);
    stage_free(&whole);
    stage_free(&again);
}

static void recomputation_is_no_more_than_needed(void **state) { for_each_stage(*state, check_recomputed); }

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_count_enough_memory_for_every_form),
        cmocka_unit_test(halves_of_backward_have_the_kernels_of_the_whole),
        cmocka_unit_test(recomputation_is_no_more_than_needed),
    };
    int failed = 0;
    for (length = 16; length <= 32; length += 16) failed += cmocka_run_group_tests(tests, set_up, tear_down);
    return failed;
}
