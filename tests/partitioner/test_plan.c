#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "partitioner/schedule/schedule.h"
#include "partitioner/schedule/simulate.h"
#include "partitioner/solve/allocate.h"
#include "tests/common/scratch.h"

#define PLANNER_DATA SKY_TEST_DATA "/planner/"

typedef void (*CaseCheck)(const char *name, const Costs *costs, const json_t *known);

/* Every instance of tests/data/planner with what known.json says about it. */
static void for_each_case(CaseCheck check)
{
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    json_t *known = json_read(PLANNER_DATA "known.json", &diagnostics), *entry;
    const char *name;
    assert_non_null(known);
    json_object_foreach(known, name, entry)
    {
        char path[512];
        Costs costs;
        snprintf(path, sizeof path, PLANNER_DATA "%s.json", name);
        assert_true(costs_read(&costs, path, &diagnostics));
        check(name, &costs, entry);
        costs_free(&costs);
    }
    json_decref(known);
}

static Problem create(const Costs *costs, PlanObjective objective, PlanSchedule schedule, int microbatches)
{
    Diagnostics diagnostics = {0};
    Problem problem;
    assert_true(problem_create(&problem, costs, objective, schedule, microbatches, &diagnostics));
    return problem;
}

/* known.json gives three decimals. */
static void assert_seconds(const char *name, int64_t nanoseconds, double seconds)
{
    if (fabs((double)nanoseconds / 1e9 - seconds) > 6e-4)
        fail_msg("%s: %g s, not %g", name, (double)nanoseconds / 1e9, seconds);
}

static void check_baselines(const char *name, const Costs *costs, const json_t *known)
{
    if (!json_object_get(known, "even_s")) return;
    Problem problem = create(costs, PLAN_OBJECTIVE_PERIOD, PLAN_1F1B, 0);
    Allocation allocation = allocation_create(&problem.arena, &problem);
    allocate_even(&problem, &allocation);
    AllocationValue even = allocation_evaluate(&problem, &allocation);
    assert_seconds(name, even.period, json_number_value(json_object_get(known, "even_s")));
    assert_int_equal(even.fits, json_is_true(json_object_get(known, "even_fits")));
    const json_t *sky = json_object_get(known, "sky_heuristic_s");
    assert_int_equal(allocate_sky(&problem, &allocation), json_is_number(sky));
    AllocationValue value = allocation_evaluate(&problem, &allocation);
    if (json_is_number(sky)) assert_seconds(name, value.period, json_number_value(sky));
    if (allocate_heuristic(&problem, &allocation)) {
        AllocationValue better = allocation_evaluate(&problem, &allocation);
        assert_true(better.fits);
        assert_true(!json_is_number(sky) || better.period <= value.period);
    } else {
        assert_true(json_is_null(sky));
    }
    problem_free(&problem);
}

static void baselines_match_the_published_values(void **state)
{
    (void)state;
    for_each_case(check_baselines);
}

/* A chain of layers with the given forward times (backward twice that), one layer per device, no memory, no links. */
static void make_chain(Costs *costs, const double *forward, int count, int microbatches)
{
    memset(costs, 0, sizeof *costs);
    costs->name = "chain";
    costs->model_hash = "";
    costs->microbatches = microbatches;
    costs->layer_count = costs->device_count = count;
    costs->layers = arena_new_array(&costs->arena, LayerCost, (size_t)count);
    costs->devices = arena_new_array(&costs->arena, DeviceCost, (size_t)count);
    for (int i = 0; i < count; i++) {
        costs->layers[i] =
            (LayerCost){.name = "l", .forward_s = forward[i], .backward_s = 2 * forward[i], .resident = true};
        costs->devices[i] = (DeviceCost){
            .name = arena_format(&costs->arena, "d%d", i), .slowdown = 1, .memory_bytes = COSTS_NO_LIMIT, .region = -1};
    }
}

static const char *const some_hash = "0123456789abcdef0123456789abcdef"; /* plan_build leaves it to the planner */

static void gpipe_without_links_matches_the_closed_form(void **state)
{
    (void)state;
    static const double forward[][4] = {{1, 1, 1, 1}, {0.5, 2, 1, 0.25}, {3, 1, 2, 4}, {4, 3, 2, 1}};
    for (size_t k = 0; k < sizeof forward / sizeof *forward; k++)
        for (int n = 1; n < 9; n++) {
            Costs costs;
            make_chain(&costs, forward[k], 4, n);
            Problem problem = create(&costs, PLAN_OBJECTIVE_STEP, PLAN_GPIPE, 0);
            Allocation allocation = allocation_create(&problem.arena, &problem);
            allocate_even(&problem, &allocation);
            Plan plan;
            plan_build(&plan, &problem, &allocation, PLAN_EVEN);
            double sum = 0, largest = 0;
            for (int i = 0; i < 4; i++) sum += forward[k][i], largest = fmax(largest, forward[k][i]);
            assert_int_equal(plan.simulated_step_ns, llround(3e9 * (sum + (n - 1) * largest)));
            assert_int_equal(plan.step_ns, plan.simulated_step_ns);
            plan_free(&plan);
            problem_free(&problem);
            costs_free(&costs);
        }
}

