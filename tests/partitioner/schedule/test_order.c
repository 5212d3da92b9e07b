/* Searched schedules: never slower than 1F1B, within memory, and as quick as the simulator says. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "partitioner/planner/planner.h"
#include "partitioner/schedule/order.h"
#include "partitioner/schedule/schedule.h"
#include "partitioner/solve/allocate.h"
#include "partitioner/verify/verify.h"
#include "tests/common/limits.h"
#include "tests/partitioner/random_costs.h"

/* Of the random problems the sanitizers see a part: the others run the same code, with gcc. */
enum { STEP = ADDRESS_SANITIZER ? 7 : 1 };

static void build(Plan *plan, const Costs *costs, PlanSchedule schedule)
{
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    Problem problem;
    assert_true(problem_create(&problem, costs, PLAN_OBJECTIVE_STEP, schedule, 0, &diagnostics));
    Allocation allocation = allocation_create(&problem.arena, &problem);
    allocate_even(&problem, &allocation);
    plan_build(plan, &problem, &allocation, PLAN_EVEN);
    problem_free(&problem);
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
        int next[SKY_OP_COUNT] = {0};
        for (int i = 0; i < plan->ranks[r].instruction_count; i++) {
            const PlanInstruction *instruction = &plan->ranks[r].instructions[i];
            if (instruction->microbatch >= 0) assert_int_equal(instruction->microbatch, next[instruction->op]++);
        }
        const PlanStage *stage = &plan->stages[plan->ranks[r].stages[0]];
        assert_int_equal(next[SKY_BACKWARD], plan->microbatches);
        assert_int_equal(next[SKY_WEIGHT_GRADIENT], stage->weight_gradient_ns > 0 ? plan->microbatches : 0);
    }
}

/* No order is quicker than the bound of what it has in flight. */
static void check_bound(const Plan *plan)
{
    int most[16];
    assert_true(plan->stage_count <= 16);
    for (int k = 0; k < plan->stage_count; k++) most[k] = plan->stages[k].in_flight;
    assert_true(order_bound(plan, most) <= plan->simulated_step_ns);
    assert_true(order_bound(plan, NULL) <= order_bound(plan, most));
}

static void searched_schedules_are_never_slower(void **state)
{
    (void)state;
    int quicker = 0, split = 0;
    for (int k = 0; k < 1500; k += STEP) {
        Costs costs;
        Plan plain, searched, halves;
        random_costs(&costs, k % VARIANTS | WITH_LINKS, (uint64_t)k);
        costs.microbatches *= 3;
        for (int l = 0; l < costs.layer_count && k & 1; l++)
            costs.layers[l].weight_gradient_s = draw(2) ? costs.layers[l].backward_s / 3 : 0;
        for (int l = 0; l < costs.layer_count && k & 2; l++)
            if (!costs.layers[l].resident) costs.layers[l].split_bytes = draw(30);
        build(&plain, &costs, PLAN_1F1B);
        build(&searched, &costs, PLAN_AUTO);
        build(&halves, &costs, PLAN_ZB);
        check_order(&searched);
        check_order(&halves);
        assert_true(searched.simulated_step_ns <= plain.simulated_step_ns);
        check_bound(&searched);
        check_bound(&halves);
        if (fits(&plain)) assert_true(fits(&searched) && fits(&halves));
        quicker += searched.simulated_step_ns < plain.simulated_step_ns;
        split += searched.schedule == PLAN_ZB;
        assert_true(searched.simulated_step_ns <= halves.simulated_step_ns + halves.simulated_step_ns / 1000);
        plan_free(&plain);
        plan_free(&searched);
        plan_free(&halves);
        costs_free(&costs);
    }
    assert_true(quicker > 300 / STEP && split > 100 / STEP); /* else nothing was tested */
}

/* `stages` equal stages, one per device; a forward takes a second, a backward two; links take so long. */
static void make_chain(Costs *costs, int stages, double latency_s, double transfer_s, int64_t memory)
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
    for (int i = 0; i < 4; i++)
        costs->latency_s[i] = latency_s, costs->bandwidth_Bps[i] = transfer_s > 0 ? 1 / transfer_s : 1;
    costs->layers = arena_new_array(&costs->arena, LayerCost, (size_t)stages);
    costs->devices = arena_new_array(&costs->arena, DeviceCost, (size_t)stages);
    for (int i = 0; i < stages; i++) {
        costs->layers[i] = (LayerCost){
            .name = "l", .forward_s = 1, .backward_s = 2, .stash_bytes = 100, .output_bytes = transfer_s > 0};
        costs->devices[i] = (DeviceCost){
            .name = arena_format(&costs->arena, "d%d", i), .slowdown = 1, .memory_bytes = memory, .region = i % 2};
    }
}

