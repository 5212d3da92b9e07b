#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "partitioner/planner/shortage.h"
#include "partitioner/solve/allocate.h"
#include "partitioner/solve/optimal.h"
#include "tests/common/limits.h"
#include "tests/partitioner/brute_costs.h"
#include "tests/partitioner/random_costs.h"

#define PLANNER_DATA SKY_TEST_DATA "/planner/"

/* ---- brute force, straight from the format's words ---- */

typedef struct Brute {
    const Costs *costs;
    PlanObjective objective;
    PlanSchedule schedule;
    int64_t forward_backward[16][16], update[16][16]; /* [device][layer] */
    bool used[16];
    int64_t best; /* INT64_MAX: nothing fits */
} Brute;

typedef struct Chain {
    int count, region; /* stages so far, the last of the plan first; the region of the first of them */
    int64_t period, sum, update;
} Chain;

static void add_link(const Costs *costs, Chain *chain, int cut, int from, int to)
{
    int n = costs->region_count, pair[2] = {from * n + to, to * n + from};
    for (int d = 0; d < 2 && n > 0; d++) {
        int64_t busy = brute_nanoseconds((double)costs->layers[cut - 1].output_bytes / costs->bandwidth_Bps[pair[d]]);
        chain->period = brute_larger(chain->period, busy);
        chain->sum += busy + brute_nanoseconds(costs->latency_s[pair[d]]);
    }
}

static int64_t value_of(const Brute *b, const Chain *chain)
{
    if (b->objective == PLAN_OBJECTIVE_PERIOD) return chain->period;
    return chain->sum + brute_rounds(b->costs, chain->period) + chain->update;
}

/* Every chain of devices; but one that is already no better than the best cannot become so. */
static void enumerate(Brute *b, Chain later, int end)
{
    if (value_of(b, &later) >= b->best) return;
    if (end == 0) b->best = value_of(b, &later);
    for (int d = 0; d < b->costs->device_count && end > 0; d++) {
        if (b->used[d]) continue;
        Chain chain = later;
        int64_t work = 0, update = 0;
        int region = b->costs->devices[d].region;
        chain.count++;
        chain.region = region;
        if (later.count > 0) add_link(b->costs, &chain, end, region, later.region);
        b->used[d] = true;
        for (int start = end - 1; start >= 0; start--) {
            work += b->forward_backward[d][start];
            update += b->update[d][start];
            if (brute_stage_bytes(b->costs, b->schedule, start, end, chain.count, false) >
                b->costs->devices[d].memory_bytes)
                continue;
            Chain longer = chain;
            longer.sum += work;
            longer.period = brute_larger(longer.period, work);
            longer.update = brute_larger(longer.update, update);
            enumerate(b, longer, start);
        }
        b->used[d] = false;
    }
}

static int64_t brute_force(const Costs *costs, PlanObjective objective, PlanSchedule schedule)
{
    Brute brute = {.costs = costs, .objective = objective, .schedule = schedule, .best = INT64_MAX};
    for (int d = 0; d < costs->device_count; d++)
        for (int l = 0; l < costs->layer_count; l++) {
            brute.forward_backward[d][l] =
                brute_nanoseconds(costs_forward_s(costs, d, l)) + brute_nanoseconds(costs_backward_s(costs, d, l));
            brute.update[d][l] = brute_nanoseconds(costs_update_s(costs, d, l));
        }
    enumerate(&brute, (Chain){0}, costs->layer_count);
    return brute.best;
}

static void compare_with_brute_force(const Costs *costs, PlanObjective objective, PlanSchedule schedule, int seed)
{
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    Problem problem;
    assert_true(problem_create(&problem, costs, objective, schedule, 0, &diagnostics));
    Allocation start = allocation_create(&problem.arena, &problem), best = allocation_create(&problem.arena, &problem);
    bool fits = allocate_heuristic(&problem, &start);
    OptimalResult result = optimal_solve(&problem, fits ? &start : NULL, 1e9, &best, NULL);
    int64_t optimum = brute_force(costs, objective, schedule);
    const char *what = objective == PLAN_OBJECTIVE_STEP ? "step" : "period",
               *how = schedule == PLAN_GPIPE ? "gpipe" : "1f1b";
    if (optimum == INT64_MAX) {
        if (!result.infeasible || result.found) fail_msg("seed %d (%s, %s): infeasible", seed, what, how);
    } else {
        AllocationValue value = allocation_evaluate(&problem, &best);
        int64_t reached = objective == PLAN_OBJECTIVE_STEP ? value.step : value.period;
        if (!result.found || !value.fits || reached != result.value || result.value != optimum ||
            result.bound != optimum)
            fail_msg("seed %d (%s, %s): %lld, bound %lld, but the optimum is %lld", seed, what, how,
                     (long long)result.value, (long long)result.bound, (long long)optimum);
    }
    problem_free(&problem);
}

