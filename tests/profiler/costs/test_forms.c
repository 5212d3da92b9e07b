/* The forms of a stage: what a plan counts for split backward and for recomputation is what their layout takes. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/stage/stage.h"
#include "codegen/stage/stage_kept.h"
#include "driver/compile/training_model.h"
#include "graph/passes/code_cuts.h"
#include "partitioner/problem.h"
#include "profiler/costs/model_costs.h"

enum { THREADS = 2 };
static const unsigned coded = 1u << CODEC_BF16 | 1u << CODEC_Q8;

typedef struct Fixture {
    Arena arena;
    TrainingModel model;
    Costs costs;
    Problem problem;
} Fixture;

/* With the longer sequence backward computes attention's probabilities again. */
typedef struct Subject {
    const char *model;
    int64_t length;
    const char *low_rank;
} Subject;

static const Subject subjects[] = {
    {"bert/bert-nano-seqcls-opset17-dyn.onnx", 16, NULL},
    {"bert/bert-nano-seqcls-opset17-dyn.onnx", 32, NULL},
    {"bert/bert-nano-seqcls-opset17-dyn.onnx", 32, "r=4,alpha=8,targets=query,value,dropout=0.1"},
    {"bert/bert-nano-mlm-opset17-dyn.onnx", 16, NULL},
    {"exports/mpnet_seqcls6.onnx", 16, NULL},
};
static const Subject *subject;

static bool load_model(TrainingModel *model, Arena *arena, Diagnostics *diagnostics)
{
    const DimensionBinding dimensions[] = {{"batch", 4}, {"seq", subject->length}};
    ModelOptions options = {
        .import = {.dimensions = dimensions, .dimension_count = 2}, .want_loss = true, .train = true};
    char path[256];
    snprintf(path, sizeof path, "%s/%s", SKY_TEST_DATA, subject->model);
    return (!subject->low_rank || low_rank_parse(&options.low_rank, subject->low_rank, arena, diagnostics)) &&
           training_model_load(model, path, &options, diagnostics);
}

static int set_up(void **state)
{
    static ClusterDevice device = {.name = "device", .slowdown = 1, .threads = THREADS, .memory_bytes = COSTS_NO_LIMIT};
    static Fixture fixture;
    const Cluster cluster = {.devices = &device, .device_count = 1, .keep_inputs = -1, .keep_labels = -1};
    Diagnostics diagnostics = {0};
    fixture = (Fixture){0};
    *state = &fixture;
    bool ok = load_model(&fixture.model, &fixture.arena, &diagnostics) &&
              model_costs(&fixture.costs, &fixture.model.graph, PRODUCTS_F32, &cluster, NULL, "nano", "", 4, 1, coded,
                          0, &diagnostics) &&
              problem_create(&fixture.problem, &fixture.costs, PLAN_OBJECTIVE_STEP, PLAN_1F1B, 4, &diagnostics);
    diagnostics_free(&diagnostics); /* of warnings, too */
    return !ok;
}