/* *bound: what no order within the memory can beat, of stages that are split like the plan's. */
static int64_t simulated(double latency_s, double transfer_s, int slots, PlanSchedule schedule, int64_t *bound)
{
    Costs costs;
    Plan plan;
    int most[16];
    for (int k = 0; k < 16; k++) most[k] = slots;
    make_chain(&costs, 16, latency_s, transfer_s, 100 * slots + 8);
    build(&plan, &costs, schedule);
    int64_t step = plan.simulated_step_ns;
    assert_true(fits(&plan));
    *bound = order_bound(&plan, most);
    plan_free(&plan);
    costs_free(&costs);
    return step;
}

static void long_links_take_half_the_time(void **state)
{
    (void)state;
    int64_t bound, plain = simulated(5, 0, 64, PLAN_1F1B, &bound);
    assert_true(plain >= 2 * simulated(5, 0, 64, PLAN_AUTO, &bound));
    assert_true(plain >= 3 * simulated(5, 0, 64, PLAN_ZB, &bound));
    /* With room for a few micro-batches more it is still much quicker, with none not slower. */
    assert_true(5 * simulated(5, 0, 32, PLAN_AUTO, &bound) <= 3 * plain);
    assert_true(simulated(5, 0, 16, PLAN_AUTO, &bound) <= plain);
    /* Without links equal stages leave nothing to a whole backward, and the bubble's greater part to a split one. */
    int64_t least = simulated(0, 0, 64, PLAN_1F1B, &bound);
    assert_int_equal(least, (16 + 63) * 3000000000LL);
    assert_true(simulated(0, 0, 64, PLAN_ZB, &bound) <= least - 20000000000LL);
}

/* A link that is busy for five forwards with every micro-batch carries 64 of them in nearly half the time that 1F1B
 * takes: no order is twice as quick, and what is found takes little more than it has to. Where less of the same delay
 * is transfer it is more than twice as quick. */
static void busy_links_take_little_more_than_they_must(void **state)
{
    (void)state;
    int64_t bound, plain = simulated(0, 5, 64, PLAN_1F1B, &bound), found = simulated(0, 5, 64, PLAN_AUTO, &bound);
    assert_int_equal(plain, 977000000000);
    assert_in_range(bound, 498000000000, 499000000000); /* 183 s there and back (a second more with halves of
                                                           backward), 63 transfers more */
    assert_true(plain < 2 * bound);
    assert_true(found * 1000 <= bound * 1013);
    assert_true(plain >= 2.5 * (double)simulated(2, 3, 64, PLAN_AUTO, &bound));
    assert_true(plain >= 2.5 * (double)simulated(2.5, 2.5, 64, PLAN_AUTO, &bound));
    /* Half the slots: three times there and back, 183 s each. */
    found = simulated(5, 0, 31, PLAN_AUTO, &bound);
    assert_true(bound >= 549000000000 && found * 100 <= bound * 103);
}

static void searched_plans_verify(void **state)
{
    (void)state;
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    for (int k = 0; k < 120; k += STEP) {
        Costs costs;
        Plan plan = {0};
        Verified verified;
        PlanRequest request = PLAN_REQUEST_DEFAULT;
        request.schedule = k & 1 ? PLAN_ZB : PLAN_AUTO;
        random_costs(&costs, k % VARIANTS, (uint64_t)k);
        if (plan_make(&plan, &costs, &request, &diagnostics)) {
            if (!plan_verify(&verified, &plan, &costs, false, &diagnostics)) {
                diagnostics_print(&diagnostics, stderr);
                fail_msg("plan %d is refused", k);
            }
        }
        plan_free(&plan);
        costs_free(&costs);
    }
}

/* The same question with another schedule; simulated step, or INT64_MAX where nothing fits. */
static int64_t planned(const Costs *costs, PlanRequest request, PlanSchedule schedule, int *microbatches)
{
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    Plan plan = {0};
    int64_t step = INT64_MAX;
    request.schedule = schedule;
    if (plan_make(&plan, costs, &request, &diagnostics)) {
        step = plan.simulated_step_ns;
        *microbatches = plan.microbatches;
        if (schedule == PLAN_AUTO) check_bound(&plan);
    }
    plan_free(&plan);
    return step;
}