static void small_instances_match_brute_force(void **state)
{
    (void)state;
    /* Sanitizers take ten times as long: they see every third. */
    enum { INSTANCES = 10000, STEP = ADDRESS_SANITIZER ? 7 : 1 };
    for (int seed = 0; seed < INSTANCES; seed += STEP) {
        Costs costs;
        random_costs_sized(&costs, seed % VARIANTS, (uint64_t)seed, 12, 6);
        if (seed / VARIANTS % 3 == 0) random_samples(&costs);
        PlanSchedule schedule = seed / VARIANTS & 1 ? PLAN_GPIPE : PLAN_1F1B;
        compare_with_brute_force(&costs, PLAN_OBJECTIVE_PERIOD, schedule, seed);
        compare_with_brute_force(&costs, PLAN_OBJECTIVE_STEP, schedule, seed);
        costs_free(&costs);
    }
    printf("%d instances, both objectives\n", (INSTANCES + STEP - 1) / STEP);
}

/* ---- the smallest relaxation ---- */

static bool fits_with(const Costs *costs, PlanSchedule schedule, int device, int64_t extra, int copies)
{
    Costs relaxed = *costs;
    DeviceCost devices[16];
    relaxed.device_count += copies;
    relaxed.devices = devices;
    for (int d = 0; d < relaxed.device_count; d++) devices[d] = costs->devices[d < costs->device_count ? d : device];
    devices[device].memory_bytes += extra;
    return brute_force(&relaxed, PLAN_OBJECTIVE_PERIOD, schedule) < INT64_MAX;
}

/* What the hint names is enough, and a byte or a device less is not, on any device. */
static void check_relaxation(const Costs *costs, PlanSchedule schedule, int seed)
{
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    Problem problem;
    long long extra = -1;
    int copies = 0, memory_device = -1, copied_device = -1;
    assert_true(problem_create(&problem, costs, PLAN_OBJECTIVE_PERIOD, schedule, 0, &diagnostics));
    assert_false(shortage_report(&problem, -1, 0, &diagnostics));
    char *text = NULL;
    size_t size;
    FILE *stream = open_memstream(&text, &size);
    diagnostics_print(&diagnostics, stream);
    fclose(stream);
    const char *memory = strstr(text, "MiB on 'd"), *devices = strstr(text, " more device");
    assert_non_null(memory);
    assert_int_equal(sscanf(memory, "MiB on 'd%d' would be enough (%lld bytes)", &memory_device, &extra), 2);
    if (!fits_with(costs, schedule, memory_device, extra, 0)) fail_msg("seed %d: %s", seed, text);
    for (int d = 0; d < costs->device_count; d++)
        if (fits_with(costs, schedule, d, extra - 1, 0)) fail_msg("seed %d: less on d%d would do: %s", seed, d, text);
    if (devices) {
        while (devices > text && devices[-1] >= '0' && devices[-1] <= '9') devices--;
        assert_int_equal(sscanf(devices, "%d more device", &copies), 1);
        assert_int_equal(sscanf(strstr(devices, "like 'd"), "like 'd%d'", &copied_device), 1);
        if (copies <= 3 && !fits_with(costs, schedule, copied_device, 0, copies)) fail_msg("seed %d: %s", seed, text);
        for (int d = 0; d < costs->device_count && copies <= 3; d++)
            if (fits_with(costs, schedule, d, 0, copies - 1)) fail_msg("seed %d: fewer would do: %s", seed, text);
    }
    free(text);
    problem_free(&problem);
}

static void the_smallest_relaxation_is_named(void **state)
{
    (void)state;
    int checked = 0;
    for (int seed = 0; seed < 2000; seed++) {
        Costs costs;
        PlanSchedule schedule = seed & 1 ? PLAN_GPIPE : PLAN_1F1B;
        random_costs_sized(&costs, seed % VARIANTS | WITH_MEMORY, 5000000 + (uint64_t)seed, 8, 4);
        if (brute_force(&costs, PLAN_OBJECTIVE_PERIOD, schedule) == INT64_MAX) {
            check_relaxation(&costs, schedule, seed);
            checked++;
        }
        costs_free(&costs);
    }
    assert_true(checked > 200);
}

/* ---- the known instances ---- */

static void known_periods_are_reached_and_proven(void **state)
{
    (void)state;
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    json_t *known = json_read(PLANNER_DATA "known.json", &diagnostics), *entry;
    const char *name;
    assert_non_null(known);
    json_object_foreach(known, name, entry)
    {
        char path[512];
        Costs costs;
        Problem problem;
        snprintf(path, sizeof path, PLANNER_DATA "%s.json", name);
        assert_true(costs_read(&costs, path, &diagnostics));
        assert_true(problem_create(&problem, &costs, PLAN_OBJECTIVE_PERIOD, PLAN_1F1B, 0, &diagnostics));
        Allocation best = allocation_create(&problem.arena, &problem);
        OptimalResult result = optimal_solve(&problem, NULL, 1e9, &best, NULL);
        const json_t *optimum = json_array_get(json_object_get(entry, "optimum_period_s"), 0);
        if (json_is_number(optimum)) {
            if (!result.found || result.value != llround(json_number_value(optimum) * 1e9) ||
                result.bound != result.value)
                fail_msg("%s: %lld, bound %lld", name, (long long)result.value, (long long)result.bound);
        } else {
            assert_true(result.infeasible);
        }
        problem_free(&problem);
        costs_free(&costs);
    }
    json_decref(known);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_instances_match_brute_force),
        cmocka_unit_test(the_smallest_relaxation_is_named),
        cmocka_unit_test(known_periods_are_reached_and_proven),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
