/* Groupings of devices into replicas, compared with every division of the devices and the micro-batches. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <unistd.h>

#include "partitioner/planner/replica_groups.h"
#include "partitioner/planner/replicated.h"
#include "partitioner/verify/verify.h"
#include "tests/common/limits.h"
#include "tests/common/scratch.h"
#include "tests/partitioner/brute_costs.h"
#include "tests/partitioner/random_costs.h"

enum { DEVICES = 6, SETS = 1 << DEVICES, MOST = 8, INSTANCES = ADDRESS_SANITIZER ? 6 : 60 };

/* ---- brute force ---- */

typedef struct Brute {
    Costs costs; /* with `n` micro-batches */
    int device[DEVICES], end[DEVICES], count;
    int64_t best[SETS][MOST + 1]; /* [devices in use][micro-batches]: the least step of one pipeline */
    int64_t most[SETS][MOST + 1]; /* of several */
} Brute;

/* INT64_MAX: some stage does not fit. */
static int64_t step_of(const Brute *b)
{
    const Costs *costs = &b->costs;
    int64_t period = 0, sum = 0, most_update = 0;
    for (int k = 0, start = 0; k < b->count; start = b->end[k++]) {
        int d = b->device[k], n = costs->region_count;
        int64_t work = 0, update = 0;
        if (brute_stage_bytes(costs, PLAN_1F1B, start, b->end[k], b->count - k, false) > costs->devices[d].memory_bytes)
            return INT64_MAX;
        for (int l = start; l < b->end[k]; l++) {
            work += brute_nanoseconds(costs_forward_s(costs, d, l)) + brute_nanoseconds(costs_backward_s(costs, d, l));
            update += brute_nanoseconds(costs_update_s(costs, d, l));
        }
        sum += work;
        period = brute_larger(period, work);
        most_update = brute_larger(most_update, update);
        if (k == 0 || n == 0) continue;
        int from = costs->devices[b->device[k - 1]].region, to = costs->devices[d].region;
        int pairs[2] = {from * n + to, to * n + from};
        for (int way = 0; way < 2; way++) {
            double bytes = (double)costs->layers[start - 1].output_bytes;
            int64_t busy = brute_nanoseconds(bytes / costs->bandwidth_Bps[pairs[way]]);
            sum += busy + brute_nanoseconds(costs->latency_s[pairs[way]]);
            period = brute_larger(period, busy);
        }
    }
    return sum + (costs->microbatches - 1) * period + most_update;
}

static void try_stages(Brute *b, int start, int set, int most)
{
    if (start == b->costs.layer_count) {
        for (b->costs.microbatches = 1; b->costs.microbatches <= most; b->costs.microbatches++) {
            int64_t step = step_of(b), *best = &b->best[set][b->costs.microbatches];
            if (step < *best) *best = step;
        }
        return;
    }
    int k = b->count++;
    for (int d = 0; d < b->costs.device_count; d++) {
        if (set >> d & 1) continue;
        b->device[k] = d;
        for (b->end[k] = start + 1; b->end[k] <= b->costs.layer_count; b->end[k]++)
            try_stages(b, b->end[k], set | 1 << d, most);
    }
    b->count--;
}

static int64_t brute_step(Brute *b, const Costs *costs)
{
    int all = (1 << costs->device_count) - 1, total = costs->microbatches;
    b->costs = *costs;
    b->count = 0;
    for (int set = 0; set < SETS; set++)
        for (int n = 0; n <= MOST; n++) b->best[set][n] = b->most[set][n] = n ? INT64_MAX : 0;
    try_stages(b, 0, 0, total);
    for (int set = 1; set <= all; set++)
        for (int n = 1; n <= total; n++)
            for (int part = set; part; part = (part - 1) & set)
                for (int own = 1; own <= n; own++) {
                    int64_t step = brute_larger(b->best[part][own], b->most[set & ~part][n - own]);
                    if (step < b->most[set][n]) b->most[set][n] = step;
                }
    return b->most[all][total];
}

