/* The plan is the allocation whose schedule takes least in simulation, and a relaxed question has no slower answer. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "partitioner/planner/planner.h"
#include "partitioner/schedule/schedule.h"
#include "partitioner/verify/verify.h"
#include "tests/common/limits.h"
#include "tests/partitioner/random_costs.h"

enum { STEP = ADDRESS_SANITIZER ? 8 : 1 };

/* ---- all allocations ---- */

typedef struct Brute {
    const Problem *problem;
    Allocation part;
    bool used[8];
    int64_t optimum, least; /* of the objective; the least simulated step of the allocations that have it */
    int64_t fastest;        /* the least simulated step of all */
} Brute;

/* Differences up to a thousandth are left alone where the simpler answer has them. */
static bool is_slower(int64_t step_ns, int64_t than) { return step_ns - than > than / 1000; }

static void try_all(Brute *b, int start)
{
    const Problem *p = b->problem;
    if (start == p->layer_count) {
        AllocationValue value = allocation_settle(p, &b->part);
        if (!value.fits) return;
        Plan plan;
        plan_build(&plan, p, &b->part, PLAN_OPTIMAL);
        if (value.step < b->optimum || (value.step == b->optimum && plan.simulated_step_ns < b->least)) {
            b->optimum = value.step;
            b->least = plan.simulated_step_ns;
        }
        if (plan.simulated_step_ns < b->fastest) b->fastest = plan.simulated_step_ns;
        plan_free(&plan);
        return;
    }
    for (int d = 0; d < p->device_count; d++) {
        if (b->used[d]) continue;
        b->used[d] = true;
        b->part.device[b->part.stage_count++] = d;
        for (int end = start + 1; end <= p->layer_count; end++) {
            b->part.end[b->part.stage_count - 1] = end;
            try_all(b, end);
        }
        b->part.stage_count--;
        b->used[d] = false;
    }
}

static void no_optimum_is_faster(void **state)
{
    int plans = 0, limits = 0, freely = 0;
    (void)state;
    for (int seed = 0; seed < 300; seed += STEP) {
        Costs costs;
        Problem problem;
        Plan plan = {0};
        FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
        FREED_WITH(arena_free) Arena arena = {0};
        PlanRequest request = PLAN_REQUEST_DEFAULT;
        int variant = WITH_UPDATE | (seed & 1 ? WITH_LINKS : 0) | (seed & 2 ? WITH_MEMORY | WITH_STASH : 0);
        random_costs_sized(&costs, variant, (uint64_t)seed + 210000, 6, 4);
        costs.microbatches = 2 + seed % 11;
        if (seed % 7 == 0) random_samples(&costs);
        request.recompute = PLAN_RECOMPUTE_NEVER;
        request.schedule = (PlanSchedule[]){PLAN_AUTO, PLAN_AUTO, PLAN_1F1B, PLAN_GPIPE, PLAN_ZB}[seed % 5];
        bool found = plan_make(&plan, &costs, &request, &diagnostics);
        assert_true(problem_create(&problem, &costs, request.objective, request.schedule, 0, &diagnostics));
        Brute brute = {.problem = &problem, .least = INT64_MAX, .optimum = INT64_MAX, .fastest = INT64_MAX};
        brute.part = allocation_create(&arena, &problem);
        try_all(&brute, 0);
        assert_true(found || brute.least == INT64_MAX);
        bool limited = plan.in_flight_limit > 0; /* brute force knows only of pipelines that are filled */
        if (found &&
            (is_slower(plan.simulated_step_ns, brute.fastest) ||
             (!limited && (plan.simulated_step_ns < brute.fastest || plan_optimum_ns(&plan) != brute.optimum))))
            fail_msg("seed %d: %lld, not %lld; the objective is %lld, not %lld", seed,
                     (long long)plan.simulated_step_ns, (long long)brute.fastest, (long long)plan_optimum_ns(&plan),
                     (long long)brute.optimum);
        freely += found && brute.fastest < brute.least && plan.simulated_step_ns == brute.fastest;
        Verified verified;
        if (found && !plan_verify(&verified, &plan, &costs, false, &diagnostics)) fail_msg("seed %d: refused", seed);
        plans += found;
        limits += limited;
        problem_free(&problem);
        plan_free(&plan);
        costs_free(&costs);
    }
    print_message("%d plans, %d with fewer in flight, %d chosen by simulation\n", plans, limits, freely);
    assert_true(plans > 250 / STEP && freely > 5 / STEP);
}

/* ---- relaxed questions ---- */

typedef struct Answer {
    bool found;
    int64_t simulated, optimum;
    int in_flight_limit;
} Answer;

static Answer ask(const Costs *costs, PlanRequest request)
{
    Plan plan = {0};
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    Answer answer = {.found = plan_make(&plan, costs, &request, &diagnostics)};
    if (answer.found) answer = (Answer){true, plan.simulated_step_ns, plan_optimum_ns(&plan), plan.in_flight_limit};
    plan_free(&plan);
    return answer;
}

