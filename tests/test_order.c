/* Searched schedules: never slower than 1F1B, within memory, and as quick as the simulator says. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "partitioner/allocate.h"
#include "partitioner/order.h"
#include "partitioner/planner.h"
#include "partitioner/schedule.h"
#include "partitioner/verify.h"
#include "random_costs.h"

static void build(Plan *plan, const Costs *costs, PlanSchedule schedule)
{
    Diagnostics diagnostics = {0};
    Problem problem;
    assert_true(problem_create(&problem, costs, PLAN_OBJECTIVE_STEP, schedule, 0, &diagnostics));
    Allocation allocation = allocation_create(&problem.arena, &problem);
    allocate_even(&problem, &allocation);
    plan_build(plan, &problem, &allocation, PLAN_EVEN);
    problem_free(&problem);
    diagnostics_free(&diagnostics);
}

static bool fits(const Plan *plan)
{
    for (int k = 0; k < plan->stage_count; k++)
        if (plan->stages[k].memory_bytes > plan->stages[k].memory_limit_bytes) return false;
    return true;
}

/* Every micro-batch of a stage runs forward, backward and, where it is split, its weight gradient, each in order. */
static void check_order(const Plan *plan)
{
    for (int r = 0; r < plan->rank_count; r++) {
        int next[PLAN_OP_COUNT] = {0};
        for (int i = 0; i < plan->ranks[r].instruction_count; i++) {
            const PlanInstruction *instruction = &plan->ranks[r].instructions[i];
            if (instruction->microbatch >= 0) assert_int_equal(instruction->microbatch, next[instruction->op]++);
        }
        const PlanStage *stage = &plan->stages[plan->ranks[r].stages[0]];
        assert_int_equal(next[PLAN_BACKWARD], plan->microbatches);
        assert_int_equal(next[PLAN_WEIGHT_GRADIENT], stage->weight_gradient_ns > 0 ? plan->microbatches : 0);
    }
}

/* Splitting pays for what it costs beyond the plan's own numbers: a sixteenth of the backward of the device that has
 * the most of it in halves. */
static bool splits_for_good(const Plan *plan, const Plan *plain)
{
    int64_t most = 0;
    for (int k = 0; k < plan->stage_count; k++)
        if (plan->stages[k].weight_gradient_ns > 0 && plan->stages[k].backward_ns > most)
            most = plan->stages[k].backward_ns;
    return plan->simulated_step_ns + most * plan->microbatches / 16 < plain->simulated_step_ns;
}

static void searched_schedules_are_never_slower(void **state)
{
    (void)state;
    int quicker = 0, split = 0;
    for (int k = 0; k < 1500; k++) {
        Costs costs;
        Plan plain, searched, halves;
        random_costs(&costs, k % VARIANTS | WITH_LINKS, (uint64_t)k);
        costs.microbatches *= 3;
        for (int l = 0; l < costs.layer_count && k & 1; l++)
            costs.layers[l].weight_gradient_s = random_below(2) ? costs.layers[l].backward_s / 3 : 0;
        for (int l = 0; l < costs.layer_count && k & 2; l++)
            if (!costs.layers[l].resident) costs.layers[l].split_bytes = random_below(30);
        build(&plain, &costs, PLAN_1F1B);
        build(&searched, &costs, PLAN_AUTO);
        build(&halves, &costs, PLAN_ZB);
        check_order(&searched);
        check_order(&halves);
        assert_true(searched.simulated_step_ns <= plain.simulated_step_ns);
        assert_true(order_bound(&searched) <= searched.simulated_step_ns);
        assert_true(order_bound(&halves) <= halves.simulated_step_ns);
        if (fits(&plain)) assert_true(fits(&searched) && fits(&halves));
        quicker += searched.simulated_step_ns < plain.simulated_step_ns;
        split += searched.schedule == PLAN_ZB;
        assert_true(searched.schedule != PLAN_ZB || splits_for_good(&searched, &plain));
        plan_free(&plain);
        plan_free(&searched);
        plan_free(&halves);
        costs_free(&costs);
    }
    assert_true(quicker > 300 && split > 100); /* else nothing was tested */
}