static void groupings_match_brute_force(void **state)
{
    (void)state;
    Brute *brute = calloc(1, sizeof *brute);
    int several = 0, misfits = 0, instances = getenv("INSTANCES") ? atoi(getenv("INSTANCES")) : INSTANCES;
    for (int seed = 0; seed < instances; seed++) {
        Costs costs;
        FREED_WITH(arena_free) Arena arena = {0};
        PlanRequest request = PLAN_REQUEST_DEFAULT;
        random_costs_sized(&costs, seed * 7 % VARIANTS, (uint64_t)seed + 810000, 6, DEVICES);
        costs.microbatches = 1 + seed % MOST;
        request.schedule = PLAN_1F1B;
        request.recompute = PLAN_RECOMPUTE_NEVER;
        int64_t best = brute_step(brute, &costs);
        ReplicaGroups groups = replica_groups_choose(&costs, &request, 0, &arena);
        assert_true(groups.all);
        if (groups.count == 0 ? best != INT64_MAX : groups.step_ns != best)
            fail_msg("seed %d: %d groups, %lld ns, not %lld", seed, groups.count, (long long)groups.step_ns,
                     (long long)best);
        several += groups.count > 1;
        misfits += groups.count == 0;
        costs_free(&costs);
    }
    free(brute);
    print_message("%d instances: %d with several replicas, %d where nothing fits\n", instances, several, misfits);
    assert_true(several > instances / 4);
}

/* ---- plans ---- */

/* Six layers on four devices that are alike. */
static void make_equal(Costs *costs, int64_t gradient_bytes)
{
    random_costs_sized(costs, WITH_LINKS, 77, 6, DEVICES);
    costs->microbatches = 12;
    costs->device_count = 4;
    costs->devices = arena_new_array(&costs->arena, DeviceCost, 4);
    for (int d = 0; d < 4; d++)
        costs->devices[d] = (DeviceCost){arena_format(&costs->arena, "d%d", d), 1, COSTS_NO_LIMIT, .region = 0};
    for (int l = 0; l < costs->layer_count; l++) costs->layers[l].gradient_bytes = gradient_bytes;
}

static void expect_replicas(const Costs *costs, PlanRequest request, int expected, bool records, bool warns)
{
    Plan plan;
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    assert_true(plan_make_replicas(&plan, costs, &request, &diagnostics));
    assert_int_equal(plan.replica_count, expected);
    assert_int_equal(plan.grouping_count > 0, records);
    assert_int_equal(diagnostics.warnings > 0, warns);
    plan_free(&plan);
}

/* With next to no gradients as many pipelines as there are devices; one where summing them takes longer than the step,
 * or the costs do not know them. Whoever did not ask gets the same, and reads of groupings only where one is taken. */
