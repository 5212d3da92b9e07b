/* The optimal allocator is never worse than the others, whatever the time it is given, and takes no more than that.
 * Time is counted work (partitioner/watch.h), so that nothing here depends on the machine. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "partitioner/planner/planner.h"
#include "partitioner/verify/verify.h"
#include "tests/common/limits.h"
#include "tests/partitioner/random_costs.h"

/* A thirtieth of the seconds of counted work that a search has, for every fifth random instance; with SKYCC_TEST_ALL in
 * the environment all. */
#define SECONDS(seconds) ((seconds) / (getenv("SKYCC_TEST_ALL") ? 1 : 30))
#define STEP (getenv("SKYCC_TEST_ALL") ? 1 : 5)

#define PLANNER_DATA SKY_TEST_DATA "/planner/"

typedef struct Question {
    const Costs *costs;
    const char *name;
    PlanObjective objective;
    PlanSchedule schedule;
    int microbatches;
    double seconds;
} Question;

/* The plan's value as its checker, which knows nothing of allocators, confirms it; -1 if there is no plan. */
static int64_t value_of(const Question *q, PlanAllocator allocator, Watch *watch, Plan *plan)
{
    PlanRequest request = PLAN_REQUEST_DEFAULT;
    request.allocate = allocator;
    request.objective = q->objective;
    request.schedule = q->schedule;
    request.microbatches = q->microbatches;
    request.time_limit_s = allocator == PLAN_OPTIMAL ? q->seconds : 0;
    request.watch = watch;
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    Verified verified;
    int64_t value = -1;
    if (plan_make(plan, q->costs, &request, &diagnostics)) {
        if (!plan_verify(&verified, plan, q->costs, false, &diagnostics)) {
            diagnostics_print(&diagnostics, stderr);
            fail_msg("%s: %s is refused", q->name, plan_allocator_name(allocator));
        }
        value = plan_optimum_ns(plan);
    } else {
        assert_int_equal(diagnostics.exit_code, EXIT_NO_PLAN);
    }
    return value;
}

/* Makes the optimal plan, with the work that this took, and compares it with the others' plans, made without time.
 * Returns how many there are. */
static int compare(const Question *q, Plan *plan, Watch *watch)
{
    int others = 0;
    int64_t best = value_of(q, PLAN_OPTIMAL, watch, plan);
    for (PlanAllocator a = PLAN_EVEN; a < PLAN_OPTIMAL; a++) {
        Plan other = {0};
        Watch another = {.counted = true};
        int64_t value = value_of(q, a, &another, &other);
        if (value >= 0 && (best < 0 || best > value))
            fail_msg("%s, %s, %d micro-batches, %g s: optimal %lld ns, %s %lld ns", q->name,
                     plan_objective_name(q->objective), q->microbatches, q->seconds, (long long)best,
                     plan_allocator_name(a), (long long)value);
        const PlanComparison *compared = &plan->compared[a];
        int64_t claimed = q->objective == PLAN_OBJECTIVE_STEP ? compared->step_ns : compared->period_ns;
        if (best >= 0 && value >= 0) assert_true(compared->known && compared->fits && claimed == value);
        others += value >= 0;
        plan_free(&other);
    }
    return others;
}

static void compare_ways(const Costs *costs, const char *name, double seconds, int *others)
{
    for (int k = 0; k < 4; k++) {
        Question question = {.costs = costs,
                             .name = name,
                             .objective = k & 1 ? PLAN_OBJECTIVE_STEP : PLAN_OBJECTIVE_PERIOD,
                             .schedule = k & 2 ? PLAN_GPIPE : PLAN_1F1B,
                             .microbatches = k == 3 ? 1 : 0, /* 0: those of the costs */
                             .seconds = seconds};
        Plan plan = {0};
        Watch watch = {.counted = true};
        *others += compare(&question, &plan, &watch);
        plan_free(&plan);
    }
}

