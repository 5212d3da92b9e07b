/* One device keeps inputs and labels: plans with its first and its last stage, against brute force. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "partitioner/certificate.h"
#include "partitioner/planner/planner.h"
#include "partitioner/verify/verify.h"
#include "partitioner/verify/verify_rules.h"
#include "tests/common/limits.h"
#include "tests/partitioner/brute_costs.h"
#include "tests/partitioner/random_costs.h"

/* Of the random problems the sanitizers see a part: the others run the same code, with gcc.
 * What must be among them is asked for a square less often, because rare cases scatter. */
enum { STEP = ADDRESS_SANITIZER ? 5 : 1 };

/* ---- brute force, straight from the format's words ---- */

typedef struct Brute {
    const Costs *costs;
    PlanObjective objective;
    PlanSchedule schedule;
    int keeper, device[16], end[16], count; /* first stage first */
    const PlanPin *pin;                     /* or NULL */
    bool used[16], mixtures;                /* mixtures: any stage may recompute */
    int64_t best;                           /* INT64_MAX: nothing fits */
} Brute;

/* Whether the layers pinned to a device are on it. */
static bool obeys(const Brute *b)
{
    for (int k = 0; k < b->count && b->pin; k++) {
        int start = k ? b->end[k - 1] : 0;
        if (start <= b->pin->last_layer && b->end[k] > b->pin->first_layer &&
            strcmp(b->costs->devices[b->device[k]].name, b->pin->device) != 0)
            return false;
    }
    return true;
}

/* INT64_MAX if a device holds more than it can. The stages in `again` recompute. */
static int64_t evaluate(const Brute *b, unsigned again)
{
    const Costs *costs = b->costs;
    int64_t work[16] = {0}, update[16] = {0}, bytes[16] = {0}, period = 0, sum = 0, most_update = 0;
    for (int k = 0; k < b->count; k++) {
        int start = k ? b->end[k - 1] : 0, d = b->device[k];
        for (int l = start; l < b->end[k]; l++) {
            work[d] += brute_nanoseconds(costs_forward_s(costs, d, l)) * (1 + (again >> k & 1)) +
                       brute_nanoseconds(costs_backward_s(costs, d, l));
            update[d] += brute_nanoseconds(costs_update_s(costs, d, l));
        }
        bytes[d] += brute_stage_bytes(b->costs, b->schedule, start, b->end[k], b->count - k, again >> k & 1);
        if (bytes[d] > costs->devices[d].memory_bytes) return INT64_MAX;
        if (start == 0 || costs->region_count == 0) continue;
        int to = costs->devices[d].region, from = costs->devices[b->device[k - 1]].region, n = costs->region_count;
        double size = (double)costs->layers[start - 1].output_bytes;
        int pair[2] = {from * n + to, to * n + from};
        for (int i = 0; i < 2; i++) {
            int64_t busy = brute_nanoseconds(size / costs->bandwidth_Bps[pair[i]]);
            period = brute_larger(period, busy);
            sum += busy + brute_nanoseconds(costs->latency_s[pair[i]]);
        }
    }
    for (int d = 0; d < costs->device_count; d++) {
        sum += work[d];
        period = brute_larger(period, work[d]);
        most_update = brute_larger(most_update, update[d]);
    }
    return b->objective == PLAN_OBJECTIVE_PERIOD ? period : sum + brute_rounds(costs, period) + most_update;
}

static void enumerate(Brute *b, int start)
{
    int layers = b->costs->layer_count;
    for (int d = 0; d < b->costs->device_count; d++) {
        bool first = start == 0, again = d == b->keeper;
        if (first ? !again : b->used[d] && !again) continue;
        if (!first && again && b->device[b->count - 1] == d) continue; /* that would be one stage */
        for (int end = again && !first ? layers : start + 1; end <= layers; end++) {
            if (end == layers && !again) continue;
            bool before = b->used[d];
            b->used[d] = true;
            b->device[b->count] = d;
            b->end[b->count++] = end;
            if (end == layers) {
                for (unsigned set = 0; obeys(b) && set < (b->mixtures ? 1u << b->count : 1); set++) {
                    int64_t value = evaluate(b, set);
                    if (value < b->best) b->best = value;
                }
            } else {
                enumerate(b, end);
            }
            b->count--;
            b->used[d] = before;
        }
    }
}

static int plans, certified, impossible, proven_impossible, branches, flights, worse;

/* No prices prove more than the optimum: a certificate that claims one nanosecond more is refused. */
static void claim_too_much(Plan *plan, const Costs *costs, PlanRequest request, int seed)
{
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    Plan other = {0};
    Verified verified;
    request.allocate = PLAN_HEURISTIC; /* the bound may not be above the plan's own value */
    bool made = plan_make(&other, costs, &request, &diagnostics);
    if (made && plan_optimum_ns(&other) > plan_optimum_ns(plan)) {
        worse++;
        other.certificate->bound_ns++;
        for (int i = 0; i < other.certificate->interval_count && request.objective == PLAN_OBJECTIVE_PERIOD; i++)
            other.certificate->intervals[i].high = other.certificate->bound_ns - 1;
        for (int i = 0; i < other.certificate->node_count; i++)
            if (other.certificate->nodes[i].path > 0) other.certificate->nodes[i].path = 0;
        if (plan_verify(&verified, &other, costs, false, &diagnostics)) fail_msg("seed %d: proves too much", seed);
    }
    plan_free(&other);
}

