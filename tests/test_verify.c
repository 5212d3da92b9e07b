#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "partitioner/certificate.h"
#include "partitioner/planner.h"
#include "partitioner/verify.h"
#include "random_costs.h"

#define PLANNER_DATA SKY_TEST_DATA "/planner/"

static PlanRequest request_of(PlanObjective objective, int k)
{
    PlanRequest request = PLAN_REQUEST_DEFAULT;
    request.objective = objective;
    request.schedule = k & 1 ? PLAN_GPIPE : PLAN_1F1B;
    request.recompute = PLAN_RECOMPUTE_NEVER; /* a plan that recomputes is rarely proven optimal */
    request.time_limit_s = 1e9;
    return request;
}

/* `path` ends in XXXXXX, which becomes a name that there was not. */
static void write_plan(const Plan *plan, char *path)
{
    int descriptor = mkstemp(path);
    Buffer buffer = {0};
    plan_print(plan, &buffer);
    FILE *stream = fdopen(descriptor, "w");
    fwrite(buffer.bytes, 1, buffer.size, stream);
    fclose(stream);
    buffer_free(&buffer);
}

/* A plan through its file and back: what `skycc verify` sees. */
static bool verify_as_file(const Plan *plan, const Costs *costs, Verified *verified, Diagnostics *diagnostics)
{
    char path[] = "/tmp/test_verify_XXXXXX";
    Plan again;
    write_plan(plan, path);
    bool ok = plan_read_verdict(&again, path, diagnostics);
    unlink(path);
    if (!ok) return false;
    ok = plan_verify(verified, &again, costs, diagnostics);
    plan_free(&again);
    return ok;
}

static void random_plans_verify(void **state)
{
    (void)state;
    int certified = 0, plans = 0, impossible = 0;
    for (int seed = 0; seed < 20 * VARIANTS; seed++) {
        Costs costs;
        random_costs(&costs, seed % VARIANTS, (uint64_t)seed + 100000);
        for (int k = 0; k < 4; k++) {
            PlanObjective objective = k & 2 ? PLAN_OBJECTIVE_STEP : PLAN_OBJECTIVE_PERIOD;
            PlanRequest request = request_of(objective, k);
            Diagnostics diagnostics = {0};
            Plan plan = {0};
            Verified verified;
            if (plan_make(&plan, &costs, &request, &diagnostics)) {
                assert_true(plan.proven_optimal);
                if (!verify_as_file(&plan, &costs, &verified, &diagnostics)) {
                    diagnostics_print(&diagnostics, stderr);
                    fail_msg("seed %d, %s", seed, plan_objective_name(objective));
                }
                plans++;
                certified += verified.certified_ns == plan_value_ns(&plan);
            } else { /* and that proves it */
                assert_int_equal(diagnostics.exit_code, EXIT_NO_PLAN);
                assert_true(plan.infeasible);
                assert_true(verify_as_file(&plan, &costs, &verified, &diagnostics));
                impossible++;
            }
            plan_free(&plan);
            diagnostics_free(&diagnostics);
        }
        costs_free(&costs);
    }
    assert_true(plans > 4000);
    printf("%d plans, %d certified optimal; %d times nothing fits\n", plans, certified, impossible);
    assert_true(certified > plans * 99 / 100);
    assert_true(impossible > 100);
}

/* ---- altered plans ---- */

typedef struct Alteration {
    void (*alter)(Plan *plan, Costs *costs);
    const char *reason;
} Alteration;

/* The plan that stands in the file, altered. */
static void refuses(const char *costs_path, const char *keeper, const char *plan_path, Alteration alteration)
{
    Diagnostics diagnostics = {0};
    Costs costs;
    Plan plan;
    Verified verified;
    assert_true(costs_read(&costs, costs_path, &diagnostics));
    costs.keep_inputs = costs.keep_labels = keeper;
    assert_true(plan_read(&plan, plan_path, &diagnostics));
    assert_true(verify_as_file(&plan, &costs, &verified, &diagnostics));
    assert_int_equal(verified.certified_ns, plan_value_ns(&plan));
    alteration.alter(&plan, &costs);
    if (verify_as_file(&plan, &costs, &verified, &diagnostics)) fail_msg("accepted: %s", alteration.reason);
    assert_int_equal(diagnostics.exit_code, EXIT_BAD_INPUT);
    char *text = NULL;
    size_t size;
    FILE *stream = open_memstream(&text, &size);
    diagnostics_print(&diagnostics, stream);
    fclose(stream);
    if (!strstr(text, alteration.reason)) fail_msg("'%s' does not say '%s'", text, alteration.reason);
    free(text);
    plan_free(&plan);
    costs_free(&costs);
    diagnostics_free(&diagnostics);
}

/* `keeper` (NULL: none) keeps inputs and labels. */
static void all_are_refused(const char *costs_path, const char *keeper, const Alteration *alterations, size_t count)
{
    for (int k = 0; k < 2; k++) {
        char path[] = "/tmp/test_verify_XXXXXX";
        Diagnostics diagnostics = {0};
        Costs costs;
        Plan plan;
        assert_true(costs_read(&costs, costs_path, &diagnostics));
        costs.keep_inputs = costs.keep_labels = keeper;
        PlanRequest request = request_of((PlanObjective)k, 0);
        assert_true(plan_make(&plan, &costs, &request, &diagnostics));
        write_plan(&plan, path);
        for (size_t i = 0; i < count; i++) refuses(costs_path, keeper, path, alterations[i]);
        unlink(path);
        plan_free(&plan);
        costs_free(&costs);
        diagnostics_free(&diagnostics);
    }
}

