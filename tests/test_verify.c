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

/* A plan through its file and back: what `skycc verify` sees. */
static bool verify_as_file(const Plan *plan, const Costs *costs, Verified *verified, Diagnostics *diagnostics)
{
    char path[] = "/tmp/test_verify_XXXXXX";
    int descriptor = mkstemp(path);
    Buffer buffer = {0};
    plan_print(plan, &buffer);
    FILE *stream = fdopen(descriptor, "w");
    fwrite(buffer.bytes, 1, buffer.size, stream);
    fclose(stream);
    buffer_free(&buffer);
    Plan again;
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

static const char *const chosen = PLANNER_DATA "chain-lognormal-40x12-s2.json";

typedef void (*Alteration)(Plan *plan, Costs *costs);

static void refuses(PlanObjective objective, Alteration alter, const char *reason)
{
    Diagnostics diagnostics = {0};
    Costs costs;
    Plan plan;
    Verified verified;
    assert_true(costs_read(&costs, chosen, &diagnostics));
    PlanRequest request = request_of(objective, 0);
    assert_true(plan_make(&plan, &costs, &request, &diagnostics));
    assert_true(verify_as_file(&plan, &costs, &verified, &diagnostics));
    assert_int_equal(verified.certified_ns, plan_value_ns(&plan));
    alter(&plan, &costs);
    if (verify_as_file(&plan, &costs, &verified, &diagnostics)) fail_msg("accepted: %s", reason);
    assert_int_equal(diagnostics.exit_code, EXIT_BAD_INPUT);
    char *text = NULL;
    size_t size;
    FILE *stream = open_memstream(&text, &size);
    diagnostics_print(&diagnostics, stream);
    fclose(stream);
    if (!strstr(text, reason)) fail_msg("'%s' does not say '%s'", text, reason);
    free(text);
    plan_free(&plan);
    costs_free(&costs);
    diagnostics_free(&diagnostics);
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

static void altered_plans_are_refused(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        PlanObjective objective = (PlanObjective)k;
        refuses(objective, move_a_layer, "stages[0]");
        refuses(objective, change_costs, "other costs");
        refuses(objective, swap_devices, "stages[2]");
        refuses(objective, use_a_device_twice, "already");
        refuses(objective, shorten_the_period, "period_s");
        refuses(objective, shorten_the_simulation, "simulated_step_s");
        refuses(objective, raise_the_bound, "lower_bound_s");
        refuses(objective, drop_an_instruction, "never updated");
        refuses(objective, raise_a_price, "the prices sum to");
        refuses(objective, raise_price_and_total, "certificate.nodes");
        refuses(objective, shorten_the_path, "the shortest chain costs");
        refuses(objective, leave_periods_out, "certificate");
        refuses(objective, claim_more, "certificate");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_plans_verify),
        cmocka_unit_test(altered_plans_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
