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
#include "partitioner/planner/planner.h"
#include "partitioner/verify/verify.h"
#include "tests/common/limits.h"
#include "tests/common/scratch.h"
#include "tests/partitioner/random_costs.h"

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

static Scratch write_plan(const Plan *plan)
{
    FREED_WITH(buffer_free) Buffer buffer = {0};
    plan_print(plan, &buffer);
    Scratch file = scratch_file(buffer.bytes, buffer.size);
    return file;
}

/* A plan through its file and back: what `skycc verify` sees. */
static bool verify_as_file(const Plan *plan, const Costs *costs, Verified *verified, Diagnostics *diagnostics)
{
    Plan again;
    Scratch file = write_plan(plan);
    bool ok = plan_read_verdict(&again, file.path, diagnostics);
    unlink(file.path);
    if (!ok) return false;
    ok = plan_verify(verified, &again, costs, false, diagnostics);
    plan_free(&again);
    return ok;
}

/* Of the random problems, under sanitizers, every third; 3 and the number of variants have no common factor. */
enum { STEP = ADDRESS_SANITIZER ? 11 : 3 };

static void random_plans_verify(void **state)
{
    (void)state;
    int certified = 0, plans = 0, impossible = 0;
    for (int seed = 0; seed < 20 * VARIANTS; seed += STEP) {
        Costs costs;
        random_costs(&costs, seed % VARIANTS, (uint64_t)seed + 100000);
        if (seed / VARIANTS % 3 == 0) random_samples(&costs);
        for (int k = 0; k < 4; k++) {
            PlanObjective objective = k & 2 ? PLAN_OBJECTIVE_STEP : PLAN_OBJECTIVE_PERIOD;
            PlanRequest request = request_of(objective, k);
            FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
            Plan plan = {0};
            Verified verified;
            if (plan_make(&plan, &costs, &request, &diagnostics)) {
                assert_true(plan.lower_bound_ns == plan_optimum_ns(&plan));
                if (!verify_as_file(&plan, &costs, &verified, &diagnostics)) {
                    diagnostics_print(&diagnostics, stderr);
                    fail_msg("seed %d, %s", seed, plan_objective_name(objective));
                }
                plans++;
                certified += verified.certified_ns == plan_optimum_ns(&plan);
                assert_true(plan.proven_optimal == (verified.certified_ns == plan_value_ns(&plan)));
            } else { /* and that proves it */
                assert_int_equal(diagnostics.exit_code, EXIT_NO_PLAN);
                assert_true(plan.infeasible);
                assert_true(verify_as_file(&plan, &costs, &verified, &diagnostics));
                impossible++;
            }
            plan_free(&plan);
        }
        costs_free(&costs);
    }
    assert_true(plans > 4000 / STEP);
    printf("%d plans, %d certified optimal; %d times nothing fits\n", plans, certified, impossible);
    assert_true(certified > plans * 99 / 100);
    assert_true(impossible > 100 / STEP);
}

/* What stages may have in flight follows from the devices that may be used, not from those left out. */
static void plans_without_devices_verify(void **state)
{
    (void)state;
    int plans = 0;
    for (int seed = 0; seed < 1000; seed += STEP) {
        Costs costs;
        Plan plan = {0};
        Verified verified;
        Diagnostics diagnostics = {0};
        const char *without[2];
        PlanRequest request = request_of(seed & 1 ? PLAN_OBJECTIVE_STEP : PLAN_OBJECTIVE_PERIOD, 0);
        random_costs(&costs, WITH_MEMORY | WITH_STASH | (seed & 2 ? WITH_LINKS : 0), (uint64_t)seed + 60000);
        if (seed & 4) costs.keep_inputs = costs.keep_labels = costs.devices[0].name;
        request.without = without;
        while (request.without_count < 2 && request.without_count + 1 < costs.device_count) {
            without[request.without_count] = costs.devices[costs.device_count - 1 - request.without_count].name;
            request.without_count++;
        }
        if (plan_make(&plan, &costs, &request, &diagnostics) || plan.infeasible) {
            diagnostics_free(&diagnostics);
            if (!verify_as_file(&plan, &costs, &verified, &diagnostics)) {
                diagnostics_print(&diagnostics, stderr);
                fail_msg("seed %d, %d left out", seed, request.without_count);
            }
            plans += request.without_count > 0;
        }
        plan_free(&plan);
        costs_free(&costs);
        diagnostics_free(&diagnostics);
    }
    assert_true(plans > 600 / STEP);
}