static int compared;

/* By the objective only where both are about as many in flight. */
static void expect_no_slower(Answer relaxed, Answer restricted, const char *what, int seed)
{
    if (!restricted.found) return;
    compared++;
    bool same = relaxed.in_flight_limit == restricted.in_flight_limit;
    if (!relaxed.found || is_slower(relaxed.simulated, restricted.simulated) ||
        (same && relaxed.optimum > restricted.optimum))
        fail_msg("seed %d, %s: %lld ns (objective %lld), and %lld (%lld) where that is asked for", seed, what,
                 (long long)relaxed.simulated, (long long)relaxed.optimum, (long long)restricted.simulated,
                 (long long)restricted.optimum);
}

static void restrict_and_compare(Costs *costs, PlanRequest request, int seed)
{
    Answer free = ask(costs, request);
    PlanRequest less = request;
    for (PlanRecompute how = PLAN_RECOMPUTE_NEVER; how < PLAN_RECOMPUTE_COUNT; how++) {
        less.recompute = how;
        expect_no_slower(free, ask(costs, less), "recomputation fixed", seed);
    }
    less = request;
    less.pin_count = less.without_count = 1;
    for (int i = 0; i < 4; i++) {
        int layer = draw(costs->layer_count);
        PlanPin pin = {layer, layer, costs->devices[draw(costs->device_count)].name};
        less.pins = &pin;
        less.without_count = 0;
        expect_no_slower(free, ask(costs, less), "a pin", seed);
    }
    less = request;
    for (int s = 0; s < PLAN_SCHEDULE_COUNT && request.schedule == PLAN_AUTO; s++) {
        less.schedule = (PlanSchedule)s;
        expect_no_slower(free, ask(costs, less), "a schedule", seed);
    }
    less = request;
    for (int d = 0; d < costs->device_count && costs->device_count > 1; d++) {
        less.without = &costs->devices[d].name;
        less.without_count = 1;
        if (!costs->keep_inputs || strcmp(costs->keep_inputs, costs->devices[d].name) != 0)
            expect_no_slower(free, ask(costs, less), "a device less", seed);
    }
    if (!costs->keep_inputs) {
        costs->keep_inputs = costs->devices[0].name;
        expect_no_slower(free, ask(costs, request), "inputs kept", seed);
        costs->keep_inputs = NULL;
    }
    for (int d = 0; d < costs->device_count; d++)
        if (costs->devices[d].memory_bytes < COSTS_NO_LIMIT) costs->devices[d].memory_bytes *= 2;
    expect_no_slower(ask(costs, request), free, "half the memory", seed);
}

static void a_relaxed_question_has_no_slower_answer(void **state)
{
    int instances = getenv("INSTANCES") ? atoi(getenv("INSTANCES")) : 160;
    (void)state;
    for (int seed = 0; seed < instances; seed += STEP) {
        Costs costs;
        PlanRequest request = PLAN_REQUEST_DEFAULT;
        int variant = WITH_STASH | (seed & 1 ? WITH_LINKS : 0) | (seed & 2 ? WITH_TYPES : 0) |
                      (seed & 8 ? 0 : WITH_MEMORY) | (seed & 16 ? WITH_UPDATE : 0) | (seed & 32 ? WITH_OWN_TIMES : 0);
        random_costs_sized(&costs, variant, (uint64_t)seed + 195000, 8, 5);
        if (seed & 4) costs.microbatches += 6;
        if (seed % 3 == 1) costs.keep_inputs = costs.keep_labels = costs.devices[draw(costs.device_count)].name;
        request.schedule = (PlanSchedule[]){PLAN_AUTO, PLAN_AUTO, PLAN_AUTO, PLAN_GPIPE, PLAN_1F1B}[seed % 5];
        restrict_and_compare(&costs, request, seed);
        costs_free(&costs);
    }
    print_message("%d restrictions\n", compared);
    assert_true(compared > 900 / STEP);
}

/* Of five devices all allocations can be looked at, if what cannot fit is left out, and the first one is fast. */
static void memory_leaves_few_to_look_at(void **state)
{
    (void)state;
    Costs costs;
    PlanRequest request = PLAN_REQUEST_DEFAULT;
    random_costs_sized(&costs, WITH_STASH | WITH_LINKS | WITH_MEMORY | WITH_UPDATE, 7318002, 16, 8);
    costs.microbatches += 6;
    Answer all = ask(&costs, request);
    request.without = &costs.devices[4].name;
    request.without_count = 1;
    assert_in_range(all.simulated, 1, ask(&costs, request).simulated);
    costs_free(&costs);
}

/* Of six to eight devices not all allocations can be looked at. A device less is at most a hundredth faster all the
 * same: climbing from the optimum of the objective alone missed 1.1 to 8.8% here. */