static void one_forward_one_backward_keeps_few_micro_batches(void **state)
{
    (void)state;
    static const double forward[4] = {1, 1, 1, 1};
    Costs costs;
    make_chain(&costs, forward, 4, 8);
    Problem problem = create(&costs, PLAN_OBJECTIVE_STEP, PLAN_1F1B, 0);
    Allocation allocation = allocation_create(&problem.arena, &problem);
    allocate_even(&problem, &allocation);
    Plan plan;
    plan_build(&plan, &problem, &allocation, PLAN_EVEN);
    assert_int_equal(plan.simulated_step_ns, (4 + 7) * 3000000000LL); /* equal stages: as GPipe */
    for (int s = 0; s < 4; s++) {
        const PlanRank *rank = &plan.ranks[plan.stages[s].rank];
        int live = 0, most = 0, next_backward = 0;
        assert_int_equal(plan.stages[s].in_flight, 4 - s);
        for (int i = 0; i < rank->instruction_count; i++) {
            if (rank->instructions[i].op == SKY_FORWARD) live++;
            if (rank->instructions[i].op == SKY_BACKWARD) {
                assert_int_equal(rank->instructions[i].microbatch, next_backward++); /* gradients in the same order */
                live--;
            }
            if (live > most) most = live;
        }
        assert_int_equal(most, 4 - s);
        assert_int_equal(next_backward, 8);
    }
    plan_free(&plan);
    problem_free(&problem);
    costs_free(&costs);
}

static bool read_plan(Plan *plan, const char *text, Diagnostics *diagnostics)
{
    Scratch file = scratch_text(text);
    bool ok = plan_read(plan, file.path, diagnostics);
    unlink(file.path);
    return ok;
}

static void check_round_trip(const char *name, const Costs *costs, const json_t *known)
{
    (void)known;
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    for (int s = 0; s < PLAN_SCHEDULE_COUNT; s++) {
        Problem problem = create(costs, PLAN_OBJECTIVE_STEP, (PlanSchedule)s, 5);
        Allocation allocation = allocation_create(&problem.arena, &problem);
        allocate_heuristic(&problem, &allocation);
        Plan plan, again;
        Buffer first = {0}, second = {0};
        Simulation simulation;
        plan_build(&plan, &problem, &allocation, PLAN_HEURISTIC);
        plan.costs_hash = some_hash;
        plan.compared[PLAN_SKY] = (PlanComparison){true, true, plan.period_ns, plan.step_ns, NULL, 0};
        plan_print(&plan, &first);
        if (!read_plan(&again, buffer_text(&first), &diagnostics)) {
            diagnostics_print(&diagnostics, stderr);
            fail_msg("%s: the plan cannot be read back", name);
        }
        plan_print(&again, &second);
        assert_string_equal(buffer_text(&first), buffer_text(&second));
        assert_true(plan_simulate(&simulation, &again, &diagnostics));
        assert_int_equal(simulation.step_ns, plan.simulated_step_ns);
        simulation_free(&simulation);
        plan_free(&plan);
        plan_free(&again);
        buffer_free(&first);
        buffer_free(&second);
        problem_free(&problem);
    }
}

static void plans_read_back_as_they_were_printed(void **state)
{
    (void)state;
    for_each_case(check_round_trip);
}

/* "auto" is a request. Older plans call a searched order so: they read as what they mean. */
static void a_searched_order_is_called_so(void **state)
{
    (void)state;
    static const double forward[4] = {1, 1, 1, 1};
    static const char searched[] = "\"schedule_kind\":\"searched\"", automatic[] = "\"schedule_kind\":\"auto\"";
    Costs costs;
    make_chain(&costs, forward, 4, 4);
    Problem problem = create(&costs, PLAN_OBJECTIVE_STEP, PLAN_SEARCHED, 0);
    Allocation allocation = allocation_create(&problem.arena, &problem);
    allocate_even(&problem, &allocation);
    Plan plan, older;
    plan_build(&plan, &problem, &allocation, PLAN_EVEN);
    plan.costs_hash = some_hash;
    assert_int_equal(plan.schedule, PLAN_SEARCHED);
    Buffer text = {0}, old = {0}, again = {0};
    plan_print(&plan, &text);
    const char *at = strstr(buffer_text(&text), searched);
    assert_non_null(at);
    buffer_print(&old, "%.*s%s%s", (int)(at - buffer_text(&text)), buffer_text(&text), automatic,
                 at + sizeof searched - 1);
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    assert_true(read_plan(&older, buffer_text(&old), &diagnostics));
    assert_int_equal(older.schedule, PLAN_SEARCHED);
    plan_print(&older, &again);
    assert_string_equal(buffer_text(&again), buffer_text(&text));
    buffer_free(&text);
    buffer_free(&old);
    buffer_free(&again);
    plan_free(&plan);
    plan_free(&older);
    problem_free(&problem);
    costs_free(&costs);
}