static void never_worse_on_the_cases(void **state)
{
    (void)state;
    int cases = 0, others = 0;
    DIR *directory = opendir(PLANNER_DATA);
    assert_non_null(directory);
    for (struct dirent *entry; (entry = readdir(directory));) {
        char path[1024];
        Diagnostics diagnostics = {0};
        Costs costs;
        if (!strstr(entry->d_name, ".json") || strcmp(entry->d_name, "known.json") == 0) continue;
        snprintf(path, sizeof path, "%s%s", PLANNER_DATA, entry->d_name);
        assert_true(costs_read(&costs, path, &diagnostics));
        compare_ways(&costs, entry->d_name, 0, &others);
        compare_ways(&costs, entry->d_name, SECONDS(0.3), &others);
        costs_free(&costs);
        cases++;
    }
    closedir(directory);
    assert_in_range(cases, 9, 1000);
    assert_true(others > 8 * cases);
}

static void never_worse_on_random_instances(void **state)
{
    (void)state;
    int others = 0;
    for (int seed = 0; seed < 3 * VARIANTS; seed += STEP) {
        Costs costs;
        char name[40];
        bool medium = seed >= 2 * VARIANTS;
        snprintf(name, sizeof name, "seed %d", seed);
        random_costs_sized(&costs, seed % VARIANTS, (uint64_t)seed + 5000, medium ? 40 : 10, medium ? 12 : 6);
        compare_ways(&costs, name, 0, &others);
        compare_ways(&costs, name, SECONDS(medium ? 0.05 : 1), &others);
        costs_free(&costs);
    }
    assert_true(others > 5 * VARIANTS / STEP);
}

/* ---- large problems and little time ---- */

static double random_fraction(void) { return draw(1000000) / 1e6; }

/* Arbitrary layers on unequal devices: as a rule not solved within seconds. */
static void large_costs(Costs *costs, int layers, int devices)
{
    *costs = (Costs){.name = "large", .microbatches = 32, .layer_count = layers, .device_count = devices};
    random_state = 7;
    costs->layers = arena_new_array(&costs->arena, LayerCost, (size_t)layers);
    costs->devices = arena_new_array(&costs->arena, DeviceCost, (size_t)devices);
    for (int l = 0; l < layers; l++) {
        double seconds = 0.5 + random_fraction();
        costs->layers[l] = (LayerCost){.name = "layer",
                                       .forward_s = seconds,
                                       .backward_s = 2 * seconds,
                                       .output_bytes = 1 << 20,
                                       .resident = true,
                                       .memory_bytes = 1 << 20};
    }
    for (int d = 0; d < devices; d++)
        costs->devices[d] = (DeviceCost){.name = arena_format(&costs->arena, "d%d", d),
                                         .slowdown = 1 + 3 * random_fraction(),
                                         .memory_bytes = COSTS_NO_LIMIT,
                                         .region = -1};
}

static void limits_hold_and_bounds_are_certified(void **state)
{
    (void)state;
    Costs costs;
    large_costs(&costs, 160, 64);
    for (int k = 0; k < (ADDRESS_SANITIZER ? 2 : 4); k++) {
        Question question = {.costs = &costs,
                             .name = "160 layers, 64 devices",
                             .objective = k & 1 ? PLAN_OBJECTIVE_STEP : PLAN_OBJECTIVE_PERIOD,
                             .schedule = PLAN_1F1B,
                             .seconds = k & 2 ? 3 : 1};
        Plan plan = {0};
        Verified verified;
        Diagnostics diagnostics = {0};
        Watch watch = {.counted = true};
        compare(&question, &plan, &watch);
        assert_true(plan_optimum_ns(&plan) > 0);
        double spent = 1e-9 * (double)watch.work;
        if (spent > question.seconds + 0.5) fail_msg("%g s instead of %g s", spent, question.seconds);
        assert_true(plan_verify(&verified, &plan, &costs, false, &diagnostics));
        if (plan.objective == PLAN_OBJECTIVE_STEP) { /* prices alone got this far */
            assert_true(watch.struck);
            assert_true(verified.certified_ns == plan.lower_bound_ns);
        }
        assert_true(verified.certified_ns > plan_optimum_ns(&plan) / 2);
        plan_free(&plan);
    }
    costs_free(&costs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(never_worse_on_the_cases),
        cmocka_unit_test(never_worse_on_random_instances),
        cmocka_unit_test(limits_hold_and_bounds_are_certified),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
