/* How much of the devices' speed a plan uses, why the others are idle, and the bound of any division of the work. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "partitioner/planner/replicated.h"
#include "partitioner/report/report.h"
#include "tests/common/limits.h"
#include "tests/partitioner/random_costs.h"

enum { LAYERS = 4, MOST = 8 };

/* Equal layers of 3 ms on equal devices; what crosses takes 1 us. */
static void equal_costs(Costs *costs, LayerCost *layers, DeviceCost *devices, int count)
{
    static double latency_s[4], bandwidth_Bps[4] = {1e9, 1e9, 1e9, 1e9};
    static const char *regions[] = {"near", "far"};
    *costs = (Costs){.name = "equal", .microbatches = 16, .layers = layers, .layer_count = LAYERS};
    for (int l = 0; l < LAYERS; l++)
        layers[l] = (LayerCost){.name = "layer", .forward_s = 1e-3, .backward_s = 2e-3, .output_bytes = 1000};
    for (int d = 0; d < count; d++)
        devices[d] = (DeviceCost){.name = (const char *[]){"a", "b", "c", "d", "e", "f", "g", "h"}[d],
                                  .slowdown = 1,
                                  .memory_bytes = COSTS_NO_LIMIT};
    costs->devices = devices;
    costs->device_count = count;
    costs->region_count = 2;
    costs->region_names = regions;
    costs->latency_s = latency_s;
    costs->bandwidth_Bps = bandwidth_Bps;
    for (int i = 0; i < 4; i++) bandwidth_Bps[i] = 1e9;
}

/* The reason for device `idle`; "" if it is in use. `form` of the report names it. */
static const char *reason(const Costs *costs, const char *without, int idle, double *speed)
{
    static const char *const forms[] = {"text", "json", "html"};
    static char found[80];
    PlanRequest request = PLAN_REQUEST_DEFAULT;
    Plan plan = {0};
    ReportUse use;
    Diagnostics diagnostics = {0};
    request.without = &without;
    request.without_count = without != NULL;
    assert_true(plan_make(&plan, costs, &request, &diagnostics));
    report_use_create(&use, &plan, costs);
    snprintf(found, sizeof found, "%s", use.reason[idle] ? use.reason[idle] : "");
    *speed = use.speed;
    for (int f = 0; f < 3; f++) {
        FREED_WITH(buffer_free) Buffer text = {0};
        report_print(&(Report){.plan = &plan, .costs = costs}, forms[f], &text);
        if (!without) assert_non_null(strstr(buffer_text(&text), found));
    }
    report_use_free(&use);
    plan_free(&plan);
    return found;
}

static void idle_devices_have_a_reason(void **state)
{
    Costs costs;
    LayerCost layers[LAYERS];
    DeviceCost devices[MOST];
    double speed;
    (void)state;
    equal_costs(&costs, layers, devices, 8);
    assert_string_equal(reason(&costs, NULL, 0, &speed), ""); /* of equal devices the first is used ... */
    assert_true(fabs(speed - 0.5) < 1e-9);
    int idle = 7;
    assert_string_equal(reason(&costs, NULL, idle, &speed), "more devices than useful layers"); /* ... not the last */
    assert_string_equal(reason(&costs, "a", 0, &speed), "left out as asked");
    assert_true(fabs(speed - 4.0 / 7) < 1e-9);

    equal_costs(&costs, layers, devices, 3);
    devices[2].slowdown = 50;
    assert_string_equal(reason(&costs, NULL, 2, &speed), "too slow to save time");
    assert_true(speed > 0.98 && speed < 1);

    equal_costs(&costs, layers, devices, 2);
    devices[1].region = 1;
    costs.bandwidth_Bps[1] = costs.bandwidth_Bps[2] = 1e4; /* what crosses takes 100 ms */
    assert_string_equal(reason(&costs, NULL, 1, &speed), "its link is slower than what it saves");

    equal_costs(&costs, layers, devices, 3);
    for (int l = 0; l < LAYERS; l++) layers[l].resident = true, layers[l].memory_bytes = 1000;
    devices[2].memory_bytes = 999;
    assert_string_equal(reason(&costs, NULL, 2, &speed), "memory");
}

/* No cut goes through a layer: one that is more than a device's share of the work is named, and no other. */
static void a_large_layer_is_named(void **state)
{
    Costs costs;
    LayerCost layers[LAYERS];
    DeviceCost devices[MOST];
    (void)state;
    for (int large = 0; large < 2; large++) {
        Plan plan = {0};
        FREED_WITH(buffer_free) Buffer text = {0};
        Diagnostics diagnostics = {0};
        PlanRequest request = PLAN_REQUEST_DEFAULT;
        equal_costs(&costs, layers, devices, 8);
        if (large) layers[LAYERS - 1].forward_s = 10e-3; /* 12 of 21 ms */
        assert_true(plan_make(&plan, &costs, &request, &diagnostics));
        report_print(&(Report){.plan = &plan, .costs = &costs}, "text", &text);
        const char *said = strstr(buffer_text(&text), "Layer 'layer', the last one, is 57% of the work");
        assert_true((said != NULL) == large);
        assert_true(large || !strstr(buffer_text(&text), "is not divided"));
        plan_free(&plan);
    }
}

