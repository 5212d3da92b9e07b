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
#include "partitioner/allocate.h"
#include "partitioner/optimal.h"
#include "random_costs.h"

#define PLANNER_DATA SKY_TEST_DATA "/planner/"

/* ---- brute force, straight from the format's words ---- */

typedef struct Brute {
    const Costs *costs;
    PlanObjective objective;
    PlanSchedule schedule;
    int device[16], end[16], count; /* last stage first */
    bool used[16];
    int64_t best; /* INT64_MAX: nothing fits */
} Brute;

static int64_t up(double seconds) { return (int64_t)ceil(seconds * 1e9); }

static int64_t stage_bytes(const Brute *b, int start, int end, int to_end)
{
    const LayerCost *layers = b->costs->layers;
    int n = b->costs->microbatches, in_flight = b->schedule == PLAN_GPIPE || n < to_end ? n : to_end;
    int64_t bytes = 0, scratch = 0;
    for (int l = start; l < end; l++) {
        bytes += layers[l].memory_bytes + layers[l].state_bytes + in_flight * layers[l].stash_bytes;
        if (layers[l].scratch_bytes > scratch) scratch = layers[l].scratch_bytes;
    }
    if (start > 0 && !layers[start].resident) bytes += 4 * layers[start - 1].output_bytes;
    if (end < b->costs->layer_count && !layers[end - 1].resident) bytes += 4 * layers[end - 1].output_bytes;
    return bytes + scratch;
}

static int64_t evaluate(const Brute *b)
{
    const Costs *costs = b->costs;
    int64_t period = 0, sum = 0, most_update = 0;
    for (int k = 0; k < b->count; k++) {
        int start = k + 1 < b->count ? b->end[k + 1] : 0, device = b->device[k];
        int64_t work = 0, update = 0;
        for (int l = start; l < b->end[k]; l++) {
            work += up(costs_forward_s(costs, device, l)) + up(costs_backward_s(costs, device, l));
            update += up(costs_update_s(costs, device, l));
        }
        sum += work;
        if (work > period) period = work;
        if (update > most_update) most_update = update;
        if (start == 0 || costs->region_count == 0) continue;
        int to = costs->devices[device].region, from = costs->devices[b->device[k + 1]].region, n = costs->region_count;
        double bytes = (double)costs->layers[start - 1].output_bytes;
        int pair[2] = {from * n + to, to * n + from};
        for (int d = 0; d < 2; d++) {
            int64_t busy = (int64_t)ceil(bytes / costs->bandwidth_Bps[pair[d]] * 1e9);
            if (busy > period) period = busy;
            sum += busy + up(costs->latency_s[pair[d]]);
        }
    }
    if (b->objective == PLAN_OBJECTIVE_PERIOD) return period;
    return sum + (costs->microbatches - 1) * period + most_update;
}

static void enumerate(Brute *b, int end)
{
    if (end == 0) {
        int64_t value = evaluate(b);
        if (value < b->best) b->best = value;
        return;
    }
    for (int d = 0; d < b->costs->device_count; d++) {
        if (b->used[d]) continue;
        b->used[d] = true;
        b->device[b->count] = d;
        b->end[b->count++] = end;
        for (int start = end - 1; start >= 0; start--)
            if (stage_bytes(b, start, end, b->count) <= b->costs->devices[d].memory_bytes) enumerate(b, start);
        b->count--;
        b->used[d] = false;
    }
}

static void compare_with_brute_force(const Costs *costs, PlanObjective objective, PlanSchedule schedule, int seed)
{
    Diagnostics diagnostics = {0};
    Problem problem;
    assert_true(problem_create(&problem, costs, objective, schedule, 0, &diagnostics));
    Allocation start = allocation_create(&problem.arena, &problem), best = allocation_create(&problem.arena, &problem);
    bool fits = allocate_heuristic(&problem, &start);
    OptimalResult result = optimal_solve(&problem, fits ? &start : NULL, 1e9, &best);
    Brute brute = {.costs = costs, .objective = objective, .schedule = schedule, .best = INT64_MAX};
    enumerate(&brute, costs->layer_count);
    const char *what = objective == PLAN_OBJECTIVE_STEP ? "step" : "period",
               *how = schedule == PLAN_GPIPE ? "gpipe" : "1f1b";
    if (brute.best == INT64_MAX) {
        if (!result.infeasible || result.found) fail_msg("seed %d (%s, %s): infeasible", seed, what, how);
    } else {
        AllocationValue value = allocation_evaluate(&problem, &best);
        int64_t reached = objective == PLAN_OBJECTIVE_STEP ? value.step : value.period;
        if (!result.found || !value.fits || reached != result.value || result.value != brute.best ||
            result.bound != brute.best)
            fail_msg("seed %d (%s, %s): %lld, bound %lld, but the optimum is %lld", seed, what, how,
                     (long long)result.value, (long long)result.bound, (long long)brute.best);
    }
    problem_free(&problem);
    diagnostics_free(&diagnostics);
}

static void small_instances_match_brute_force(void **state)
{
    (void)state;
    enum { ROUNDS = 40 };
    for (int seed = 0; seed < ROUNDS * VARIANTS; seed++) {
        Costs costs;
        random_costs(&costs, seed % VARIANTS, (uint64_t)seed);
        for (int k = 0; k < 4; k++)
            compare_with_brute_force(&costs, k & 1 ? PLAN_OBJECTIVE_STEP : PLAN_OBJECTIVE_PERIOD,
                                     k & 2 ? PLAN_GPIPE : PLAN_1F1B, seed);
        costs_free(&costs);
    }
}

/* ---- the known instances ---- */

static void known_periods_are_reached_and_proven(void **state)
{
    (void)state;
    Diagnostics diagnostics = {0};
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
        OptimalResult result = optimal_solve(&problem, NULL, 1e9, &best);
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
    diagnostics_free(&diagnostics);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_instances_match_brute_force),
        cmocka_unit_test(known_periods_are_reached_and_proven),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