/* `stages` equal stages, one per device; a forward takes a second, a backward two; links have this latency. */
static void make_chain(Costs *costs, int stages, double latency_s, int64_t memory)
{
    memset(costs, 0, sizeof *costs);
    costs->name = "chain";
    costs->model_hash = "";
    costs->microbatches = 64;
    costs->layer_count = costs->device_count = stages;
    costs->region_count = 2; /* alternating: every link is long */
    costs->region_names = arena_new_array(&costs->arena, const char *, 2);
    costs->region_names[0] = "odd";
    costs->region_names[1] = "even";
    costs->latency_s = arena_new_array(&costs->arena, double, 4);
    costs->bandwidth_Bps = arena_new_array(&costs->arena, double, 4);
    for (int i = 0; i < 4; i++) costs->latency_s[i] = latency_s, costs->bandwidth_Bps[i] = 1e18;
    costs->layers = arena_new_array(&costs->arena, LayerCost, (size_t)stages);
    costs->devices = arena_new_array(&costs->arena, DeviceCost, (size_t)stages);
    for (int i = 0; i < stages; i++) {
        costs->layers[i] = (LayerCost){.name = "l", .forward_s = 1, .backward_s = 2, .stash_bytes = 100};
        costs->devices[i] = (DeviceCost){
            .name = arena_format(&costs->arena, "d%d", i), .slowdown = 1, .memory_bytes = memory, .region = i % 2};
    }
}

static int64_t simulated(double latency_s, int64_t memory, PlanSchedule schedule)
{
    Costs costs;
    Plan plan;
    make_chain(&costs, 16, latency_s, memory);
    build(&plan, &costs, schedule);
    int64_t step = plan.simulated_step_ns;
    assert_true(fits(&plan));
    plan_free(&plan);
    costs_free(&costs);
    return step;
}

static void long_links_take_half_the_time(void **state)
{
    (void)state;
    int64_t plain = simulated(5, 6400, PLAN_1F1B);
    assert_true(plain >= 2 * simulated(5, 6400, PLAN_AUTO));
    assert_true(plain >= 3 * simulated(5, 6400, PLAN_ZB));
    /* With room for a few micro-batches more it is still much quicker, with none not slower. */
    assert_true(5 * simulated(5, 3200, PLAN_AUTO) <= 3 * plain);
    assert_true(simulated(5, 1600, PLAN_AUTO) <= plain);
    /* Without links equal stages leave nothing to a whole backward, and the bubble's greater part to a split one. */
    int64_t least = simulated(0, 6400, PLAN_1F1B);
    assert_int_equal(least, (16 + 63) * 3000000000LL);
    assert_true(simulated(0, 6400, PLAN_ZB) <= least - 20000000000LL);
}

static void searched_plans_verify(void **state)
{
    (void)state;
    Diagnostics diagnostics = {0};
    for (int k = 0; k < 120; k++) {
        Costs costs;
        Plan plan = {0};
        Verified verified;
        PlanRequest request = PLAN_REQUEST_DEFAULT;
        request.schedule = k & 1 ? PLAN_ZB : PLAN_AUTO;
        random_costs(&costs, k % VARIANTS, (uint64_t)k);
        if (plan_make(&plan, &costs, &request, &diagnostics)) {
            if (!plan_verify(&verified, &plan, &costs, &diagnostics)) {
                diagnostics_print(&diagnostics, stderr);
                fail_msg("plan %d is refused", k);
            }
        }
        plan_free(&plan);
        costs_free(&costs);
    }
    diagnostics_free(&diagnostics);
}

static int chosen_microbatches(int stages, int64_t memory, PlanSchedule schedule, double *gain)
{
    Costs costs;
    Plan plan;
    Diagnostics diagnostics = {0};
    PlanRequest request = PLAN_REQUEST_DEFAULT;
    request.schedule = schedule;
    request.microbatches = PLAN_MICROBATCHES_AUTO;
    request.recompute = PLAN_RECOMPUTE_NEVER;
    make_chain(&costs, stages, 0, memory);
    assert_true(plan_make(&plan, &costs, &request, &diagnostics));
    int chosen = plan.microbatches;
    *gain = plan.microbatches_gain;
    plan_free(&plan);
    costs_free(&costs);
    diagnostics_free(&diagnostics);
    return chosen;
}

/* A step of n takes n + 7 periods on 8 equal stages: the gain of doubling is 7 / (2 n + 7). */
static void micro_batches_are_chosen_by_what_doubling_brings(void **state)
{
    (void)state;
    double gain;
    assert_int_equal(chosen_microbatches(8, 100000, PLAN_1F1B, &gain), 32);
    assert_float_equal(gain, 7.0 / 71, 1e-9);
    assert_int_equal(chosen_microbatches(1, 100000, PLAN_1F1B, &gain), 1);
    assert_float_equal(gain, 0, 1e-9);
    assert_int_equal(chosen_microbatches(8, 1900, PLAN_GPIPE, &gain), 16); /* no device holds the stash of 32 */
    assert_float_equal(gain, -1, 1e-9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(searched_schedules_are_never_slower),
        cmocka_unit_test(long_links_take_half_the_time),
        cmocka_unit_test(searched_plans_verify),
        cmocka_unit_test(micro_batches_are_chosen_by_what_doubling_brings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
