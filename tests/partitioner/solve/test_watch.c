/* Work that is counted instead of timed: where a search ends depends neither on how busy the machine is nor on how many
 * threads work. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "partitioner/solve/keeper.h"
#include "partitioner/solve/optimal.h"

#define PLANNER_DATA SKY_TEST_DATA "/planner/"

enum { SPINNERS = 4 };

static void *spin(void *stop)
{
    while (!atomic_load((atomic_bool *)stop)) continue;
    return NULL;
}

typedef struct Outcome {
    OptimalResult result;
    Allocation allocation;
    bool struck;
    int64_t work;
} Outcome;

/* What a search finds that may take so many seconds of counted work; `keeper`: where device 0 keeps inputs and
 * labels. */
static Outcome search(const Costs *costs, PlanObjective objective, double seconds, bool keeper, Arena *arena)
{
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    Watch watch = {.counted = true};
    Problem problem;
    Outcome outcome = {0};
    assert_true(problem_create(&problem, costs, objective, PLAN_1F1B, 0, &diagnostics));
    problem.watch = &watch;
    outcome.allocation = allocation_create(arena, &problem);
    if (keeper) {
        Allocation all[PLAN_ALLOCATOR_COUNT];
        for (int a = 0; a < PLAN_ALLOCATOR_COUNT; a++) all[a] = allocation_create(arena, &problem);
        problem_pin(&problem, 0, 0, 0);
        problem_pin(&problem, problem.layer_count - 1, problem.layer_count - 1, 0);
        outcome.result = keeper_solve(&problem, 0, NULL, seconds, all, NULL).optimal;
        allocation_copy(&outcome.allocation, &all[PLAN_OPTIMAL]);
    } else {
        outcome.result = optimal_solve(&problem, NULL, seconds, &outcome.allocation, NULL);
    }
    outcome.struck = watch.struck;
    outcome.work = watch.work;
    problem_free(&problem);
    return outcome;
}

static void assert_same(const Outcome *a, const Outcome *b)
{
    assert_int_equal(a->result.value, b->result.value);
    assert_int_equal(a->result.bound, b->result.bound);
    assert_int_equal(a->work, b->work);
    assert_int_equal(a->allocation.stage_count, b->allocation.stage_count);
    size_t bytes = (size_t)a->allocation.stage_count * sizeof(int);
    assert_memory_equal(a->allocation.end, b->allocation.end, bytes);
    assert_memory_equal(a->allocation.device, b->allocation.device, bytes);
}

static void searches_end_at_the_same_place_however_busy_the_machine(void **state)
{
    static const char *const names[] = {"chain-uniform-40x12-s2", "wan10-uniform-40x12-256MiB-s6"};
    (void)state;
    int cut_short = 0;
    for (int k = 0; k < 8; k++) {
        static const double seconds[] = {0.003, 0.03};
        char path[512];
        Costs costs;
        Diagnostics diagnostics = {0};
        FREED_WITH(arena_free) Arena arena = {0};
        pthread_t threads[SPINNERS];
        atomic_bool stop = false;
        snprintf(path, sizeof path, PLANNER_DATA "%s.json", names[k % 2]);
        assert_true(costs_read(&costs, path, &diagnostics));
        Outcome alone = search(&costs, PLAN_OBJECTIVE_STEP, seconds[k / 4], k & 2, &arena);
        for (int i = 0; i < SPINNERS; i++) assert_int_equal(pthread_create(&threads[i], NULL, spin, &stop), 0);
        Outcome busy = search(&costs, PLAN_OBJECTIVE_STEP, seconds[k / 4], k & 2, &arena);
        atomic_store(&stop, true);
        for (int i = 0; i < SPINNERS; i++) pthread_join(threads[i], NULL);
        assert_same(&alone, &busy);
        cut_short += alone.struck;
        costs_free(&costs);
    }
    assert_true(cut_short >= 6); /* else the watch decided nothing, and the test says nothing */
}

/* More work is never done than was allowed, but for what one question takes. */
static void counted_work_is_bounded(void **state)
{
    (void)state;
    Costs costs;
    Diagnostics diagnostics = {0};
    FREED_WITH(arena_free) Arena arena = {0};
    assert_true(costs_read(&costs, PLANNER_DATA "wan10-uniform-40x12-256MiB-s6.json", &diagnostics));
    Outcome outcome = search(&costs, PLAN_OBJECTIVE_STEP, 0.02, false, &arena);
    assert_true(outcome.struck && outcome.result.found);
    assert_true(outcome.work > 20000000 && outcome.work < 60000000);
    costs_free(&costs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(searches_end_at_the_same_place_however_busy_the_machine),
        cmocka_unit_test(counted_work_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