/* A plan of four stages in which `change` damaged the schedule: the simulator has to notice. */
static void refuses(void (*change)(Plan *plan), const char *reason)
{
    static const double forward[4] = {1, 1, 1, 1};
    Costs costs;
    make_chain(&costs, forward, 4, 4);
    Problem problem = create(&costs, PLAN_OBJECTIVE_STEP, PLAN_1F1B, 0);
    Allocation allocation = allocation_create(&problem.arena, &problem);
    allocate_even(&problem, &allocation);
    Plan plan;
    plan_build(&plan, &problem, &allocation, PLAN_EVEN);
    change(&plan);
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    Simulation simulation;
    assert_false(plan_simulate(&simulation, &plan, &diagnostics));
    char *text = NULL;
    size_t size;
    FILE *stream = open_memstream(&text, &size);
    diagnostics_print(&diagnostics, stream);
    fclose(stream);
    if (!strstr(text, reason)) fail_msg("'%s' does not say '%s'", text, reason);
    free(text);
    plan_free(&plan);
    problem_free(&problem);
    costs_free(&costs);
}

static PlanInstruction *find(Plan *plan, int rank, SkyInstructionOp op, int microbatch)
{
    for (int i = 0; i < plan->ranks[rank].instruction_count; i++) {
        PlanInstruction *instruction = &plan->ranks[rank].instructions[i];
        if (instruction->op == op && instruction->microbatch == microbatch) return instruction;
    }
    fail_msg("rank %d has no %s of %d", rank, plan_op_name(op), microbatch);
    return NULL;
}

static void exchange(PlanInstruction *a, PlanInstruction *b)
{
    PlanInstruction c = *a;
    *a = *b;
    *b = c;
}

static void wait_before_sending(Plan *plan)
{
    exchange(find(plan, 0, SKY_SEND_FORWARD, 3), find(plan, 0, SKY_RECEIVE_BACKWARD, 0));
    exchange(find(plan, 0, SKY_SEND_FORWARD, 0), find(plan, 0, SKY_RECEIVE_BACKWARD, 0));
}
static void compute_before_receiving(Plan *plan)
{
    exchange(find(plan, 1, SKY_RECEIVE_FORWARD, 1), find(plan, 1, SKY_FORWARD, 1));
}
static void send_before_computing(Plan *plan)
{
    exchange(find(plan, 0, SKY_SEND_FORWARD, 0), find(plan, 0, SKY_FORWARD, 0));
}
static void use_a_slot_twice(Plan *plan) { find(plan, 0, SKY_FORWARD, 1)->slot = 0; }
static void read_a_wrong_slot(Plan *plan) { find(plan, 0, SKY_BACKWARD, 1)->slot = 3; }
static void update_early(Plan *plan) { exchange(find(plan, 0, SKY_BACKWARD, 3), find(plan, 0, SKY_UPDATE, -1)); }
static void never_update(Plan *plan) { plan->ranks[2].instruction_count--; }
static void forward_twice(Plan *plan) { *find(plan, 0, SKY_SEND_FORWARD, 0) = *find(plan, 0, SKY_FORWARD, 0); }

/* A schedule without words of its own would be reported as nothing, or as another one. */
static void every_schedule_has_words_of_its_own(void **state)
{
    (void)state;
    for (int i = 0; i < PLAN_SCHEDULE_COUNT; i++) {
        const char *told = plan_schedule_traits((PlanSchedule)i).told;
        assert_non_null(told);
        for (int k = 0; k < i; k++) assert_string_not_equal(told, plan_schedule_traits((PlanSchedule)k).told);
    }
}

static void damaged_schedules_are_refused(void **state)
{
    (void)state;
    refuses(wait_before_sending, "deadlocks");
    refuses(compute_before_receiving, "without having received");
    refuses(send_before_computing, "sends what is not computed");
    refuses(use_a_slot_twice, "still in use");
    refuses(read_a_wrong_slot, "another micro-batch's stash");
    refuses(update_early, "before every backward");
    refuses(never_update, "never updated");
    refuses(forward_twice, "forward twice");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(baselines_match_the_published_values),
        cmocka_unit_test(gpipe_without_links_matches_the_closed_form),
        cmocka_unit_test(one_forward_one_backward_keeps_few_micro_batches),
        cmocka_unit_test(plans_read_back_as_they_were_printed),
        cmocka_unit_test(a_searched_order_is_called_so),
        cmocka_unit_test(every_schedule_has_words_of_its_own),
        cmocka_unit_test(damaged_schedules_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