/* What a plan claims without proof is accepted where that is asked for. */
static void unproven_plans_are_accepted_on_request(void **state)
{
    (void)state;
    Costs costs;
    Plan plan = {0};
    Verified verified;
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    PlanRequest request = request_of(PLAN_OBJECTIVE_PERIOD, 0);
    random_costs(&costs, 0, 11);
    assert_true(plan_make(&plan, &costs, &request, &diagnostics) && plan.proven_optimal);
    plan.certificate = NULL;
    assert_false(plan_verify(&verified, &plan, &costs, false, &diagnostics));
    assert_true(plan_verify(&verified, &plan, &costs, true, &diagnostics));
    assert_int_equal(verified.certified_ns, 0);
    plan.proven_optimal = false; /* a bound that rests on the search is no claim of a proof */
    assert_true(plan_verify(&verified, &plan, &costs, false, &diagnostics));
    plan_free(&plan);
    costs_free(&costs);
}

/* The list of what crosses between regions has neither less nor more than that, nor anything else. */
static void crossings_are_checked(void **state)
{
    (void)state;
    int crossed = 0;
    for (int seed = 0; seed < 100; seed++) {
        Costs costs;
        Plan plan = {0};
        Verified verified;
        FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
        PlanRequest request = request_of(PLAN_OBJECTIVE_PERIOD, 0);
        random_costs(&costs, WITH_LINKS, (uint64_t)seed + 500);
        assert_true(plan_make(&plan, &costs, &request, &diagnostics));
        assert_true(plan_verify(&verified, &plan, &costs, false, &diagnostics));
        if (plan.crossing_count > 0) {
            crossed++;
            plan.crossing_count--;
            assert_false(plan_verify(&verified, &plan, &costs, false, &diagnostics));
            plan.crossing_count++;
            plan.crossings[0].tensor = "another";
            assert_false(plan_verify(&verified, &plan, &costs, false, &diagnostics));
        }
        plan_free(&plan);
        costs_free(&costs);
    }
    assert_true(crossed > 20);
}

/* ---- altered plans ---- */

typedef struct Alteration {
    void (*alter)(Plan *plan, Costs *costs);
    const char *reason;
} Alteration;

/* The plan that stands in the file, altered. */
static void refuses(const char *costs_path, const char *keeper, const char *plan_path, Alteration alteration)
{
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    Costs costs;
    Plan plan;
    Verified verified;
    assert_true(costs_read(&costs, costs_path, &diagnostics));
    costs.keep_inputs = costs.keep_labels = keeper;
    assert_true(plan_read(&plan, plan_path, &diagnostics));
    assert_true(verify_as_file(&plan, &costs, &verified, &diagnostics));
    assert_int_equal(verified.certified_ns, plan_optimum_ns(&plan));
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
}

