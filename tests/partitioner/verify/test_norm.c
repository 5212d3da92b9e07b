/* The round on the norm of the gradient: what it takes, that only simulated steps count it, and that verify, which
 * works it out the other way round, agrees and refuses another one. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "partitioner/planner/planner.h"
#include "partitioner/verify/verify.h"
#include "tests/common/limits.h"
#include "tests/common/scratch.h"
#include "tests/partitioner/random_costs.h"

enum { BYTES = 1608 };

static Scratch write_plan(const Plan *plan)
{
    FREED_WITH(buffer_free) Buffer buffer = {0};
    plan_print(plan, &buffer);
    Scratch file = scratch_file(buffer.bytes, buffer.size);
    return file;
}

/* Messages of 10 inside a zone and 1000 between two. */
static int64_t longest(uint32_t ranks, const uint32_t *zones, const uint32_t *sites)
{
    static const int64_t messages[] = {10, 1000, 1000, 10};
    const SkyNormRound round = {ranks, 2, 4, 0, zones, sites, messages};
    int64_t begin[16] = {0}, end[16], scratch[NORM_ROUND_SCRATCH(16)], most = 0;
    norm_round(&round, begin, end, scratch);
    for (uint32_t r = 0; r < ranks; r++)
        if (end[r] > most) most = end[r];
    return most;
}

/* The logarithm of the ranks, whatever lies between them in the pipeline. */
static void ranks_meet_in_pairs(void **state)
{
    (void)state;
    static const uint32_t same[16] = {0}, halves[] = {0, 0, 1, 1}, mixed[] = {0, 1, 0, 1};
    assert_int_equal(longest(2, same, NULL), 10);
    assert_int_equal(longest(3, same, NULL), 20);
    assert_int_equal(longest(4, same, NULL), 20);
    assert_int_equal(longest(6, same, NULL), 30);
    assert_int_equal(longest(8, same, NULL), 30);
    assert_int_equal(longest(16, same, NULL), 40);
    assert_int_equal(longest(4, halves, NULL), 1010);
    assert_int_equal(longest(4, mixed, NULL), 1010);
    /* Inside each site, between the leaders, inside again. */
    assert_int_equal(longest(4, halves, halves), 10 + 1000 + 10);
    static const uint32_t parts[] = {0, 0, 0, 0, 0, 1, 1};
    assert_int_equal(longest(7, parts, parts), 30 + 1000 + 10); /* the first of five knows after 30 */
}

/* Nobody knows it before the last has begun. */
static void the_last_is_waited_for(void **state)
{
    (void)state;
    static const uint32_t zones[8] = {0};
    static const int64_t message = 5;
    const SkyNormRound round = {8, 1, 1, 0, zones, NULL, &message};
    for (int last = 0; last < 8; last++) {
        int64_t begin[8] = {0}, end[8], scratch[NORM_ROUND_SCRATCH(8)];
        begin[last] = 100;
        norm_round(&round, begin, end, scratch);
        for (int r = 0; r < 8; r++) assert_true(end[r] >= (r == last ? 100 : 105) && end[r] <= 115);
    }
}

static bool verified(const Plan *plan, const Costs *costs, const char *complaint)
{
    Diagnostics diagnostics = {0};
    Verified result;
    Plan again;
    Scratch file = write_plan(plan);
    assert_true(plan_read(&again, file.path, &diagnostics));
    bool ok = plan_verify(&result, &again, costs, true, &diagnostics);
    char *messages = diagnostics_text(&diagnostics);
    if (ok != !complaint || (complaint && !strstr(messages, complaint)))
        fail_msg("'%s' instead of '%s'", messages, complaint ? complaint : "");
    free(messages);
    plan_free(&again);
    diagnostics_free(&diagnostics);
    unlink(file.path);
    return ok;
}

static void check_changed(Plan *plan, const Costs *costs)
{
    SkyNormRound norm = *plan->norm;
    const SkyNormRound *before = plan->norm;
    plan->norm = &norm;
    plan->norm_ns++;
    verified(plan, costs, "norm.seconds");
    plan->norm_ns--, plan->norm_bytes++;
    verified(plan, costs, "norm.bytes");
    plan->norm_bytes--;
    int64_t *messages = memory_allocate(norm.pair_count * sizeof *messages);
    for (uint32_t i = 0; i < norm.pair_count; i++) messages[i] = norm.message_ns[i] + 1;
    norm.message_ns = messages;
    verified(plan, costs, "norm.message_s");
    free(messages);
    plan->norm = NULL;
    verified(plan, costs, "norm: is missing");
    plan->norm = before;
    plan->simulated_step_ns--;
    verified(plan, costs, "simulated_step_s");
    plan->simulated_step_ns++;
}

static void only_simulated_steps_count_it(void **state)
{
    (void)state;
    enum { TRIED = ADDRESS_SANITIZER ? 40 : 120 };
    int rounds = 0, longer = 0;
    for (uint64_t seed = 0; seed < TRIED; seed++) {
        Costs costs;
        Plan plain = {0}, plan = {0};
        FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
        PlanRequest request = PLAN_REQUEST_DEFAULT;
        request.objective = PLAN_OBJECTIVE_PERIOD; /* for which plans do without links less often */
        random_costs(&costs, seed % 3 ? WITH_LINKS : 0, seed + 700000);
        if (!plan_make(&plain, &costs, &request, &diagnostics)) fail_msg("seed %llu", (unsigned long long)seed);
        costs.norm_bytes = BYTES;
        assert_true(plan_make(&plan, &costs, &request, &diagnostics));
        assert_true(plan_optimum_ns(&plan) == plan_optimum_ns(&plain));
        assert_true(plan.lower_bound_ns == plain.lower_bound_ns);
        assert_true((plan.norm != NULL) == (plan.rank_count > 1));
        int64_t update = 0;
        for (int k = 0; k < plan.stage_count; k++) update += plan.stages[k].update_ns;
        assert_true(plan.simulated_step_ns >= plain.simulated_step_ns);
        if (plan.step_ns == plain.step_ns && plan.stage_count == plain.stage_count)
            assert_true(plan.simulated_step_ns <= plain.simulated_step_ns + plan.norm_ns + update);
        longer += plan.norm_ns > 0 && plan.simulated_step_ns > plain.simulated_step_ns;
        verified(&plan, &costs, NULL);
        if (plan.norm && rounds++ < 5) check_changed(&plan, &costs);
        plan_free(&plan), plan_free(&plain);
        costs_free(&costs);
    }
    print_message("%d rounds, %d make steps longer\n", rounds, longer);
    assert_true(rounds > TRIED / 6 && longer > TRIED / 12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_meet_in_pairs),
        cmocka_unit_test(the_last_is_waited_for),
        cmocka_unit_test(only_simulated_steps_count_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