static void move_a_layer(Plan *plan, Costs *costs)
{
    (void)costs;
    plan->stages[0].last_layer++;
    plan->stages[1].first_layer++;
}
static void change_costs(Plan *plan, Costs *costs)
{
    (void)plan;
    costs->layers[7].forward_s += 1e-9;
}
static void swap_devices(Plan *plan, Costs *costs)
{
    (void)costs;
    const char *name = plan->stages[2].device;
    plan->stages[2].device = plan->ranks[plan->stages[2].rank].device = plan->stages[3].device;
    plan->stages[3].device = plan->ranks[plan->stages[3].rank].device = name;
}
static void use_a_device_twice(Plan *plan, Costs *costs)
{
    (void)costs;
    plan->stages[3].device = plan->ranks[plan->stages[3].rank].device = plan->stages[2].device;
}
static void shorten_the_period(Plan *plan, Costs *costs)
{
    (void)costs;
    plan->period_ns--;
}
static void shorten_the_simulation(Plan *plan, Costs *costs)
{
    (void)costs;
    plan->simulated_step_ns--;
}
static void raise_the_bound(Plan *plan, Costs *costs)
{
    (void)costs;
    plan->lower_bound_ns++;
}
static void drop_an_instruction(Plan *plan, Costs *costs)
{
    (void)costs;
    plan->ranks[1].instruction_count--;
}
static CertificateNode *leaf_of(Plan *plan)
{
    int i = 0;
    while (!plan->certificate->nodes[i].leaf || plan->certificate->nodes[i].total == 0) i++;
    return &plan->certificate->nodes[i];
}
static void raise_a_price(Plan *plan, Costs *costs)
{
    (void)costs;
    leaf_of(plan)->price[3]++;
}
static void raise_price_and_total(Plan *plan, Costs *costs)
{
    (void)costs;
    leaf_of(plan)->price[3] += 1000000000;
    leaf_of(plan)->total += 1000000000;
}
static void shorten_the_path(Plan *plan, Costs *costs)
{
    (void)costs;
    leaf_of(plan)->path--;
}
static void lengthen_the_path(Plan *plan, Costs *costs)
{
    (void)costs;
    leaf_of(plan)->path += 1000000000000;
}
static void leave_periods_out(Plan *plan, Costs *costs)
{
    (void)costs;
    plan->certificate->intervals[0].high--;
}
static void claim_more(Plan *plan, Costs *costs)
{
    (void)costs;
    plan->certificate->bound_ns++;
}

static void pay_the_keeper(Plan *plan, Costs *costs)
{
    leaf_of(plan)->price[costs_find_device(costs, costs->keep_inputs)] += 1000000000;
    leaf_of(plan)->path += 2000000000;
    leaf_of(plan)->total += 1000000000;
}
static void drop_a_branch(Plan *plan, Costs *costs)
{
    (void)costs;
    plan->certificate->interval_count -= plan->certificate->branches[--plan->certificate->branch_count].interval_count;
}
static void start_later(Plan *plan, Costs *costs)
{
    (void)costs;
    plan->certificate->branches[0].end_low++;
}
static void keep_more_in_flight(Plan *plan, Costs *costs)
{
    (void)costs;
    plan->certificate->branches[0].flights_low++;
}
static void let_anyone_be_last(Plan *plan, Costs *costs)
{
    (void)plan;
    costs->keep_labels = NULL;
}
static void take_the_first_branch_for_all(Plan *plan, Costs *costs)
{
    (void)costs;
    plan->certificate->branches[0].end_high = plan->layer_count - 1;
    plan->certificate->branch_count = 1;
    plan->certificate->interval_count = plan->certificate->branches[0].interval_count;
}
static void forget_the_branches(Plan *plan, Costs *costs)
{
    (void)costs;
    plan->certificate->branch_count = 0;
}

static const Alteration of_all[] = {
    {move_a_layer, "stages[0]"},          {change_costs, "other costs"},
    {swap_devices, "stages[2]"},          {use_a_device_twice, "already"},
    {shorten_the_period, "period_s"},     {shorten_the_simulation, "simulated_step_s"},
    {raise_the_bound, "lower_bound_s"},   {drop_an_instruction, "never updated"},
    {raise_a_price, "the prices sum to"}, {leave_periods_out, "certificate"},
    {claim_more, "certificate"},
};
static const Alteration of_chains[] = {
    {shorten_the_path, "the shortest chain costs"},
    {raise_price_and_total, "certificate.nodes"},
};
static const Alteration of_loops[] = {
    {lengthen_the_path, "the shortest chain costs"},
    {pay_the_keeper, "the prices sum to"},
    {drop_a_branch, "leave plans out"},
    {start_later, "leave plans out"},
    {keep_more_in_flight, "leave plans out"},
    {let_anyone_be_last, "other costs"},
    {take_the_first_branch_for_all, "certificate"},
    {forget_the_branches, "leave plans out"},
};

static void altered_plans_are_refused(void **state)
{
    (void)state;
    const char *costs = PLANNER_DATA "chain-lognormal-40x12-s2.json";
    all_are_refused(costs, NULL, of_all, sizeof of_all / sizeof *of_all);
    all_are_refused(costs, NULL, of_chains, sizeof of_chains / sizeof *of_chains);
    all_are_refused(costs, "d0", of_all, sizeof of_all / sizeof *of_all);
    all_are_refused(costs, "d0", of_loops, sizeof of_loops / sizeof *of_loops);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_plans_verify),
        cmocka_unit_test(altered_plans_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