/* `keeper` (NULL: none) keeps inputs and labels. */
static void all_are_refused(const char *costs_path, const char *keeper, const Alteration *alterations, size_t count)
{
    for (int k = 0; k < 2; k++) {
        FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
        Costs costs;
        Plan plan;
        assert_true(costs_read(&costs, costs_path, &diagnostics));
        costs.keep_inputs = costs.keep_labels = keeper;
        PlanRequest request = request_of((PlanObjective)k, 0);
        assert_true(plan_make(&plan, &costs, &request, &diagnostics));
        Scratch file = write_plan(&plan);
        for (size_t i = 0; i < count; i++) refuses(costs_path, keeper, file.path, alterations[i]);
        unlink(file.path);
        plan_free(&plan);
        costs_free(&costs);
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
static void enlarge_a_process(Plan *plan, Costs *costs)
{
    (void)costs;
    plan->ranks[1].process_bytes++;
}
static void shorten_the_simulation(Plan *plan, Costs *costs)
{
    (void)costs;
    plan->simulated_step_ns--;
}
static void raise_the_bound(Plan *plan, Costs *costs)
{
    (void)costs;
    plan->lower_bound_ns = plan_value_ns(plan) + 1;
}
static void drop_an_instruction(Plan *plan, Costs *costs)
{
    (void)costs;
    plan->ranks[1].instruction_count--;
}
static PlanInstruction *find(Plan *plan, SkyInstructionOp op)
{
    for (int r = 0; r < plan->rank_count; r++)
        for (int k = 0; k < plan->ranks[r].instruction_count; k++)
            if (plan->ranks[r].instructions[k].op == op) return &plan->ranks[r].instructions[k];
    fail_msg("no %s", plan_op_name(op));
    return NULL;
}
static void drop_a_reduction(Plan *plan, Costs *costs)
{
    (void)costs;
    PlanInstruction *reduce = find(plan, SKY_REDUCE),
                    *last = &plan->ranks[0].instructions[plan->ranks[0].instruction_count];
    memmove(reduce, reduce + 1, (size_t)(last - reduce - 1) * sizeof *reduce);
    plan->ranks[0].instruction_count--;
}
static void receive_twice(Plan *plan, Costs *costs)
{
    (void)costs;
    PlanRank *rank = &plan->ranks[0];
    PlanInstruction receive = *find(plan, SKY_RECEIVE_BACKWARD);
    PlanInstruction *more = arena_new_array(&plan->arena, PlanInstruction, (size_t)rank->instruction_count + 1);
    int at = 0;
    for (int k = 0; k < rank->instruction_count; k++) {
        more[at++] = rank->instructions[k];
        if (at == k + 1 && memcmp(&rank->instructions[k], &receive, sizeof receive) == 0) more[at++] = receive;
    }
    rank->instructions = more;
    rank->instruction_count = at;
}
static void send_less(Plan *plan, Costs *costs)
{
    (void)costs;
    plan->links[0].wire_bytes[0] /= 2;
}
static void compare_with_better(Plan *plan, Costs *costs)
{
    (void)costs;
    plan->compared[PLAN_EVEN] = (PlanComparison){true, true, 1, 1, NULL, 0};
}
static void compare_with_another(Plan *plan, Costs *costs)
{
    (void)costs;
    plan->compared[plan->allocator].period_ns++;
}
static void lose_the_proof(Plan *plan, Costs *costs)
{
    (void)costs;
    plan->certificate = NULL;
    plan->proven_optimal = true;
    plan->lower_bound_ns = plan_value_ns(plan);
    plan->gap = 0;
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
    {move_a_layer, "stages[0]"},
    {change_costs, "other costs"},
    {swap_devices, "stages[2]"},
    {use_a_device_twice, "already"},
    {enlarge_a_process, "process takes 0 bytes more"},
    {shorten_the_period, "period_s"},
    {shorten_the_simulation, "simulated_step_s"},
    {raise_the_bound, "lower_bound_s"},
    {drop_an_instruction, "never updated"},
    {raise_a_price, "the prices sum to"},
    {leave_periods_out, "certificate"},
    {claim_more, "certificate"},
    {drop_a_reduction, "'reduce' 1 times, not 0 times"},
    {receive_twice, "is done already"},
    {send_less, "over the wire"},
    {compare_with_better, "compared"},
    {compare_with_another, "compared"},
    {lose_the_proof, "proven_optimal"},
};
static const Alteration of_chains[] = {
    {shorten_the_path, "the shortest chain costs"},
    {raise_price_and_total, "certificate.nodes"},
};
static const Alteration of_keepers[] = {
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
    all_are_refused(costs, "d0", of_keepers, sizeof of_keepers / sizeof *of_keepers);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_plans_verify),
        cmocka_unit_test(plans_without_devices_verify),
        cmocka_unit_test(unproven_plans_are_accepted_on_request),
        cmocka_unit_test(crossings_are_checked),
        cmocka_unit_test(altered_plans_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
