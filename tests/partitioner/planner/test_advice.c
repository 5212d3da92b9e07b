/* What a report says would happen is what planning again finds. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "partitioner/planner/planner.h"
#include "partitioner/report/report.h"
#include "tests/common/limits.h"
#include "tests/partitioner/random_costs.h"

static PlanRequest request_for(PlanObjective objective)
{
    PlanRequest request = PLAN_REQUEST_DEFAULT;
    request.objective = objective;
    request.schedule = PLAN_1F1B;
    request.recompute = PLAN_RECOMPUTE_NEVER; /* else "exact" is more than tiny problems promise */
    request.time_limit_s = 1e9;
    return request;
}

static void expect_plan_without(const Costs *costs, const AdviceWithout *advice, PlanRequest request, int seed)
{
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    Plan plan = {0};
    request.without = &advice->device;
    request.without_count = 1;
    bool found = plan_make(&plan, costs, &request, &diagnostics);
    if (!advice->plan.exact) fail_msg("seed %d: tiny problems are solved", seed);
    if (found != advice->plan.found) fail_msg("seed %d: whether anything fits without %s", seed, advice->device);
    if (found && plan_chosen_ns(&plan) != replanned_ns(&advice->plan))
        fail_msg("seed %d: without %s %lld, not %lld", seed, advice->device, (long long)plan_chosen_ns(&plan),
                 (long long)replanned_ns(&advice->plan));
    plan_free(&plan); /* also of one that says that nothing fits */
}

/* More memory is enough to plan again with it, and a device more is like one that was left out before. */
static void expect_change(const Costs *costs, const AdviceChange *change, PlanRequest request, int seed)
{
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    Plan plan;
    Costs changed = *costs;
    int device = change->device ? costs_find_device(costs, change->device) : -1;
    changed.devices = memory_allocate((size_t)(costs->device_count + 1) * sizeof *changed.devices);
    memcpy(changed.devices, costs->devices, (size_t)costs->device_count * sizeof *changed.devices);
    if (change->kind == ADVICE_MEMORY)
        changed.devices[device].memory_bytes = change->memory_bytes;
    else if (change->kind == ADVICE_DEVICE) {
        changed.devices[changed.device_count] = changed.devices[device];
        changed.devices[changed.device_count++].name = "a new one";
    }
    if (device >= 0 && change->kind != ADVICE_SPEED) {
        assert_true(plan_make(&plan, &changed, &request, &diagnostics));
        bool as_said = change->plan.exact ? plan_chosen_ns(&plan) == replanned_ns(&change->plan)
                                          : plan_chosen_ns(&plan) <= replanned_ns(&change->plan);
        if (!as_said)
            fail_msg("seed %d: %lld after a change of %s, not %lld", seed, (long long)plan_chosen_ns(&plan),
                     change->device, (long long)replanned_ns(&change->plan));
        plan_free(&plan);
    }
    assert_true(change->gain_ns > 0);
    free(changed.devices);
}

static void advice_is_what_planning_again_finds(void **state)
{
    (void)state;
    enum { STEP = ADDRESS_SANITIZER ? 5 : 1 };
    int without = 0, changes = 0;
    for (int seed = 0; seed < 6 * VARIANTS; seed += STEP) {
        Costs costs;
        random_costs(&costs, seed % VARIANTS, (uint64_t)seed + 500);
        if (seed >= 4 * VARIANTS) costs.keep_inputs = costs.keep_labels = costs.devices[0].name;
        PlanRequest request = request_for(seed & 1 ? PLAN_OBJECTIVE_PERIOD : PLAN_OBJECTIVE_STEP);
        FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
        Plan plan = {0};
        if (plan_make(&plan, &costs, &request, &diagnostics)) {
            Advice advice;
            advice_make(&advice, &plan, &costs, 0);
            assert_true(advice.given);
            for (int i = 0; i < advice.without_count; i++, without++)
                expect_plan_without(&costs, &advice.without[i], request, seed);
            for (int i = 0; i < advice.change_count; i++, changes++)
                expect_change(&costs, &advice.changes[i], request, seed);
            for (int i = 1; i < advice.change_count; i++)
                assert_true(advice.changes[i - 1].gain_ns >= advice.changes[i].gain_ns);
            advice_free(&advice);
        }
        plan_free(&plan);
        costs_free(&costs);
    }
    assert_in_range(without, 300 / STEP, 3000);
    assert_in_range(changes, 300 / STEP, 3000);
}