static void compare(const Costs *costs, PlanObjective objective, PlanSchedule schedule, const PlanPin *pin, int seed)
{
    PlanRequest request = PLAN_REQUEST_DEFAULT;
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    Plan plan = {0};
    Verified verified;
    request.objective = objective;
    request.schedule = schedule;
    request.recompute = PLAN_RECOMPUTE_NEVER;
    request.time_limit_s = 1e9;
    request.pins = pin;
    request.pin_count = pin != NULL;
    Brute brute = {.costs = costs, .objective = objective, .schedule = schedule, .best = INT64_MAX, .pin = pin};
    brute.keeper = costs_find_device(costs, costs->keep_inputs);
    enumerate(&brute, 0);
    bool found = plan_make(&plan, costs, &request, &diagnostics);
    if (found != (brute.best < INT64_MAX)) fail_msg("seed %d: found %d", seed, found);
    if (found) {
        if (plan_optimum_ns(&plan) != brute.best || plan.lower_bound_ns != brute.best)
            fail_msg("seed %d: %lld, bound %lld, but the optimum is %lld", seed, (long long)plan_optimum_ns(&plan),
                     (long long)plan.lower_bound_ns, (long long)brute.best);
        assert_string_equal(plan.stages[0].device, costs->keep_inputs);
        assert_string_equal(plan.stages[plan.stage_count - 1].device, costs->keep_inputs);
        assert_int_equal(plan.stages[plan.stage_count - 1].rank, plan.stages[0].rank);
        if (!plan_verify(&verified, &plan, costs, false, &diagnostics)) {
            diagnostics_print(&diagnostics, stderr);
            fail_msg("seed %d: the plan does not verify", seed);
        }
        plans++;
        certified += verified.certified_ns == brute.best;
        for (int i = 0; i < plan.certificate->branch_count; i++) {
            const CertificateBranch *branch = &plan.certificate->branches[i];
            flights += i > 0 && branch->end_low == branch[-1].end_low;
        }
        branches += plan.certificate->branch_count > 1;
        claim_too_much(&plan, costs, request, seed);
    } else {
        assert_int_equal(diagnostics.exit_code, EXIT_NO_PLAN);
        impossible++;
        proven_impossible += plan.infeasible;
        if (plan.infeasible && !plan_verify(&verified, &plan, costs, false, &diagnostics)) {
            diagnostics_print(&diagnostics, stderr);
            fail_msg("seed %d: that nothing fits does not verify", seed);
        }
    }
    plan_free(&plan);
}

static void loops_match_brute_force(void **state)
{
    (void)state;
    enum { ROUNDS = 12 };
    for (int seed = 0; seed < ROUNDS * VARIANTS; seed += STEP) {
        Costs costs;
        random_costs(&costs, seed % VARIANTS, (uint64_t)seed + 7000);
        costs.keep_inputs = costs.keep_labels = costs.devices[draw(costs.device_count)].name;
        int layer = draw(costs.layer_count), last = costs.layer_count - 1;
        PlanPin pin = {layer, layer + draw(costs.layer_count - layer),
                       draw(2) ? costs.keep_inputs : costs.devices[draw(costs.device_count)].name};
        if (seed / VARIANTS % 3 == 0) random_samples(&costs);
        bool pinned = seed % 3 == 0 && (pin.device == costs.keep_inputs || (layer > 0 && pin.last_layer < last));
        for (int k = 0; k < 4; k++)
            compare(&costs, k & 1 ? PLAN_OBJECTIVE_STEP : PLAN_OBJECTIVE_PERIOD, k & 2 ? PLAN_GPIPE : PLAN_1F1B,
                    pinned ? &pin : NULL, seed);
        costs_free(&costs);
    }
    print_message("%d of %d plans certified optimal; %d of %d times it is certified that nothing fits\n", certified,
                  plans, proven_impossible, impossible);
    print_message("%d have several branches, %d tell counts in flight apart; %d false claims refused\n", branches,
                  flights, worse);
    assert_true(branches > 100 / (STEP * STEP) && flights > 5 / (STEP * STEP) && worse > 100 / (STEP * STEP));
    assert_true(plans > 2000 / (STEP * STEP) && certified > plans * 99 / 100);
    assert_true(impossible > 100 / (STEP * STEP) && proven_impossible > impossible * 99 / 100);
}

/* One micro-batch, two devices, all prices 0: the shortest chain of a branch for all first stages is the shortest step,
 * so that is exactly what it proves. */