static int tear_down(void **state)
{
    Fixture *fixture = *state;
    problem_free(&fixture->problem);
    costs_free(&fixture->costs);
    training_model_free(&fixture->model);
    arena_free(&fixture->arena);
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

/* The same of a stage whose ends are coded. */
static void check_coded_memory(const Fixture *fixture, int first, int last)
{
    Fixture ends = {.costs = fixture->costs};
    Diagnostics diagnostics = {0};
    CutCodec cuts[2];
    int count = 0, next = last + 1;
    if (fixture->costs.layer_count > 8 && (first + last) % 9) return; /* a model is read for every stage */
    ends.costs.codecs = coded;
    if (first > 0) cuts[count++] = (CutCodec){first, {CODEC_Q8, CODEC_BF16}};
    if (next < fixture->costs.layer_count) cuts[count++] = (CutCodec){next, {CODEC_BF16, CODEC_Q8}};
    assert_true(load_model(&ends.model, &ends.arena, &diagnostics));
    cuts_code(&ends.model.graph, cuts, count);
    assert_true(problem_create(&ends.problem, &ends.costs, PLAN_OBJECTIVE_STEP, PLAN_1F1B, 4, &diagnostics));
    check_memory(&ends, first, last);
    problem_free(&ends.problem);
    training_model_free(&ends.model);
    arena_free(&ends.arena);
    diagnostics_free(&diagnostics); /* of warnings, too */
}

static void plans_count_enough_memory_for_coded_ends(void **state) { for_each_stage(*state, check_coded_memory); }

static void plans_count_enough_memory_for_every_form(void **state) { for_each_stage(*state, check_memory); }

/* One stage of all layers has no boundary buffers, which plans count in addition to the slots. A table of words that is
 * tied to the head is counted in both of its layers. */
static void check_close(const Fixture *fixture)
{
    double most = strstr(subject->model, "mlm") ? 1.12 : 1.05;
    int layers = fixture->costs.layer_count;
    for (int in_flight = 1; in_flight <= 4; in_flight += 3) {
        double counted = (double)problem_stage_bytes(&fixture->problem, 0, layers, in_flight);
        double bytes = (double)bytes_of(fixture, 0, layers - 1, STAGE_PLAIN, (uint32_t)in_flight);
        print_message("%d in flight: %.0f bytes are counted, %.0f laid out\n", in_flight, counted, bytes);
        assert_true(counted <= most * bytes);
    }
}

static void plans_count_little_more_memory_than_is_laid_out(void **state) { check_close(*state); }

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

/* ---- Kept weights ---- */

enum { MICROBATCHES = 4, SLOWDOWN = 3 };

/* Costs of a device with all memory and, of two, one with so much; of one, of that one. */
static Costs costs_with(const Fixture *fixture, ProductPrecision precision, const Profile *profile,
                        int64_t memory_bytes, int devices, int microbatches)
{
    Costs costs;
    Diagnostics diagnostics = {0};
    ClusterDevice list[] = {{.name = "fast", .host = "h", .slowdown = 1, .threads = 1},
                            {.name = "slow", .host = "h", .slowdown = SLOWDOWN, .threads = 1}};
    list[0].memory_bytes = devices > 1 ? CLUSTER_NO_LIMIT : memory_bytes;
    list[1].memory_bytes = memory_bytes;
    const Cluster cluster = {.devices = list, .device_count = devices, .keep_inputs = -1, .keep_labels = -1};
    assert_true(model_costs(&costs, (Graph *)&fixture->model.graph, precision, &cluster, profile, "nano", "",
                            microbatches, 1, 0, 0, &diagnostics));
    diagnostics_free(&diagnostics);
    return costs;
}

/* What so many micro-batches and an update take on the last device. Frees the costs. */
static double step_s(Costs costs, int microbatches)
{
    double seconds = 0;
    for (int l = 0, d = costs.device_count - 1; l < costs.layer_count; l++)
        seconds += microbatches * (costs_forward_s(&costs, d, l) + costs_backward_s(&costs, d, l)) +
                   costs_update_s(&costs, d, l);
    costs_free(&costs);
    return seconds;
}

static void assert_close(double a, double b) { assert_true(fabs(a - b) <= 1e-9 * fabs(b)); }

/* A step with kept weights takes less, but for its first micro-batch. Without enough memory, as without them. */
static void check_counted(const Fixture *fixture, const Profile *profile, int64_t enough)
{
    double plain[2], kept[2];
    for (int n = 0, m = 1; n < 2; n++, m = MICROBATCHES) {
        plain[n] = step_s(costs_with(fixture, PRODUCTS_BF16, profile, CLUSTER_NO_LIMIT, 1, 1), m);
        kept[n] = step_s(costs_with(fixture, PRODUCTS_BF16, profile, enough, 1, MICROBATCHES), m);
        assert_close(step_s(costs_with(fixture, PRODUCTS_BF16, profile, enough / 2, 1, MICROBATCHES), m), plain[n]);
        assert_close(step_s(costs_with(fixture, PRODUCTS_BF16, profile, enough, 2, MICROBATCHES), m),
                     SLOWDOWN * kept[n]);
        assert_close(step_s(costs_with(fixture, PRODUCTS_BF16, profile, enough / 2, 2, MICROBATCHES), m),
                     SLOWDOWN * plain[n]);
        assert_close(step_s(costs_with(fixture, PRODUCTS_F32, profile, enough, 1, MICROBATCHES), m),
                     step_s(costs_with(fixture, PRODUCTS_F32, profile, enough, 1, 1), m));
    }
    assert_close(kept[0], plain[0]);
    assert_true(kept[1] < plain[1]);
}

/* The least memory with which costs count on kept weights. */
static int64_t least_memory(const Fixture *fixture)
{
    int64_t low = 0, high = (int64_t)1 << 30;
    double plain = step_s(costs_with(fixture, PRODUCTS_BF16, NULL, low, 1, MICROBATCHES), MICROBATCHES);
    while (high - low > 1 << 10) {
        int64_t middle = low + (high - low) / 2;
        double step = step_s(costs_with(fixture, PRODUCTS_BF16, NULL, middle, 1, MICROBATCHES), MICROBATCHES);
        *(step < plain ? &high : &low) = middle;
    }
    return high;
}

static void costs_count_on_weights_that_compiling_keeps(void **state)
{
    const Fixture *fixture = *state;
    int64_t enough = least_memory(fixture);
    Costs costs = costs_with(fixture, PRODUCTS_BF16, NULL, enough, 1, MICROBATCHES);
    StageIndex *index = stage_index_create((Graph *)&fixture->model.graph, PRODUCTS_BF16);
    Problem problem;
    Diagnostics diagnostics = {0};
    check_counted(fixture, NULL, enough);
    assert_true(problem_create(&problem, &costs, PLAN_OBJECTIVE_STEP, PLAN_1F1B, MICROBATCHES, &diagnostics));
    for (int first = 0; first < costs.layer_count; first++)
        for (int last = first; last < costs.layer_count; last++) {
            StageCode code;
            stage_build_indexed(&code, index, first, last, STAGE_PLAIN);
            int64_t need = problem_stage_bytes(&problem, first, last + 1, 1) + costs.devices[0].process_bytes +
                           (int64_t)code.stage.space_bytes[SKY_SPACE_STATE];
            need += (int64_t)stage_keep_weights(&code.stage, &code.arena, UINT64_MAX);
            assert_true(need <= enough);
            stage_free(&code);
        }
    problem_free(&problem);
    stage_index_free(index);
    costs_free(&costs);
}

/* A profile with the works of every layer, of two seconds; with kept weights they take one. How many those are. */
static int list_works(Profile *profile, const Fixture *fixture, bool keeps)
{
    int kept = 0;
    StageIndex *index = stage_index_create((Graph *)&fixture->model.graph, PRODUCTS_BF16);
    for (int l = 0; l < fixture->costs.layer_count; l++) {
        StageCode code;
        stage_build_indexed(&code, index, l, l, STAGE_PLAIN);
        SkyStage keeping = code.stage;
        stage_keep_weights(&keeping, &code.arena, UINT64_MAX);
        MachineProfile layer = {.kernels = memory_allocate(2 * sky_call_count(&keeping) * sizeof(KernelTime))};
        for (int list = 0; list < SKY_LIST_COUNT; list++)
            for (uint32_t c = 0; c < keeping.lists[list].count; c += sky_wave_size(&keeping.lists[list].calls[c])) {
                Hash plain = profile_work(&code.stage.lists[list].calls[c]);
                Hash other = profile_work(&keeping.lists[list].calls[c]);
                layer.kernels[layer.kernel_count++] = (KernelTime){plain, 2};
                if (hash_equal(plain, other)) continue;
                if (keeps) layer.kernels[layer.kernel_count++] = (KernelTime){other, 1};
                kept++;
            }
        machine_profile_merge(&profile->reference, &profile->arena, &layer);
        free(layer.kernels);
        stage_free(&code);
    }
    stage_index_free(index);
    return kept;
}

static void profiles_say_what_kept_weights_bring(void **state)
{
    for (int keeps = 0; keeps < 2; keeps++) { /* on a machine that keeps none; and on one that does */
        Profile profile = {.reference = {.threads = 1}};
        int works = list_works(&profile, *state, keeps);
        double plain = step_s(costs_with(*state, PRODUCTS_BF16, &profile, CLUSTER_NO_LIMIT, 1, 1), MICROBATCHES);
        Costs costs = costs_with(*state, PRODUCTS_BF16, &profile, CLUSTER_NO_LIMIT, 1, MICROBATCHES);
        assert_false(costs.unmeasured);
        assert_true(works > 0);
        assert_close(step_s(costs, MICROBATCHES), plain - keeps * (MICROBATCHES - 1) * works);
        arena_free(&profile.arena);
    }
}

/* MPNet's blocks add up the gradient of one table of positions: the halves join other calls to other kernels there. */
static int run_subject(void)
{
    const struct CMUnitTest memory[] = {
        cmocka_unit_test(plans_count_enough_memory_for_every_form),
        cmocka_unit_test(plans_count_little_more_memory_than_is_laid_out),
        cmocka_unit_test(plans_count_enough_memory_for_coded_ends),
    };
    const struct CMUnitTest forms[] = {
        cmocka_unit_test(halves_of_backward_have_the_kernels_of_the_whole),
        cmocka_unit_test(recomputation_is_no_more_than_needed),
    };
    const struct CMUnitTest kept[] = {
        cmocka_unit_test(costs_count_on_weights_that_compiling_keeps),
        cmocka_unit_test(profiles_say_what_kept_weights_bring),
    };
    int failed = cmocka_run_group_tests_name(subject->model, memory, set_up, tear_down);
    if (!strstr(subject->model, "mpnet"))
        failed += cmocka_run_group_tests_name(subject->model, forms, set_up, tear_down);
    failed += cmocka_run_group_tests_name(subject->model, kept, set_up, tear_down);
    return failed;
}

int main(void)
{
    int failed = 0;
    for (subject = subjects; subject < subjects + sizeof subjects / sizeof *subjects; subject++)
        failed += run_subject();
    return failed;
}
