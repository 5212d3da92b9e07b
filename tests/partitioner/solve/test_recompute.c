/* Recomputation: what it takes, when plans choose it, against every plan there is. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/clock.h"
#include "partitioner/planner/planner.h"
#include "partitioner/allocation.h"
#include "partitioner/verify/verify.h"
#include "tests/common/limits.h"
#include "tests/partitioner/random_costs.h"

/* Of the random problems the sanitizers see a part: the others run the same code, with gcc. */
enum { STEP = ADDRESS_SANITIZER ? 11 : 1 };

/* The best settled value of all allocations: stages are added in front of those from cut `end` on. */
typedef struct Search {
    const Problem *problem;
    Allocation allocation;
    bool used[8], found;
    AllocationValue best;
} Search;

static void extend(Search *s, int start)
{
    const Problem *p = s->problem;
    Allocation *a = &s->allocation;
    if (start == p->layer_count) {
        AllocationValue value = allocation_settle(p, a);
        if (!value.fits || (s->found && !allocation_better(p, &value, &s->best))) return;
        s->best = value;
        s->found = true;
        return;
    }
    for (int d = 0; d < p->device_count; d++)
        for (int end = start + 1; end <= p->layer_count && !s->used[d]; end++) {
            s->used[d] = true;
            a->device[a->stage_count] = d;
            a->end[a->stage_count++] = end;
            extend(s, end);
            a->stage_count--;
            s->used[d] = false;
        }
}

static void short_of_memory(Costs *costs, int k)
{
    random_costs(costs, WITH_MEMORY | WITH_STASH | (k & 1 ? WITH_LINKS : 0) | (k & 2 ? WITH_TYPES : 0), (uint64_t)k);
    if (costs->layer_count > 6) costs->layer_count = 6;
    if (costs->device_count > 4) costs->device_count = 4;
    for (int l = 0; l < costs->layer_count; l++) {
        LayerCost *layer = &costs->layers[l];
        if (!layer->resident) layer->stash_bytes *= 3, layer->kept_bytes = draw(8);
    }
}

static void plans_are_near_the_best_there_is(void **state)
{
    (void)state;
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    int recomputing = 0, best = 0, rescued = 0, refused = 0;
    for (int k = 0; k < 600; k += STEP) {
        Costs costs;
        Problem problem;
        Plan plan = {0}, without = {0};
        Verified verified;
        PlanRequest request = PLAN_REQUEST_DEFAULT;
        request.objective = k & 4 ? PLAN_OBJECTIVE_STEP : PLAN_OBJECTIVE_PERIOD;
        request.schedule = k & 8 ? PLAN_1F1B : PLAN_GPIPE;
        short_of_memory(&costs, k);
        assert_true(problem_create_recomputing(&problem, &costs, request.objective, request.schedule, 0,
                                               PLAN_RECOMPUTE_AUTO, NULL, &diagnostics));
        Search search = {.problem = &problem, .allocation = allocation_create(&problem.arena, &problem)};
        extend(&search, 0);
        bool planned = plan_make(&plan, &costs, &request, &diagnostics);
        assert_int_equal(planned, search.found);
        request.recompute = PLAN_RECOMPUTE_NEVER;
        bool plain = plan_make(&without, &costs, &request, &diagnostics);
        if (planned) {
            int64_t least = k & 4 ? search.best.step : search.best.period;
            bool recomputes = false;
            for (int s = 0; s < plan.stage_count; s++) recomputes |= plan.stages[s].recompute;
            assert_true(plan.lower_bound_ns <= least && least <= plan_optimum_ns(&plan));
            if (plain) assert_true(plan_optimum_ns(&plan) <= plan_optimum_ns(&without));
            if (!plan_verify(&verified, &plan, &costs, false, &diagnostics)) {
                diagnostics_print(&diagnostics, stderr);
                fail_msg("plan %d is refused", k);
            }
            recomputing += recomputes;
            best += recomputes && plan_optimum_ns(&plan) == least;
            rescued += !plain;
        } else if (plan.infeasible) {
            assert_true(plan_verify(&verified, &plan, &costs, false, &diagnostics));
            refused++;
        }
        plan_free(&plan);
        plan_free(&without);
        problem_free(&problem);
        costs_free(&costs);
    }
    print_message("%d plans recompute, %d of them are optimal, %d there would not be else\n", recomputing, best,
                  rescued);
    assert_true(recomputing > 80 / STEP && rescued > 50 / STEP && refused > 50 / STEP);
    assert_true(best * 10 >= recomputing * 9);
}

