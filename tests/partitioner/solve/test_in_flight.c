/* Where nothing fits with the micro-batches that 1F1B keeps in flight, searched orders have as few fewer as it takes;
 * elsewhere only where that is faster. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "partitioner/planner/planner.h"
#include "partitioner/verify/verify.h"
#include "tests/common/limits.h"
#include "tests/partitioner/brute_costs.h"
#include "tests/partitioner/random_costs.h"

/* Of the random problems the sanitizers see a part: the others run the same code, with gcc.
 * What must be among them is asked for a square less often, because rare cases scatter. */
enum { STEP = ADDRESS_SANITIZER ? 5 : 1 };

/* ---- brute force ---- */

typedef struct Brute {
    const Costs *costs;
    int keeper; /* has the first stage and the last; -1: none */
    int most;   /* micro-batches in flight per stage */
    bool open;  /* any stage may recompute */
    int device[16], end[16], count;
    bool used[16];
} Brute;

static bool fits(const Brute *b)
{
    int64_t bytes[16] = {0};
    for (int k = 0; k < b->count; k++) {
        int start = k ? b->end[k - 1] : 0, flights = b->count - k < b->most ? b->count - k : b->most;
        int64_t plain = brute_stage_bytes(b->costs, PLAN_1F1B, start, b->end[k], flights, false),
                again = brute_stage_bytes(b->costs, PLAN_1F1B, start, b->end[k], flights, true);
        bytes[b->device[k]] += b->open && again < plain ? again : plain;
        if (bytes[b->device[k]] > b->costs->devices[b->device[k]].memory_bytes) return false;
    }
    return true;
}

static bool any_fits(Brute *b, int start)
{
    int layers = b->costs->layer_count;
    bool found = start == layers && (b->keeper < 0 || b->device[b->count - 1] == b->keeper) && fits(b);
    for (int d = 0; d < b->costs->device_count && start < layers && !found; d++) {
        bool keeper = d == b->keeper, again = b->used[d];
        if ((b->keeper >= 0 && start == 0 && !keeper) || (again && !(keeper && b->device[b->count - 1] != d))) continue;
        for (int end = again ? layers : start + 1; end <= layers && !found; end++) {
            b->used[d] = true;
            b->device[b->count] = d;
            b->end[b->count++] = end;
            found = any_fits(b, end);
            b->count--;
            b->used[d] = again;
        }
    }
    return found;
}

/* The most in flight with which something fits; 0: nothing does. */
static int most_that_fit(const Costs *costs, bool open)
{
    int keeper = costs_keeper(costs) ? costs_find_device(costs, costs_keeper(costs)) : -1, most = costs->microbatches;
    for (; most > 0; most--) {
        Brute brute = {.costs = costs, .keeper = keeper, .most = most, .open = open};
        if (any_fits(&brute, 0)) break;
    }
    return most;
}

/* ---- the planner ---- */

static int rescued, faster, impossible, loops, certified;

static void check_plan(const Plan *plan, const Costs *costs, int k)
{
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    Verified verified;
    for (int s = 0; s < plan->stage_count; s++)
        if (plan->stages[s].memory_bytes > plan->stages[s].memory_limit_bytes) fail_msg("plan %d: stage %d", k, s);
    if (!plan_verify(&verified, plan, costs, false, &diagnostics)) {
        diagnostics_print(&diagnostics, stderr);
        fail_msg("plan %d is refused", k);
    }
    certified += verified.certified_ns == plan_optimum_ns(plan);
}

static void as_few_fewer_as_it_takes(void **state)
{
    (void)state;
    for (int k = 0; k < 3000; k += STEP) {
        Costs costs;
        Plan plan = {0}, plain = {0};
        Diagnostics diagnostics = {0}, ignored = {0};
        PlanRequest request = PLAN_REQUEST_DEFAULT;
        request.objective = k & 1 ? PLAN_OBJECTIVE_PERIOD : PLAN_OBJECTIVE_STEP;
        request.recompute = k & 2 ? PLAN_RECOMPUTE_NEVER : PLAN_RECOMPUTE_AUTO;
        request.time_limit_s = 1e9;
        random_costs_sized(&costs, WITH_MEMORY | WITH_STASH | (k & 4 ? WITH_LINKS : 0), (uint64_t)k + 500000, 6, 4);
        for (int l = 0; l < costs.layer_count; l++)
            if (!costs.layers[l].resident) costs.layers[l].stash_bytes *= 5;
        costs.microbatches += 2;
        if (k % 3 == 0) costs.keep_inputs = costs.keep_labels = costs.devices[k % costs.device_count].name;
        int most = most_that_fit(&costs, request.recompute == PLAN_RECOMPUTE_AUTO);
        bool found = plan_make(&plan, &costs, &request, &diagnostics);
        request.schedule = PLAN_1F1B;
        if (found != (most > 0)) fail_msg("plan %d: found %d, but %d in flight fit", k, found, most);
        if (plan_make(&plain, &costs, &request, &ignored)) {
            if (plan.in_flight_limit > 0 && plan_chosen_ns(&plan) >= plan_chosen_ns(&plain))
                fail_msg("plan %d: limited, and no faster", k);
            if (plan.in_flight_limit > 0) check_plan(&plan, &costs, k), faster++;
        } else if (found) {
            if (plan.in_flight_limit < 1 || plan.in_flight_limit > most)
                fail_msg("plan %d: %d, not %d", k, plan.in_flight_limit, most);
            assert_true(plan.schedule == PLAN_SEARCHED || plan.schedule == PLAN_ZB);
            check_plan(&plan, &costs, k);
            rescued++;
            loops += costs.keep_inputs != NULL && plan.stage_count > 2;
        } else {
            assert_int_equal(diagnostics.exit_code, EXIT_NO_PLAN);
            assert_true(plan.infeasible);
            check_plan(&plan, &costs, k);
            impossible++;
        }
        plan_free(&plan);
        plan_free(&plain);
        costs_free(&costs);
        diagnostics_free(&diagnostics);
        diagnostics_free(&ignored);
    }
    print_message("%d plans only with fewer in flight, %d around loops; %d faster so; %d certified; %d times nothing "
                  "fits\n",
                  rescued, loops, faster, certified, impossible);
    assert_true(rescued > 100 / (STEP * STEP) && loops > 25 / (STEP * STEP) && impossible > 100 / (STEP * STEP) &&
                certified > rescued / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(as_few_fewer_as_it_takes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