static void one_branch_proves_the_shortest_chain(void **state)
{
    (void)state;
    enum { LONGEST = 1 << 30 };
    for (int seed = 0; seed < 4000; seed += STEP) {
        Costs costs;
        char hash[33];
        FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
        random_costs(&costs, seed & (WITH_LINKS | WITH_OWN_TIMES), (uint64_t)seed + 90000);
        if (costs.layer_count > 2 && costs.device_count > 1) {
            costs.device_count = 2;
            costs.microbatches = 1;
            costs.keep_inputs = costs.keep_labels = costs.devices[seed & 1].name;
            Brute brute = {.costs = &costs, .objective = PLAN_OBJECTIVE_STEP, .best = INT64_MAX};
            brute.keeper = seed & 1;
            enumerate(&brute, 0);
            int64_t prices[2] = {0};
            CertificateBranch branch = {1, costs.layer_count - 1, 1, 1, 1};
            CertificateInterval interval = {0, LONGEST, 0, -1, LONGEST};
            CertificateNode leaf = {.leaf = true, .price = prices};
            Certificate proof = {brute.best, &branch, 1, &interval, 1, &leaf, 1, 2};
            Plan plan = {.name = costs.name,
                         .costs_hash = hash_format(costs_hash(&costs), hash),
                         .microbatches = 1,
                         .layer_count = costs.layer_count,
                         .objective = PLAN_OBJECTIVE_STEP,
                         .schedule = PLAN_1F1B,
                         .recompute = PLAN_RECOMPUTE_NEVER,
                         .certificate = &proof};
            Rules rules;
            int leaves;
            assert_true(rules_create(&rules, &plan, &costs, &diagnostics));
            if (!verify_proof(&rules, &leaves)) fail_msg("seed %d: %lld is refused", seed, (long long)brute.best);
            proof.bound_ns++;
            if (verify_proof(&rules, &leaves)) fail_msg("seed %d: more than %lld", seed, (long long)brute.best);
            rules_free(&rules);
        }
        costs_free(&costs);
    }
}

/* Any stage may recompute: the plan is the best of all choices, and its bound holds for all. */
static void loops_recompute_where_memory_is_short(void **state)
{
    enum { PLANS = 400 };
    int found = 0, recomputing = 0, mixed = 0, ends = 0, proven = 0;
    (void)state;
    for (int k = 0; k < PLANS; k += STEP) {
        Costs costs;
        Plan plan = {0};
        Verified verified;
        FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
        PlanRequest request = PLAN_REQUEST_DEFAULT;
        request.objective = k & 1 ? PLAN_OBJECTIVE_STEP : PLAN_OBJECTIVE_PERIOD;
        request.schedule = k & 2 ? PLAN_GPIPE : PLAN_1F1B;
        request.time_limit_s = 1e9;
        random_costs(&costs, WITH_MEMORY | WITH_STASH | (k & 4 ? WITH_LINKS : 0), (uint64_t)k + 40000);
        if (costs.layer_count > 6) costs.layer_count = 6;
        if (costs.device_count > 4) costs.device_count = 4;
        for (int l = 0; l < costs.layer_count; l++)
            if (!costs.layers[l].resident) costs.layers[l].stash_bytes *= 3, costs.layers[l].kept_bytes = draw(8);
        costs.keep_inputs = costs.keep_labels = costs.devices[draw(costs.device_count)].name;
        Brute brute = {
            .costs = &costs, .objective = request.objective, .schedule = request.schedule, .best = INT64_MAX};
        brute.keeper = costs_find_device(&costs, costs.keep_inputs);
        brute.mixtures = true;
        enumerate(&brute, 0);
        bool planned = plan_make(&plan, &costs, &request, &diagnostics);
        if (planned) {
            int64_t value = plan_optimum_ns(&plan);
            if (value != brute.best || plan.lower_bound_ns > brute.best)
                fail_msg("plan %d: %lld, bound %lld, not %lld", k, (long long)value, (long long)plan.lower_bound_ns,
                         (long long)brute.best);
            if (!plan_verify(&verified, &plan, &costs, false, &diagnostics)) fail_msg("plan %d does not verify", k);
            int again = 0;
            for (int s = 0; s < plan.stage_count; s++) again += plan.stages[s].recompute;
            found++;
            recomputing += again > 0;
            mixed += again > 0 && again < plan.stage_count;
            ends += plan.stage_count > 1 && plan.stages[0].recompute != plan.stages[plan.stage_count - 1].recompute;
            proven += plan.proven_optimal;
        } else {
            assert_true(brute.best == INT64_MAX); /* of mixtures */
        }
        plan_free(&plan);
        costs_free(&costs);
    }
    print_message("%d of %d plans fit, %d recompute, %d not everywhere, %d at one end only; %d are proven\n", found,
                  PLANS, recomputing, mixed, ends, proven);
    assert_true(recomputing > 20 / (STEP * STEP) && mixed > 20 / (STEP * STEP) && ends > 10 / (STEP * STEP) &&
                proven > 20 / (STEP * STEP));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loops_match_brute_force),
        cmocka_unit_test(one_branch_proves_the_shortest_chain),
        cmocka_unit_test(loops_recompute_where_memory_is_short),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