static void always_means_every_stage(void **state)
{
    (void)state;
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    int count = 0;
    for (int k = 0; k < 100; k += STEP) {
        Costs costs;
        Plan plan = {0};
        Verified verified;
        PlanRequest request = PLAN_REQUEST_DEFAULT;
        request.recompute = PLAN_RECOMPUTE_ALWAYS;
        short_of_memory(&costs, k);
        if (plan_make(&plan, &costs, &request, &diagnostics)) {
            for (int s = 0; s < plan.stage_count; s++) assert_true(plan.stages[s].recompute);
            assert_true(plan_verify(&verified, &plan, &costs, false, &diagnostics));
            plan.stages[0].recompute = false;
            assert_false(plan_verify(&verified, &plan, &costs, false, &diagnostics));
            count++;
        }
        plan_free(&plan);
        costs_free(&costs);
    }
    assert_true(count > 20 / STEP);
}

/* Stash, limits and recomputation for every device: one question about all of it takes longer than the limit. */
static void limits_hold_whatever_the_size(void **state)
{
    enum { LAYERS = 800, DEVICES = 2000 };
    (void)state;
    static const double LIMIT = 0.5, SLACK = 2.5; /* of processor time: problem, order, simulation, certificate */
    Costs costs;
    Plan plan = {0};
    Verified verified;
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    PlanRequest request = PLAN_REQUEST_DEFAULT;
    random_costs(&costs, 0, 1);
    costs.layer_count = LAYERS;
    costs.device_count = DEVICES;
    costs.microbatches = 32;
    costs.layers = arena_new_array(&costs.arena, LayerCost, LAYERS);
    costs.devices = arena_new_array(&costs.arena, DeviceCost, DEVICES);
    for (int i = 0; i < LAYERS; i++)
        costs.layers[i] = (LayerCost){.name = "layer",
                                      .forward_s = (1 + draw(20)) * 1e-3,
                                      .backward_s = (1 + draw(40)) * 1e-3,
                                      .state_bytes = 1 << 22,
                                      .stash_bytes = (1 + draw(8)) << 20,
                                      .output_bytes = 1 << 18};
    for (int i = 0; i < DEVICES; i++)
        costs.devices[i] = (DeviceCost){.name = arena_format(&costs.arena, "d%d", i),
                                        .slowdown = 1 + draw(1000) / 250.0,
                                        .memory_bytes = (int64_t)(64 + draw(1000)) << 20,
                                        .region = -1};
    request.time_limit_s = LIMIT;
    double before = process_seconds();
    assert_true(plan_make(&plan, &costs, &request, &diagnostics));
    double spent = process_seconds() - before;
    if (spent > LIMIT + SLACK) fail_msg("%g s instead of %g s", spent, LIMIT);
    assert_true(plan.timed_out && plan_verify(&verified, &plan, &costs, false, &diagnostics));
    plan_free(&plan);
    costs_free(&costs);
}

/* A relaxed question has no slower answer: no pin makes a faster plan than none. In the hard cases only a choice of
 * several recomputing devices at once is the best. */
static void no_pin_makes_a_faster_plan(void **state)
{
    static const int hard[] = {41, 697};
    enum { STEP_OF_PINS = ADDRESS_SANITIZER ? 14 : 1 };
    (void)state;
    int pins = 0;
    for (int k = 0; k < 42; k += STEP_OF_PINS) {
        int seed = k < 40 ? k : hard[k - 40];
        Costs costs;
        FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
        Plan free = {0};
        PlanRequest request = PLAN_REQUEST_DEFAULT;
        int variant = WITH_MEMORY | WITH_STASH | (seed & 1 ? WITH_LINKS : 0) | (seed & 2 ? WITH_TYPES : 0);
        random_costs_sized(&costs, variant, (uint64_t)seed + 95000, 12, 8);
        request.schedule = seed % 4 < 2 ? PLAN_GPIPE : PLAN_1F1B;
        bool found = plan_make(&free, &costs, &request, &diagnostics);
        for (int i = 0; i < costs.layer_count * costs.device_count; i++) {
            Plan pinned = {0};
            PlanPin pin = {i / costs.device_count, i / costs.device_count, costs.devices[i % costs.device_count].name};
            PlanRequest less = request;
            less.pins = &pin;
            less.pin_count = 1;
            if (plan_make(&pinned, &costs, &less, &diagnostics)) {
                assert_true(found && plan_optimum_ns(&pinned) >= plan_optimum_ns(&free));
                pins++;
            }
            plan_free(&pinned);
        }
        plan_free(&free);
        costs_free(&costs);
    }
    assert_true(pins > 500 / STEP_OF_PINS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_are_near_the_best_there_is),
        cmocka_unit_test(always_means_every_stage),
        cmocka_unit_test(limits_hold_whatever_the_size),
        cmocka_unit_test(no_pin_makes_a_faster_plan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
