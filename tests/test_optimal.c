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

#define PLANNER_DATA SKY_TEST_DATA "/planner/"

/* ---- random instances ---- */

static uint64_t random_state;

static int random_below(int n)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (int)((random_state >> 33) % (uint64_t)n);
}

enum {
    WITH_MEMORY = 1,
    WITH_LINKS = 2,
    WITH_TYPES = 4,
    WITH_UPDATE = 8,
    WITH_STASH = 16,
    WITH_OWN_TIMES = 32,
    VARIANTS = 64
};

static void random_layer(Costs *costs, int i, int variant)
{
    LayerCost *layer = &costs->layers[i];
    layer->name = "layer";
    layer->forward_s = (1 + random_below(20)) * 1e-9;
    layer->backward_s = (1 + random_below(40)) * 1e-9;
    if (variant & WITH_UPDATE) layer->update_s = random_below(30) * 1e-9;
    layer->output_bytes = (1 + random_below(3)) * 10;
    layer->resident = !(variant & WITH_STASH) || random_below(4) == 0;
    if (layer->resident) {
        layer->memory_bytes = 10 * random_below(10);
    } else {
        layer->state_bytes = 10 * random_below(10);
        layer->stash_bytes = 5 * random_below(10);
        layer->scratch_bytes = 10 * random_below(6);
    }
}

static void random_device(Costs *costs, int i, int variant)
{
    DeviceCost *device = &costs->devices[i];
    if (i > 0 && (variant & WITH_TYPES) && random_below(2)) {
        *device = costs->devices[random_below(i)];
    } else {
        device->slowdown = (1 + random_below(8)) / 2.0;
        device->memory_bytes =
            variant & WITH_MEMORY ? 40 + random_below(variant & WITH_STASH ? 900 : 260) : COSTS_NO_LIMIT;
        device->region = costs->region_count ? random_below(costs->region_count) : -1;
        if (variant & WITH_OWN_TIMES && random_below(2)) {
            device->forward_s = arena_new_array(&costs->arena, double, (size_t)costs->layer_count);
            device->backward_s = arena_new_array(&costs->arena, double, (size_t)costs->layer_count);
            for (int l = 0; l < costs->layer_count; l++) {
                device->forward_s[l] = random_below(60) * 1e-9;
                device->backward_s[l] = random_below(90) * 1e-9;
            }
        }
    }
    device->name = arena_format(&costs->arena, "d%d", i);
}

static void random_costs(Costs *costs, int variant)
{
    memset(costs, 0, sizeof *costs);
    costs->name = "random";
    costs->layer_count = 1 + random_below(8);
    costs->device_count = 1 + random_below(5);
    costs->microbatches = 1 + random_below(6);
    costs->layers = arena_new_array(&costs->arena, LayerCost, (size_t)costs->layer_count);
    costs->devices = arena_new_array(&costs->arena, DeviceCost, (size_t)costs->device_count);
    if (variant & WITH_LINKS) {
        costs->region_count = 1 + random_below(3);
        size_t pairs = (size_t)(costs->region_count * costs->region_count);
        costs->region_names = arena_new_array(&costs->arena, const char *, (size_t)costs->region_count);
        costs->latency_s = arena_new_array(&costs->arena, double, pairs);
        costs->bandwidth_Bps = arena_new_array(&costs->arena, double, pairs);
        for (int r = 0; r < costs->region_count; r++) costs->region_names[r] = arena_format(&costs->arena, "r%d", r);
        for (size_t i = 0; i < pairs; i++) {
            costs->latency_s[i] = random_below(30) * 1e-9;
            costs->bandwidth_Bps[i] = 1e9 / (1 + random_below(8));
        }
    }
    for (int i = 0; i < costs->layer_count; i++) random_layer(costs, i, variant);
    for (int i = 0; i < costs->device_count; i++) random_device(costs, i, variant);
}

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
    enum { ROUNDS = 30 };
    for (int seed = 0; seed < ROUNDS * VARIANTS; seed++) {
        Costs costs;
        random_state = (uint64_t)seed * 7919 + 1;
        random_below(2);
        random_costs(&costs, seed % VARIANTS);
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