static char *print_until(const Plan *plan, const Costs *costs, const char *form, double deadline)
{
    Advice advice;
    FREED_WITH(buffer_free) Buffer buffer = {0};
    advice_make(&advice, plan, costs, deadline);
    report_print(&(Report){.plan = plan, .costs = costs, .advice = &advice}, form, &buffer);
    advice_free(&advice);
    char *text = strdup(buffer_text(&buffer));
    return text;
}

static char *print(const Plan *plan, const Costs *costs, const char *form) { return print_until(plan, costs, form, 0); }

static void expect_parts(const char *text, const char *const *parts)
{
    for (; *parts; parts++)
        if (!strstr(text, *parts)) fail_msg("'%s' is missing", *parts);
}

/* Unequal layers, 48 devices of four kinds in two regions. */
static void make_large(Costs *costs)
{
    enum { LAYERS = 300, DEVICES = 48 };
    memset(costs, 0, sizeof *costs);
    costs->name = "large";
    costs->microbatches = 64;
    costs->layer_count = LAYERS;
    costs->device_count = DEVICES;
    costs->region_count = 2;
    costs->layers = arena_new_array(&costs->arena, LayerCost, LAYERS);
    costs->devices = arena_new_array(&costs->arena, DeviceCost, DEVICES);
    costs->region_names = arena_new_array(&costs->arena, const char *, 2);
    costs->latency_s = arena_new_array(&costs->arena, double, 4);
    costs->bandwidth_Bps = arena_new_array(&costs->arena, double, 4);
    for (int r = 0; r < 2; r++) costs->region_names[r] = r ? "tokyo" : "paris";
    for (int i = 0; i < 4; i++) {
        costs->latency_s[i] = i % 3 ? 0.1 : 0.0001;
        costs->bandwidth_Bps[i] = i % 3 ? 1e8 : 1e9;
    }
    for (int l = 0; l < LAYERS; l++)
        costs->layers[l] = (LayerCost){.name = arena_format(&costs->arena, "encoder.%d", l),
                                       .forward_s = 1e-5 * (500 + draw(1100)),
                                       .backward_s = 0.02,
                                       .resident = true,
                                       .memory_bytes = 40 << 20,
                                       .output_bytes = 1 << 20};
    for (int d = 0; d < DEVICES; d++)
        costs->devices[d] = (DeviceCost){.name = arena_format(&costs->arena, "node-%d", d),
                                         .slowdown = 1 + d % 4,
                                         .memory_bytes = (int64_t)(2 + d % 3) * (180 << 20),
                                         .region = d / 24};
}

/* A plan of many devices: the text fits one screen, the page asks nothing of the network, and both stay the same. */
static void reports_are_whole_and_repeatable(void **state)
{
    static const char *const forms[] = {"text", "json", "html", "svg"};
    static const char *const parts[][10] = {
        {"proven optimal", "Without one of these devices", "What would help most", " more stages", "Slowest link"},
        {"\"without_one_device\"", "\"certificate\"", "\"changes_that_help\"", "\"compared\"", "\"links\"", "\"proof\"",
         "\"used\":true"},
        {"<html lang=en>", "Certificate: ", "<caption>", "scope=col", "prefers-color-scheme:dark", "@media print",
         "id=time-line", "Why not one device fewer?", "What would help most?"},
        {"<svg xmlns=", "prefers-color-scheme:dark", "more stages", "One step", "Step time ", "</svg>"},
    };
    (void)state;
    Costs costs;
    Plan plan;
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    make_large(&costs);
    PlanRequest request = request_for(PLAN_OBJECTIVE_PERIOD);
    assert_true(plan_make(&plan, &costs, &request, &diagnostics));
    for (int f = 0; f < 4; f++) {
        char *text = print(&plan, &costs, forms[f]), *again = print(&plan, &costs, forms[f]);
        int lines = 0;
        for (const char *c = text; *c; c++) lines += *c == '\n';
        expect_parts(text, parts[f]);
        assert_string_equal(text, again);
        if (f == 0) assert_in_range(lines, 24, 52);
        if (f == 2) assert_null(strstr(text, "http"));
        free(text);
        free(again);
    }
    plan_free(&plan);
    costs_free(&costs);
}

