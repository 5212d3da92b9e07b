/* Sites that keep inputs or labels: plans are the best of those that pin the ends to any devices of the sites, verify,
 * and list what crosses between sites, which the checker does not accept otherwise. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <unistd.h>

#include "partitioner/planner/planner.h"
#include "partitioner/verify/verify.h"
#include "tests/common/limits.h"
#include "tests/common/scratch.h"
#include "tests/partitioner/random_sites.h"

static int plans, kept, crossings, tampered;

static bool make(Plan *plan, const Costs *costs, const PlanPin *pins, int pin_count)
{
    PlanRequest request = PLAN_REQUEST_DEFAULT;
    FREED_WITH(diagnostics_free) Diagnostics ignored = {0};
    request.schedule = PLAN_1F1B;
    request.recompute = PLAN_RECOMPUTE_NEVER;
    request.time_limit_s = 1e9;
    request.pins = pins;
    request.pin_count = pin_count;
    bool found = plan_make(plan, costs, &request, &ignored);
    return found;
}

/* The best over all devices of the sites that may have the ends; INT64_MAX: there is none. */
static int64_t best_of_pins(Costs *costs)
{
    int64_t best = INT64_MAX;
    SiteCosts *sites = &costs->sites, asked = *sites;
    sites->keep_inputs = sites->keep_labels = -1;
    for (int first = 0; first < costs->device_count; first++)
        for (int last = 0; last < costs->device_count; last++) {
            if (asked.keep_inputs >= 0 && costs->devices[first].site != asked.keep_inputs) continue;
            if (asked.keep_labels >= 0 && costs->devices[last].site != asked.keep_labels) continue;
            if (costs->layer_count == 1 && first != last) continue;
            const PlanPin pins[] = {{0, 0, costs->devices[first].name},
                                    {costs->layer_count - 1, costs->layer_count - 1, costs->devices[last].name}};
            Plan plan = {0};
            if (make(&plan, costs, pins, 2) && plan_optimum_ns(&plan) < best) best = plan_optimum_ns(&plan);
            plan_free(&plan);
        }
    *sites = asked;
    return best;
}

static bool verifies(const Plan *plan, const Costs *costs)
{
    Verified verified;
    FREED_WITH(diagnostics_free) Diagnostics ignored = {0};
    bool ok = plan_verify(&verified, plan, costs, false, &ignored);
    return ok;
}

/* A list that leaves something out, or says less than crosses, is refused; so is a file that was read back changed. */
static void tamper(Plan *plan, const Costs *costs, int seed)
{
    Buffer text = {0}, again = {0};
    Diagnostics diagnostics = {0};
    Plan read;
    plan_print(plan, &text);
    Scratch file = scratch_text(buffer_text(&text));
    assert_true(plan_read(&read, file.path, &diagnostics));
    unlink(file.path);
    plan_print(&read, &again);
    assert_string_equal(buffer_text(&text), buffer_text(&again));
    assert_true(verifies(&read, costs));
    plan_free(&read);
    buffer_free(&text);
    buffer_free(&again);
    if (!plan->site_crossing_count) return;
    PlanSiteCrossing *one = &plan->site_crossings[draw(plan->site_crossing_count)], whole = *one;
    switch (draw(5)) {
    case 0: one->per_step--; break;
    case 1: one->wire_bytes--; break;
    case 2: one->to_site = one->from_site; break;
    case 3: one->tensor.dtype = DTYPE_BF16; break;
    default: one->kind = (PlanCrossingKind)((one->kind + 1) % PLAN_CROSSING_KINDS);
    }
    if (verifies(plan, costs)) fail_msg("seed %d: a changed list is accepted", seed);
    *one = whole;
    plan->site_crossing_count--;
    if (verifies(plan, costs)) fail_msg("seed %d: a shorter list is accepted", seed);
    plan->site_crossing_count++;
    tampered++;
}

static void ends_stay_at_their_sites(void **state)
{
    enum { STEP = ADDRESS_SANITIZER ? 5 : 1 };
    (void)state;
    for (int seed = 0; seed < 192; seed += STEP) {
        Costs costs;
        Plan plan = {0};
        random_costs_sized(&costs, seed % VARIANTS, (uint64_t)seed + 1, 6, 5);
        random_sites(&costs);
        int64_t best = best_of_pins(&costs);
        bool found = make(&plan, &costs, NULL, 0);
        if (found != (best < INT64_MAX)) fail_msg("seed %d: found %d, pins find %d", seed, found, best < INT64_MAX);
        if (found) {
            const char *first = plan.stages[0].device, *last = plan.stages[plan.stage_count - 1].device;
            if (plan_optimum_ns(&plan) != best || plan.lower_bound_ns != best)
                fail_msg("seed %d: %lld, bound %lld, pins reach %lld", seed, (long long)plan_optimum_ns(&plan),
                         (long long)plan.lower_bound_ns, (long long)best);
            assert_true(costs_may_begin(&costs, costs_find_device(&costs, first)));
            assert_true(costs_may_end(&costs, costs_find_device(&costs, last)));
            if (!verifies(&plan, &costs)) fail_msg("seed %d: the plan does not verify", seed);
            plans++;
            kept += costs.sites.keep_inputs >= 0 || costs.sites.keep_labels >= 0;
            crossings += plan.site_crossing_count > 0;
            tamper(&plan, &costs, seed);
        } else if (plan.infeasible && !verifies(&plan, &costs)) {
            fail_msg("seed %d: that nothing fits does not verify", seed);
        }
        plan_free(&plan);
        costs_free(&costs);
    }
    print_message("%d plans, %d with ends kept, %d with crossings, %d changed lists\n", plans, kept, crossings,
                  tampered);
    assert_true(plans > 30 / STEP && kept > 20 / STEP && crossings > 20 / STEP && tampered > 20 / STEP);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(ends_stay_at_their_sites)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