static void a_device_less_is_hardly_faster(void **state)
{
    static const int seeds[] = {2, 7, 11, 42};
    (void)state;
    for (size_t i = 0; i < (ADDRESS_SANITIZER ? 1 : sizeof seeds / sizeof *seeds); i++) {
        Costs costs;
        PlanRequest request = PLAN_REQUEST_DEFAULT;
        random_costs_sized(&costs, WITH_LINKS | (seeds[i] & 1 ? WITH_UPDATE : 0), (uint64_t)seeds[i] + 640000, 12, 8);
        costs.microbatches += 6;
        assert_in_range(costs.device_count, 6, 8);
        Answer all = ask(&costs, request);
        request.without_count = 1;
        for (int d = 0; d < costs.device_count; d++) {
            request.without = &costs.devices[d].name;
            Answer fewer = ask(&costs, request);
            if (all.simulated - fewer.simulated > fewer.simulated / 100)
                fail_msg("seed %d: %lld ns, and %lld without %s", seeds[i], (long long)all.simulated,
                         (long long)fewer.simulated, costs.devices[d].name);
        }
        costs_free(&costs);
    }
}

/* ---- --microbatches auto ---- */

/* It says that nothing was found for twice as many only where nothing fits. */
static void twice_as_many_do_not_fit(void **state)
{
    int plans = 0, most = 0;
    (void)state;
    for (int seed = 0; seed < 400; seed += STEP) {
        Costs costs;
        Plan plan = {0}, twice = {0};
        FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
        PlanRequest request = PLAN_REQUEST_DEFAULT;
        random_costs_sized(&costs, WITH_MEMORY | WITH_STASH | (seed & 1 ? WITH_LINKS : 0), (uint64_t)seed + 420000, 8,
                           5);
        for (int l = 0; l < costs.layer_count; l++)
            if (!costs.layers[l].resident) costs.layers[l].stash_bytes *= 4;
        request.schedule = seed & 2 ? PLAN_GPIPE : PLAN_AUTO;
        request.microbatches = PLAN_MICROBATCHES_AUTO;
        if (plan_make(&plan, &costs, &request, &diagnostics)) {
            plans++;
            most += plan.microbatches_gain == -1;
            request.microbatches = 2 * plan.microbatches;
            if (plan.microbatches_gain == -1 && plan_make(&twice, &costs, &request, &diagnostics))
                fail_msg("seed %d: %d micro-batches fit, not only %d", seed, request.microbatches, plan.microbatches);
        }
        plan_free(&twice);
        plan_free(&plan);
        costs_free(&costs);
    }
    print_message("%d plans, of which %d have as many micro-batches as fit\n", plans, most);
    assert_true(plans > 200 / STEP && (most > 3 || STEP > 1));
}

/* ---- the optimum that a plan is faster than ---- */

/* Its row in the comparison names its stages, so that verify sees what they are worth. */
static void a_forged_optimum_is_refused(void **state)
{
    int rows = 0;
    (void)state;
    for (int seed = 0; seed < 120; seed++) {
        Costs costs;
        Plan plan = {0};
        Verified verified;
        FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
        PlanRequest request = PLAN_REQUEST_DEFAULT;
        random_costs_sized(&costs, WITH_UPDATE | (seed & 1 ? WITH_LINKS : 0), (uint64_t)seed + 510000, 8, 5);
        request.allocate = seed & 2 ? PLAN_EVEN : PLAN_OPTIMAL;
        request.time_limit_s = 1e9;
        assert_true(plan_make(&plan, &costs, &request, &diagnostics));
        assert_true(plan_verify(&verified, &plan, &costs, true, &diagnostics));
        PlanComparison *row = &plan.compared[PLAN_OPTIMAL];
        if (row->stage_count > 0) {
            rows++;
            row->step_ns++;
            assert_false(plan_verify(&verified, &plan, &costs, true, &diagnostics));
            row->step_ns--;
            row->stages[0].device = "nobody";
            assert_false(plan_verify(&verified, &plan, &costs, true, &diagnostics));
            row->stages[0].device = row->stages[row->stage_count - 1].device;
            assert_true(row->stage_count == 1 || !plan_verify(&verified, &plan, &costs, true, &diagnostics));
            row->stage_count = 0;
            assert_false(plan_verify(&verified, &plan, &costs, true, &diagnostics));
        }
        plan_free(&plan);
        costs_free(&costs);
    }
    assert_true(rows > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(twice_as_many_do_not_fit),     cmocka_unit_test(a_forged_optimum_is_refused),
        cmocka_unit_test(no_optimum_is_faster),         cmocka_unit_test(a_relaxed_question_has_no_slower_answer),
        cmocka_unit_test(memory_leaves_few_to_look_at), cmocka_unit_test(a_device_less_is_hardly_faster),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