/* Names come from strangers' files. */
static void names_cannot_break_the_page(void **state)
{
    (void)state;
    Costs costs;
    Plan plan;
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    random_costs(&costs, WITH_LINKS, 3);
    costs.name = "<script>alert(1)</script>&\"";
    for (int l = 0; l < costs.layer_count; l++) costs.layers[l].name = "</table><img src=x>";
    for (int d = 0; d < costs.device_count; d++)
        costs.devices[d].name = arena_format(&costs.arena, "<b>%d</b>%s", d,
                                             d % 2 ? "a long name that goes on and on and on, beyond every column"
                                                   : "\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9");
    PlanRequest request = request_for(PLAN_OBJECTIVE_STEP);
    assert_true(plan_make(&plan, &costs, &request, &diagnostics));
    FREED char *text = print(&plan, &costs, "html");
    assert_null(strstr(text, "<script"));
    assert_null(strstr(text, "<img"));
    assert_null(strstr(text, "<b>"));
    assert_non_null(strstr(text, "&lt;script&gt;"));
    /* Names that the time line cuts are cut between characters, and whole in a title. */
    assert_non_null(strstr(text,
                           "<title>&lt;b&gt;0&lt;/b&gt;\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9"
                           "</title>&lt;b&gt;0&lt;/b&gt;\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u2026"));
    plan_free(&plan);
    costs_free(&costs);
}

/* Where nothing was tried nothing is said about what helps. */
static void late_advice_says_so(void **state)
{
    static const char *const forms[] = {"text", "html"};
    (void)state;
    Costs costs;
    Plan plan;
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    random_costs(&costs, WITH_LINKS, 3);
    PlanRequest request = request_for(PLAN_OBJECTIVE_STEP);
    assert_true(plan_make(&plan, &costs, &request, &diagnostics));
    for (int k = 0; k < 2; k++) {
        FREED char *text = print_until(&plan, &costs, forms[k], 1e-9);
        assert_non_null(strstr(text, "o change of a device or link was tried"));
        assert_null(strstr(text, "one of 0 changes"));
    }
    plan_free(&plan);
    costs_free(&costs);
}

/* A search that ended at once claims nothing. */
static void no_bound_is_no_claim(void **state)
{
    (void)state;
    Costs costs;
    Plan plan;
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    random_costs(&costs, WITH_LINKS, 3);
    PlanRequest request = request_for(PLAN_OBJECTIVE_STEP);
    assert_true(plan_make(&plan, &costs, &request, &diagnostics));
    plan.lower_bound_ns = 0;
    plan.proven_optimal = false;
    plan.timed_out = true;
    plan.certificate = NULL;
    char *text = print(&plan, &costs, "text"), *page = print(&plan, &costs, "html");
    assert_non_null(strstr(text, "\nno bound is known"));
    assert_null(strstr(text, "e+"));
    assert_non_null(strstr(page, "<dd>none</dd>"));
    free(text);
    free(page);
    plan_free(&plan);
    costs_free(&costs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(advice_is_what_planning_again_finds),
        cmocka_unit_test(reports_are_whole_and_repeatable),
        cmocka_unit_test(names_cannot_break_the_page),
        cmocka_unit_test(late_advice_says_so),
        cmocka_unit_test(no_bound_is_no_claim),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