static void no_step_is_below_the_bound(void **state)
{
    enum { STEP = ADDRESS_SANITIZER ? 7 : 1 };
    int plans = 0, reached = 0, above = 0, idle = 0;
    (void)state;
    for (int seed = 0; seed < 400; seed += STEP) {
        Costs costs;
        Plan plan = {0};
        ReportUse use;
        FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
        PlanRequest request = PLAN_REQUEST_DEFAULT;
        random_costs_sized(&costs, seed % VARIANTS, (uint64_t)seed + 330000, 8, 5);
        if (seed % 5 == 0) random_samples(&costs);
        for (int l = 0; l < costs.layer_count; l++) costs.layers[l].gradient_bytes = seed & 64 ? 1 + l % 3 * 20 : 0;
        if (seed % 3 == 1) request.replicas = 1 + seed / 3 % 3;
        if (seed % 7 == 1) request.schedule = (PlanSchedule)(seed / 7 % PLAN_SCHEDULE_COUNT);
        if (seed % 9 == 1) assert_true(codecs_parse("q8", &request.codecs));
        if (plan_make_replicas(&plan, &costs, &request, &diagnostics)) {
            report_use_create(&use, &plan, &costs);
            if (use.bound_ns > plan.simulated_step_ns)
                fail_msg("seed %d: %lld, but the bound is %lld", seed, (long long)plan.simulated_step_ns,
                         (long long)use.bound_ns);
            for (int d = 0; d < costs.device_count; d++) {
                assert_true((use.reason[d] == NULL) == (plan_rank_of(&plan, costs.devices[d].name) >= 0));
                idle += use.reason[d] != NULL;
            }
            assert_true(use.speed > 0 && use.speed <= 1.0000001);
            assert_true(use.computing_ns <= use.bound_ns);
            above += use.bound_ns - use.computing_ns > use.computing_ns / 10;
            reached += 5 * use.bound_ns > 4 * plan.simulated_step_ns;
            plans++;
            report_use_free(&use);
        }
        plan_free(&plan);
        costs_free(&costs);
    }
    print_message("%d plans, %d within 1.25 times the bound, %d idle devices\n", plans, reached, idle);
    assert_true(plans > 300 / STEP && reached > plans / 3 && above > plans / 3 && idle > 200 / STEP);
}

static void bound_of_two_replicas(const Costs *costs, const PlanRequest *request)
{
    Plan plan = {0};
    ReportUse use;
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    assert_true(plan_make_replicas(&plan, costs, request, &diagnostics));
    report_use_create(&use, &plan, costs);
    assert_int_equal(plan.replica_count, 2);
    assert_true(use.bound_ns <= plan.simulated_step_ns);
    report_use_free(&use);
    plan_free(&plan);
}

/* Devices that hold all layers, but none of them with what crosses its cuts, and sums of gradients that are coded. */
static void the_bound_sees_replicas(void **state)
{
    Costs costs;
    LayerCost layers[LAYERS];
    DeviceCost devices[MOST];
    PlanRequest request = PLAN_REQUEST_DEFAULT;
    (void)state;
    request.replicas = 2;
    equal_costs(&costs, layers, devices, 3);
    for (int l = 0; l < LAYERS; l++) layers[l].state_bytes = 10;
    for (int d = 0; d < 2; d++) devices[d].memory_bytes = 4000;
    devices[2].slowdown = 50;
    bound_of_two_replicas(&costs, &request);

    equal_costs(&costs, layers, devices, 2);
    for (int l = 0; l < LAYERS; l++) layers[l].gradient_bytes = layers[l].output_bytes = 100000000;
    assert_true(codecs_parse("q6", &request.codecs));
    bound_of_two_replicas(&costs, &request);
}

/* Steps of packed rows differ; what to expect is the simulated mean, in every report. */
static void the_step_time_is_simulated(void **state)
{
    int differ = 0;
    (void)state;
    for (int seed = 0; seed < 40; seed++) {
        Costs costs;
        Plan plan = {0};
        FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
        FREED_WITH(buffer_free) Buffer text = {0};
        char expected[80], seconds[REPORT_TEXT];
        random_costs(&costs, WITH_UPDATE, (uint64_t)seed + 610000);
        random_samples(&costs);
        assert_true(plan_make(&plan, &costs, &PLAN_REQUEST_DEFAULT, &diagnostics));
        report_print(&(Report){.plan = &plan, .costs = &costs}, "text", &text);
        report_seconds(plan.simulated_step_ns, seconds);
        snprintf(expected, sizeof expected, "\nStep time: %s (simulated", seconds);
        assert_non_null(strstr(buffer_text(&text), expected));
        snprintf(expected, sizeof expected, "Expected step time: %s (worst", seconds);
        assert_non_null(strstr(buffer_text(&text), expected));
        differ += plan.simulated_step_ns != plan.step_ns;
        plan_free(&plan);
        costs_free(&costs);
    }
    assert_true(differ > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(idle_devices_have_a_reason), cmocka_unit_test(a_large_layer_is_named),
        cmocka_unit_test(no_step_is_below_the_bound), cmocka_unit_test(the_bound_sees_replicas),
        cmocka_unit_test(the_step_time_is_simulated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