static void equal_devices_become_replicas(void **state)
{
    (void)state;
    static const struct {
        int64_t gradient_bytes;
        int expected;
    } cases[] = {{100000, 1}, {1, 4}, {0, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Costs costs;
        PlanRequest request = PLAN_REQUEST_DEFAULT;
        bool known = cases[i].gradient_bytes > 0;
        make_equal(&costs, cases[i].gradient_bytes);
        expect_replicas(&costs, request, cases[i].expected, cases[i].expected > 1, false);
        request.microbatches = PLAN_MICROBATCHES_AUTO;
        expect_replicas(&costs, request, cases[i].expected, cases[i].expected > 1, false);
        request.microbatches = 0;
        request.replicas = PLAN_REPLICAS_AUTO;
        expect_replicas(&costs, request, cases[i].expected, known, !known);
        costs_free(&costs);
    }
}

/* Where a wish or the cluster leaves no choice, auto is one pipeline, and says so to whoever asked. */
static void some_questions_are_about_one_pipeline(void **state)
{
    (void)state;
    enum { PINNED, OF_PERIODS, ALLOCATED, LOSSY, KEPT, KINDS };
    PlanPin pin = {0, 1, "d0"};
    for (int kind = 0; kind < KINDS; kind++) {
        Costs costs;
        PlanRequest request = PLAN_REQUEST_DEFAULT;
        make_equal(&costs, 1);
        if (kind == PINNED) request.pins = &pin, request.pin_count = 1;
        if (kind == OF_PERIODS) request.objective = PLAN_OBJECTIVE_PERIOD;
        if (kind == ALLOCATED) request.allocate = PLAN_HEURISTIC;
        if (kind == LOSSY) request.codecs = 1u << CODEC_Q8;
        if (kind == KEPT) costs.keep_inputs = "d0";
        expect_replicas(&costs, request, 1, false, false);
        request.replicas = PLAN_REPLICAS_AUTO;
        expect_replicas(&costs, request, 1, false, true);
        costs_free(&costs);
    }
}

/* Three layers end their last backward after 6, 9 and 12 s, the last layer first; their sums take 4, 2 and 1 s, and a
 * latency each way: only the first layer's is seen. */
static void sums_overlap_with_backwards(void **state)
{
    (void)state;
    static const int64_t bytes[] = {10, 20, 40};
    Costs costs;
    Plan plan;
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    PlanRequest request = PLAN_REQUEST_DEFAULT;
    random_costs_sized(&costs, WITH_LINKS, 77, 6, DEVICES);
    costs.microbatches = costs.device_count = 2;
    costs.layer_count = 3;
    costs.devices = arena_new_array(&costs.arena, DeviceCost, 2);
    costs.layers = arena_new_array(&costs.arena, LayerCost, 3);
    for (int d = 0; d < 2; d++) costs.devices[d] = (DeviceCost){d ? "right" : "left", 1, COSTS_NO_LIMIT, .region = 0};
    for (int l = 0; l < 3; l++)
        costs.layers[l] = (LayerCost){.name = costs.layers[l].name,
                                      .forward_s = 1,
                                      .backward_s = 3,
                                      .gradient_bytes = bytes[l],
                                      .output_bytes = 1};
    costs.bandwidth_Bps[0] = 10;
    costs.latency_s[0] = 0.25;
    request.replicas = 2;
    assert_true(plan_make_replicas(&plan, &costs, &request, &diagnostics));
    assert_int_equal(plan.sum_ns, 7500000000);
    assert_int_equal(plan.simulated_step_ns, 13500000000);
    assert_float_equal(plan.bubble, 1 - 12 / 13.5, 1e-9);
    plan_free(&plan);
    costs_free(&costs);
}

/* Two equal pipelines that were dealt 11 and 1 of 12 micro-batches get 6 each, unless a time limit is near. */
static void pipelines_that_do_not_end_together_are_dealt_again(void **state)
{
    (void)state;
    Costs costs;
    Plan dealt[2];
    int group_of[] = {0, 0, 1, 1}, microbatches[] = {11, 1};
    ReplicaGroups groups = {.count = 2, .group_of = group_of, .microbatches = microbatches};
    make_equal(&costs, 1);
    for (int hurried = 0; hurried < 2; hurried++) {
        PlanRequest request = PLAN_REQUEST_DEFAULT;
        FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
        if (hurried) request.time_limit_s = 1000;
        assert_true(plan_make_grouped(&dealt[hurried], &costs, &request, &groups, &diagnostics));
    }
    for (int r = 0; r < 2; r++) {
        assert_int_equal(dealt[0].replicas[r].pipeline->microbatches, 6);
        assert_int_equal(dealt[1].replicas[r].pipeline->microbatches, microbatches[r]);
    }
    assert_true(dealt[0].simulated_step_ns < dealt[1].simulated_step_ns);
    plan_free(&dealt[0]);
    plan_free(&dealt[1]);
    costs_free(&costs);
}

/* By the estimate two pipelines take more than 1.25 times as long as four; in simulation they are faster. */
static void a_few_devices_are_simulated_in_all_numbers(void **state)
{
    (void)state;
    Costs costs;
    Plan chosen, two;
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    PlanRequest request = PLAN_REQUEST_DEFAULT;
    random_costs_sized(&costs, WITH_STASH | WITH_LINKS | WITH_TYPES | WITH_MEMORY | WITH_UPDATE, 995103, 6, 5);
    costs.microbatches += 12;
    for (int l = 0; l < costs.layer_count; l++) costs.layers[l].gradient_bytes = draw(60);
    costs.norm_bytes = 8;
    assert_true(plan_make_replicas(&chosen, &costs, &request, &diagnostics));
    request.replicas = 2;
    assert_true(plan_make_replicas(&two, &costs, &request, &diagnostics));
    assert_true(chosen.simulated_step_ns <= two.simulated_step_ns);
    plan_free(&two);
    plan_free(&chosen);
    costs_free(&costs);
}

static int64_t planned_step(const Costs *costs, const PlanRequest *request)
{
    Plan plan;
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    assert_true(plan_make_replicas(&plan, costs, request, &diagnostics));
    int64_t step = plan.simulated_step_ns;
    plan_free(&plan);
    return step;
}

static void skip_with_sanitizers(const char *instead)
{
    if (!ADDRESS_SANITIZER) return;
    print_message("not with sanitizers: %s the same ways in less time\n", instead);
    skip();
}

/* Also where there are so many that the estimate is a heuristic's. */
static void eight_devices_are_simulated_in_all_numbers(void **state)
{
    (void)state;
    skip_with_sanitizers("a_few_devices_... and many_devices_... take");
    Costs costs;
    PlanRequest request = PLAN_REQUEST_DEFAULT;
    random_costs_sized(&costs, WITH_LINKS, 870144, 6, 8);
    costs.microbatches += 4;
    for (int l = 0; l < costs.layer_count; l++) costs.layers[l].gradient_bytes = draw(40);
    assert_int_equal(costs.device_count, 8);
    int64_t chosen = planned_step(&costs, &request);
    request.replicas = 2;
    assert_in_range(chosen, 1, planned_step(&costs, &request));
    costs_free(&costs);
}

/* Groups that look alike by the estimate differ in simulation, so those without a device are simulated, too. */
static void a_device_less_is_not_faster(void **state)
{
    (void)state;
    static const struct {
        int seed, device;
    } cases[] = {{25, 0}, {74, 2}};
    for (size_t i = ADDRESS_SANITIZER; i < sizeof cases / sizeof *cases; i++) {
        Costs costs;
        PlanRequest request = PLAN_REQUEST_DEFAULT;
        random_costs_sized(&costs, WITH_LINKS | (cases[i].seed & 1 ? WITH_TYPES : 0), (uint64_t)cases[i].seed + 870000,
                           6, 7 - ADDRESS_SANITIZER);
        costs.microbatches += 4;
        for (int l = 0; l < costs.layer_count; l++) costs.layers[l].gradient_bytes = draw(40);
        request.replicas = PLAN_REPLICAS_AUTO;
        int64_t all = planned_step(&costs, &request);
        request.without = &costs.devices[cases[i].device].name;
        request.without_count = 1;
        assert_in_range(all, 1, planned_step(&costs, &request));
        costs_free(&costs);
    }
}

/* Of split backwards the gradients end later, so that their sums take longer: orders without them are faster here. What
 * is fastest without a device is not among the first by rough pipelines. */
static void a_restricted_question_is_not_faster(void **state)
{
    (void)state;
    skip_with_sanitizers("a_device_less_is_not_faster takes");
    Costs costs;
    PlanRequest request = PLAN_REQUEST_DEFAULT;
    random_costs_sized(&costs, WITH_LINKS | WITH_TYPES, 870184, 8, 8);
    costs.microbatches += 6;
    for (int l = 0; l < costs.layer_count; l++) costs.layers[l].gradient_bytes = draw(200);
    request.replicas = PLAN_REPLICAS_AUTO;
    int64_t all = planned_step(&costs, &request);
    request.schedule = PLAN_SEARCHED;
    assert_in_range(all, 1, planned_step(&costs, &request) * 1001 / 1000);
    request.schedule = PLAN_AUTO;
    request.without = &costs.devices[6].name;
    request.without_count = 1;
    assert_in_range(all, 1, planned_step(&costs, &request) * 1001 / 1000);
    costs_free(&costs);
}

static int64_t grouped_step(const Costs *costs, const PlanRequest *request, const ReplicaGroups *groups)
{
    Plan plan;
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    assert_true(plan_make_grouped(&plan, costs, request, groups, &diagnostics));
    int64_t step = plan.simulated_step_ns;
    plan_free(&plan);
    return step;
}

/* Eleven devices of three kinds, with a step of 24 micro-batches. */
static void make_many(Costs *costs, uint64_t seed, int drawn)
{
    random_costs_sized(costs, WITH_LINKS, seed, 8, drawn);
    costs->microbatches = 24;
    costs->device_count = 11;
    costs->devices = arena_new_array(&costs->arena, DeviceCost, 11);
    for (int d = 0; d < 11; d++)
        costs->devices[d] =
            (DeviceCost){arena_format(&costs->arena, "d%d", d), 1 + 0.75 * (d % 3), COSTS_NO_LIMIT, .region = 0};
    for (int l = 0; l < costs->layer_count; l++) costs->layers[l].gradient_bytes = 300;
}

/* Local search by simulation beats the best grouping by the estimate by more than a tenth, and any number of groups is
 * no slower than two. */
static void many_devices_are_grouped_by_simulation(void **state)
{
    (void)state;
    Costs costs;
    FREED_WITH(arena_free) Arena arena = {0};
    PlanRequest request = PLAN_REQUEST_DEFAULT;
    make_many(&costs, 97, DEVICES);
    ReplicaGroups groups = replica_groups_choose(&costs, &request, 2, &arena);
    int64_t estimated = grouped_step(&costs, &request, &groups);
    request.replicas = 2;
    int64_t two = planned_step(&costs, &request);
    assert_in_range(two, 1, estimated - estimated / 10);
    request.replicas = PLAN_REPLICAS_AUTO;
    assert_in_range(planned_step(&costs, &request), 1, two);
    costs_free(&costs);
}

/* From groups that are about equally fast the search ends at 1719 ns. */
static void groups_may_be_unequally_fast(void **state)
{
    (void)state;
    Costs costs;
    PlanRequest request = PLAN_REQUEST_DEFAULT;
    make_many(&costs, 33, DEVICES + 1);
    request.replicas = 2;
    assert_in_range(planned_step(&costs, &request), 1, 1660);
    costs_free(&costs);
}

static bool is_accepted(const Plan *plan, const Costs *costs)
{
    Verified verified;
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    bool ok = plan_verify(&verified, plan, costs, false, &diagnostics);
    return ok;
}

/* Each number of all replicas together, changed by one. */
static void expect_no_other(Plan *plan, const Costs *costs)
{
    int64_t *const numbers[] = {&plan->sum_ns,
                                &plan->step_ns,
                                &plan->simulated_step_ns,
                                &plan->period_ns,
                                &plan->lower_bound_ns,
                                &plan->groupings[0].bound_ns,
                                &plan->norm_ns,
                                &plan->stages[0].sum_ns,
                                &plan->ranks[0].sum_ns,
                                &plan->ranks[1].sum_latency_ns};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        ++*numbers[i];
        plan->replicas[0].pipeline->stages[0].sum_ns = plan->stages[0].sum_ns;
        if (is_accepted(plan, costs)) fail_msg("number %zu can be another", i);
        --*numbers[i];
    }
    plan->replicas[0].pipeline->stages[0].sum_ns = plan->stages[0].sum_ns;
    int first = plan->replicas[0].pipeline->without_count;
    plan->replicas[0].pipeline->without_count = 0; /* takes the devices of the other, too */
    assert_false(is_accepted(plan, costs));
    plan->replicas[0].pipeline->without_count = first;
}

