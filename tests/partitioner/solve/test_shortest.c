/* Shortest paths with times, which take shortcuts where there are many devices or long stages, against all stages
 * looked at one by one. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>

#include "partitioner/periods.h"
#include "partitioner/solve/relaxation.h"
#include "partitioner/solve/shortest.h"
#include "tests/common/limits.h"
#include "tests/partitioner/random_costs.h"

static double cheapest_stage(const Problem *p, const double *before, int type, double price, int64_t cap, int end)
{
    double best = RELAXATION_INFINITY;
    size_t row = (size_t)p->type_region[type] * ((size_t)p->layer_count + 1);
    for (int start = 0; start < end; start++) {
        int64_t work = problem_work(p, type, start, end);
        if (work > cap || !problem_stage_fits(p, type, start, end, 1)) continue;
        double value = before[row + (size_t)start] + (double)work + price;
        if (value < best) best = value;
    }
    return best;
}

/* `before` [region][cut]: the cheapest chain up to the cut, the link to a stage in the region included. */
static double naive(const Problem *p, const double *price, int64_t cap)
{
    int n = p->layer_count, regions = p->region_count;
    size_t cuts = (size_t)n + 1;
    double *before = memory_allocate((size_t)regions * cuts * sizeof *before), answer = RELAXATION_INFINITY;
    double *least = memory_allocate((size_t)regions * sizeof *least);
    for (int end = 1; end <= n; end++) {
        for (int q = 0; q < regions; q++) least[q] = RELAXATION_INFINITY;
        for (int t = 0; t < p->type_count; t++) {
            double value = cheapest_stage(p, before, t, price[t], cap, end);
            if (value < least[p->type_region[t]]) least[p->type_region[t]] = value;
        }
        for (int to = 0; to < regions; to++) {
            double best = RELAXATION_INFINITY;
            for (int from = 0; from < regions; from++) {
                if (end < n && problem_link_period(p, end, from, to) > cap) continue;
                double value = least[from] + (end < n ? (double)problem_link_sum(p, end, from, to) : 0);
                if (value < best) best = value;
            }
            before[(size_t)to * cuts + (size_t)end] = best;
            if (end == n) answer = best;
        }
    }
    free(before);
    free(least);
    return answer < RELAXATION_INFINITY / 2 ? answer : RELAXATION_INFINITY;
}

static double path_cost(const Relaxation *r, const double *price)
{
    size_t stages = (size_t)r->problem->layer_count;
    int *class_used = memory_allocate(stages * sizeof *class_used), *end = memory_allocate(stages * sizeof *end);
    Path path = {0, class_used, end, 0};
    shortest_path(r, &path);
    double cost = path.cost;
    for (int k = 0; k < path.stage_count; k++) cost += price[path.class_used[k]];
    assert_int_equal(end[path.stage_count - 1], r->problem->layer_count);
    free(class_used);
    free(end);
    return cost;
}

static void check_cap(const Problem *p, int64_t cap, int *lanes, int *queues)
{
    Relaxation r;
    relaxation_create(&r, p, cap, true);
    FREED double *price = memory_allocate((size_t)p->type_count * sizeof *price);
    for (int round = 0; round < 4; round++) {
        for (int t = 0; t < p->type_count; t++) price[t] = draw(3) ? draw(200 >> round) : 0;
        double value = shortest_solve(&r, price), expected = naive(p, price, cap);
        assert_true(value == expected);
        if (expected < RELAXATION_INFINITY) assert_true(path_cost(&r, price) == expected);
    }
    *lanes += r.lanes != NULL;
    *queues += r.queues != NULL;
    relaxation_free(&r);
}

static void test_against_all_stages(void **state)
{
    (void)state;
    static const int variants[] = {0, WITH_OWN_TIMES, WITH_LINKS | WITH_TYPES,
                                   WITH_LINKS | WITH_OWN_TIMES | WITH_MEMORY};
    enum { STEP = ADDRESS_SANITIZER ? 7 : 1 };
    int lanes = 0, queues = 0;
    for (uint64_t seed = 1; seed <= 200; seed += STEP) {
        Costs costs;
        Problem p;
        Diagnostics diagnostics = {0};
        random_costs_sized(&costs, variants[seed % 4], seed, 150, 60);
        assert_true(problem_create(&p, &costs, PLAN_OBJECTIVE_STEP, PLAN_1F1B, 4, &diagnostics));
        int64_t largest = period_largest(&p);
        for (int64_t cap = largest; cap > 20; cap /= 4) check_cap(&p, cap, &lanes, &queues);
        problem_free(&p);
        costs_free(&costs);
    }
    assert_true(lanes > 20 / STEP && queues > 20 / STEP);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_against_all_stages)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