/* Whatever is left open: where inputs and labels stay, how many micro-batches there are, which stages recompute. */
static void plans_with_searched_schedules_are_never_slower(void **state)
{
    (void)state;
    int quicker = 0, chosen = 0, both = 0;
    for (int k = 0; k < 12 * VARIANTS; k += STEP) {
        Costs costs;
        PlanRequest request = PLAN_REQUEST_DEFAULT;
        int of_plain = 0, of_searched = 0;
        random_costs(&costs, k % VARIANTS, (uint64_t)k + 300000);
        if (k % 5 == 0) costs.keep_inputs = costs.keep_labels = costs.devices[k % costs.device_count].name;
        costs.microbatches *= 1 + k % 4;
        if (k % 3 == 0) request.microbatches = PLAN_MICROBATCHES_AUTO;
        if (k & 1) request.objective = PLAN_OBJECTIVE_PERIOD;
        if (k & 2) request.recompute = PLAN_RECOMPUTE_NEVER;
        request.time_limit_s = 1e9;
        int64_t plain = planned(&costs, request, PLAN_1F1B, &of_plain),
                searched = planned(&costs, request, PLAN_AUTO, &of_searched);
        if (searched > plain) fail_msg("%d: %lld, but 1F1B takes %lld", k, (long long)searched, (long long)plain);
        if (plain < INT64_MAX) assert_int_equal(of_plain, of_searched);
        both += plain < INT64_MAX;
        quicker += plain < INT64_MAX && searched < plain;
        chosen += plain < INT64_MAX && request.microbatches == PLAN_MICROBATCHES_AUTO;
        costs_free(&costs);
    }
    print_message("%d of %d plans are quicker than under 1F1B\n", quicker, both);
    assert_true(quicker > 100 / STEP && chosen > 150 / STEP);
}

static int chosen_microbatches(int stages, int64_t memory, PlanSchedule schedule, double *gain)
{
    Costs costs;
    Plan plan;
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    PlanRequest request = PLAN_REQUEST_DEFAULT;
    request.schedule = schedule;
    request.microbatches = PLAN_MICROBATCHES_AUTO;
    request.recompute = PLAN_RECOMPUTE_NEVER;
    make_chain(&costs, stages, 0, 0, memory);
    assert_true(plan_make(&plan, &costs, &request, &diagnostics));
    int chosen = plan.microbatches;
    *gain = plan.microbatches_gain;
    plan_free(&plan);
    costs_free(&costs);
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

/* Devices on one host with two processors: enough for two at a time, and for four that need half of one each. */
static void ranks_share_the_processors_of_their_host(void **state)
{
    (void)state;
    static const double cores[] = {1, 0.5, 2};
    int64_t steps[4];
    for (int way = 0; way < 4; way++) { /* the last: each has a host of its own */
        Costs costs;
        Plan plan;
        Verified verified;
        FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
        random_costs_sized(&costs, WITH_LINKS, 4, 1, 1);
        costs.microbatches = 12;
        costs.layer_count = costs.device_count = 4;
        costs.layers = arena_new_array(&costs.arena, LayerCost, 4);
        costs.devices = arena_new_array(&costs.arena, DeviceCost, 4);
        costs.processors = 2;
        for (int i = 0; i < 4; i++) {
            costs.layers[i] = (LayerCost){.name = "layer", .forward_s = 1e-6, .backward_s = 2e-6, .output_bytes = 1};
            costs.devices[i] = (DeviceCost){.name = arena_format(&costs.arena, "d%d", i),
                                            .slowdown = 1,
                                            .memory_bytes = COSTS_NO_LIMIT,
                                            .host = way == 3 ? i : 0,
                                            .cores = cores[way % 3]};
        }
        PlanRequest request = PLAN_REQUEST_DEFAULT;
        request.allocate = PLAN_EVEN;
        request.schedule = PLAN_1F1B;
        assert_true(plan_make(&plan, &costs, &request, &diagnostics));
        assert_int_equal(plan.stage_count, 4);
        assert_true(plan_verify(&verified, &plan, &costs, false, &diagnostics));
        plan.ranks[1].cores += 1;
        assert_false(plan_verify(&verified, &plan, &costs, false, &diagnostics));
        steps[way] = plan.simulated_step_ns;
        plan_free(&plan);
        costs_free(&costs);
    }
    assert_int_equal(steps[1], steps[3]);       /* they are enough */
    assert_true(steps[0] >= 4 * 12 * 3000 / 2); /* all the work, on two processors */
    assert_true(steps[0] > steps[1] && steps[2] > steps[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_share_the_processors_of_their_host),
        cmocka_unit_test(searched_schedules_are_never_slower),
        cmocka_unit_test(long_links_take_half_the_time),
        cmocka_unit_test(busy_links_take_little_more_than_they_must),
        cmocka_unit_test(plans_with_searched_schedules_are_never_slower),
        cmocka_unit_test(searched_plans_verify),
        cmocka_unit_test(micro_batches_are_chosen_by_what_doubling_brings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