static void plans_with_replicas_are_read_back_and_verified(void **state)
{
    (void)state;
    int several = 0;
    for (int seed = 0; seed < INSTANCES; seed++) {
        Costs costs;
        Plan plan, again;
        FREED_WITH(buffer_free) Buffer text = {0};
        FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
        PlanRequest request = PLAN_REQUEST_DEFAULT;
        random_costs_sized(&costs, WITH_LINKS | (seed & 1 ? WITH_UPDATE : 0) | (seed & 2 ? WITH_TYPES : 0),
                           (uint64_t)seed + 820000, 6, DEVICES);
        costs.microbatches = 2 + seed % MOST;
        for (int l = 0; l < costs.layer_count; l++) costs.layers[l].gradient_bytes = draw(40);
        if (seed & 4) costs.norm_bytes = 8;
        request.replicas = seed & 8 ? PLAN_REPLICAS_AUTO : 2;
        costs.microbatch_rows = seed & 1 ? 4 : 0;
        request.rows = costs_step_rows(&costs, costs.microbatches);
        if (plan_make_replicas(&plan, &costs, &request, &diagnostics)) {
            plan_print(&plan, &text);
            Scratch file = scratch_text(buffer_text(&text));
            if (!plan_read(&again, file.path, &diagnostics) || !is_accepted(&again, &costs)) {
                diagnostics_print(&diagnostics, stderr);
                fail_msg("seed %d is refused", seed);
            }
            unlink(file.path);
            if (again.replica_count > 1) expect_no_other(&again, &costs);
            several += again.replica_count > 1;
            plan_free(&again);
        }
        plan_free(&plan);
        costs_free(&costs);
    }
    assert_true(several > INSTANCES / 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_with_replicas_are_read_back_and_verified),
        cmocka_unit_test(groupings_match_brute_force),
        cmocka_unit_test(equal_devices_become_replicas),
        cmocka_unit_test(sums_overlap_with_backwards),
        cmocka_unit_test(pipelines_that_do_not_end_together_are_dealt_again),
        cmocka_unit_test(a_few_devices_are_simulated_in_all_numbers),
        cmocka_unit_test(eight_devices_are_simulated_in_all_numbers),
        cmocka_unit_test(a_device_less_is_not_faster),
        cmocka_unit_test(a_restricted_question_is_not_faster),
        cmocka_unit_test(many_devices_are_grouped_by_simulation),
        cmocka_unit_test(groups_may_be_unequally_fast),
        cmocka_unit_test(some_questions_are_about_one_pipeline),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
