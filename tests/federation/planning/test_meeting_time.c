/* Times of rounds: against rounds that are gone through one by one, the fewest steps against trying all, bytes against
 * messages that are made. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "base/random.h"
#include "federation/aggregate/fixed_point.h"
#include "federation/coded_model.h"
#include "federation/messages.h"
#include "federation/planning/meeting_time.h"
#include "federation/update_pieces.h"

enum { MOST_MEMBERS = 6, CASES = 300, ROUNDS = 40 };

typedef struct Case {
    MeetingRules rules;
    Replica replicas[MOST_MEMBERS];
} Case;

static double draw(uint64_t seed, uint64_t index, double low, double high)
{
    return low * pow(high / low, (double)random_uniform(random_stream(seed, "case"), index));
}

static Case make_case(uint64_t seed)
{
    Case made = {.rules = {.members = 2 + (int)(seed % (MOST_MEMBERS - 1)),
                           .secure = seed % 3 != 0,
                           .elements = (int64_t)draw(seed, 1, 1e3, 1e8),
                           .states = (int64_t)seed % 3,
                           .fragments = 1 + (int64_t)seed % 4,
                           .restarts = seed % 2,
                           .coordinator_Bps = seed % 2 ? draw(seed, 2, 1e6, 1e9) : 0,
                           .costs = meeting_costs_default}};
    for (int r = 0; r < made.rules.members; r++)
        made.replicas[r] = (Replica){.step_s = draw(seed, 10 + (uint64_t)r, 1e-2, 10),
                                     .latency_s = draw(seed, 20 + (uint64_t)r, 1e-4, 0.3),
                                     .bandwidth_Bps = draw(seed, 30 + (uint64_t)r, 1e5, 1e9),
                                     .gather_s = seed % 5 ? 0 : 1};
    return made;
}

/* Every replica waits for the sum, takes the model, trains and is back with its update. */
static double time_of_rounds(const Case *made, int64_t steps, int rounds)
{
    double free_at[MOST_MEMBERS] = {0}, sum_at = 0;
    for (int k = 0; k < rounds; k++) {
        double last = 0;
        for (int r = 0; r < made->rules.members; r++) {
            double begin = fmax(free_at[r], sum_at);
            free_at[r] =
                begin + (double)steps * made->replicas[r].step_s + meeting_own_s(&made->rules, &made->replicas[r]);
            last = fmax(last, free_at[r]);
        }
        sum_at = last + meeting_common_s(&made->rules, made->replicas);
    }
    return sum_at;
}

static void rounds_take_what_going_through_them_takes(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < CASES; seed++) {
        Case made = make_case(seed);
        int64_t steps = 1 + (int64_t)seed % 90;
        double each = time_of_rounds(&made, steps, ROUNDS) / ROUNDS;
        assert_true(fabs(round_seconds(&made.rules, made.replicas, steps) / each - 1) < 1e-9);
    }
}

static void fewest_steps_are_those_of_trying_all(void **state)
{
    static const double shares[] = {0.05, 0.3, 0.8};
    (void)state;
    int more_than_one = 0;
    for (uint64_t seed = 0; seed < CASES; seed++) {
        Case made = make_case(seed);
        double share = shares[seed % 3], slowest = 0;
        for (int r = 0; r < made.rules.members; r++) slowest = fmax(slowest, made.replicas[r].step_s);
        int64_t tried = 1;
        while (1 - (double)tried * slowest * ROUNDS / time_of_rounds(&made, tried, ROUNDS) > share && tried < 2000)
            tried++;
        int64_t found = least_local_steps(&made.rules, made.replicas, share);
        if (tried < 2000)
            assert_int_equal(found, tried);
        else
            assert_true(found >= 1999); /* rounding aside */
        more_than_one += tried > 1 && tried < 2000;
    }
    assert_true(more_than_one > CASES / 4);
}

/* With overlap a replica begins what no meeting hides when the sum before is there and its steps meanwhile are made; of
 * long enough a run, since it begins with a round whose update nobody waited for. */
static double time_with_overlap(const Case *made, int64_t steps, int64_t overlap, int rounds)
{
    double ready[MOST_MEMBERS] = {0}, sum_at = 0, middle = 0;
    int stops = overlap < steps ? 2 : 1;
    for (int k = 0; k < 2 * rounds; k++) {
        double last = 0;
        for (int r = 0; r < made->rules.members; r++) {
            const Replica *replica = &made->replicas[r];
            double begin = fmax(ready[r], sum_at);
            ready[r] = begin + (double)steps * replica->step_s + stops * meeting_stop_s(&made->rules);
            last =
                fmax(last, begin + (double)(steps - overlap) * replica->step_s + meeting_own_s(&made->rules, replica));
        }
        sum_at = last + meeting_common_s(&made->rules, made->replicas);
        if (k == rounds - 1) middle = sum_at;
    }
    return (sum_at - middle) / rounds;
}

static void overlap_hides_what_is_not_longer(void **state)
{
    (void)state;
    int shorter = 0;
    for (uint64_t seed = 0; seed < CASES; seed++) {
        Case made = make_case(seed);
        int64_t steps = 2 + (int64_t)seed % 90, overlap = 1 + (int64_t)(seed * 7) % steps;
        double without = round_seconds(&made.rules, made.replicas, steps);
        made.rules.overlap = seed % 4 ? overlap : MEETING_OVERLAP_ALL;
        if (seed % 4 == 0) overlap = steps;
        double with = round_seconds(&made.rules, made.replicas, steps);
        assert_true(fabs(with / time_with_overlap(&made, steps, overlap, 1000) - 1) < 1e-2);
        shorter += with < without;
    }
    assert_true(shorter > CASES / 2);
}

static void fewest_steps_with_overlap_are_those_of_trying_all(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < CASES; seed++) {
        Case made = make_case(seed);
        made.rules.overlap = seed % 4 ? 1 + (int64_t)(seed * 7) % 60 : MEETING_OVERLAP_ALL;
        int64_t tried = made.rules.overlap > 0 ? made.rules.overlap : 1;
        while (round_meeting_share(&made.rules, made.replicas, tried) > 0.05 && tried < 3000) tried++;
        int64_t found = least_local_steps(&made.rules, made.replicas, 0.05);
        assert_true(tried < 3000 ? found == tried : found >= 3000);
    }
}

static void without_steps_that_last_there_is_no_number(void **state)
{
    (void)state;
    Case made = make_case(1);
    for (int r = 0; r < made.rules.members; r++) made.replicas[r].step_s = 0;
    assert_true(least_local_steps(&made.rules, made.replicas, 0.05) == MOST_LOCAL_STEPS);
    made.rules.members = 1; /* nobody to meet */
    made.replicas[0].step_s = 2;
    assert_int_equal(least_local_steps(&made.rules, made.replicas, 0.05), 1);
    assert_true(round_seconds(&made.rules, made.replicas, 10) == 20 && meeting_bytes_up(&made.rules) == 0);
}

/* The messages of a session, one by one, as sum_messages.h and messages.h have them. */
static void bytes_are_those_of_messages(void **state)
{
    (void)state;
    MeetingRules rules = {
        .members = 5, .secure = true, .elements = 1000, .fragments = 1, .costs = meeting_costs_default};
    size_t heads = 4 * REQUEST_HEAD + UPDATE_PIECE_HEAD, words = 4 * (1000 + FIXED_POINT_TAIL_WORDS);
    assert_int_equal(meeting_bytes_up(&rules),
                     heads + METRICS_BYTES + SUM_OFFER_BYTES + sum_shares_bytes(5) + words + sum_reveal_bytes(5));
    assert_int_equal(meeting_bytes_down(&rules),
                     5 * REPLY_HEAD + UPDATE_PIECE_HEAD + sum_roster_bytes(5) + sum_delivery_bytes(5) + 5 + 4 * 1000);
    rules.secure = false;
    heads = 2 * REQUEST_HEAD + UPDATE_PIECE_HEAD;
    assert_int_equal(meeting_bytes_up(&rules), heads + METRICS_BYTES + SUM_OFFER_BYTES + words);
    rules.fragments = 3; /* 334 of 1000 */
    assert_int_equal(meeting_bytes_up(&rules),
                     heads + METRICS_BYTES + SUM_OFFER_BYTES + 4 * (334 + FIXED_POINT_TAIL_WORDS));
    rules.elements = 6 * UPDATE_PIECE + 3; /* three pieces in each */
    rules.costs.word_bytes[0] = 2;
    assert_int_equal(meeting_bytes_up(&rules),
                     REQUEST_HEAD + METRICS_BYTES + SUM_OFFER_BYTES +
                         3 * (REQUEST_HEAD + UPDATE_PIECE_HEAD + 4 * FIXED_POINT_WEIGHT_WORDS) +
                         2 * (2 * UPDATE_PIECE + 1));
    rules.elements = MODEL_PIECE + 64; /* two pieces of a change, each with its hash */
    rules.fragments = 1;
    rules.costs.word_bytes[1] = 50.0 / 64;
    assert_int_equal(meeting_bytes_down(&rules), 4 * REPLY_HEAD + UPDATE_PIECE_HEAD + sum_roster_bytes(5) +
                                                     2 * CODED_MODEL_HEAD + 50 * (MODEL_PIECE / 64 + 1));
    const Replica replica = {.bandwidth_Bps =
                                 INFINITY}; /* what coding takes, both ways: at a site, at the coordinator */
    double own = meeting_own_s(&rules, &replica), all = meeting_coordinator_s(&rules, 1);
    rules.costs.code_s += 1e-6;
    assert_true(fabs(meeting_own_s(&rules, &replica) - own - 1e-6 * (MODEL_PIECE + 64)) < 1e-9);
    assert_true(fabs(meeting_coordinator_s(&rules, 1) - all - 1e-6 * (MODEL_PIECE + 64)) < 1e-9);
    rules.costs.decode_s += 1e-6;
    assert_true(fabs(meeting_own_s(&rules, &replica) - own - 2e-6 * (MODEL_PIECE + 64)) < 1e-9);
    assert_true(fabs(meeting_coordinator_s(&rules, 1) - all - 5e-6 * (MODEL_PIECE + 64)) < 1e-9);
}

/* What docs/performance.md has from bench/federation --meeting: 454 MB written by a site for 22.7 M parameters, with
 * what the codec left out; it reads the values twice. */
static void a_site_moves_the_bytes_that_were_measured(void **state)
{
    (void)state;
    MeetingRules rules = {.members = 4, .elements = 22700000, .states = 2, .fragments = 1};
    rules.costs = (MeetingCosts){.storage_Bps = 1e6, .word_bytes = {0.8, 0.8}};
    double megabytes = meeting_stop_s(&rules), read = 2 * 4 * 22.7;
    assert_true(fabs((megabytes - read) / 454 - 1) < 0.01);
}

/* What docs/federation.md has from bench/federation: seconds of processor time for 110 M parameters. */
static void costs_are_those_that_were_measured(void **state)
{
    static const struct {
        int sites, vanished;
        double plain, secure;
    } measured[] = {{5, 1, 0.7, 3.1}, {20, 6, 2.4, 29.8}};
    (void)state;
    for (size_t k = 0; k < sizeof measured / sizeof *measured; k++) {
        MeetingRules rules = {.members = measured[k].sites, .elements = 110000000, .fragments = 1};
        rules.costs = meeting_costs_default;
        rules.costs.storage_Bps = INFINITY;
        assert_true(fabs(meeting_coordinator_s(&rules, measured[k].vanished) / measured[k].plain - 1) < 0.1);
        rules.secure = true;
        assert_true(fabs(meeting_coordinator_s(&rules, measured[k].vanished) / measured[k].secure - 1) < 0.1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rounds_take_what_going_through_them_takes),
        cmocka_unit_test(fewest_steps_are_those_of_trying_all),
        cmocka_unit_test(overlap_hides_what_is_not_longer),
        cmocka_unit_test(fewest_steps_with_overlap_are_those_of_trying_all),
        cmocka_unit_test(without_steps_that_last_there_is_no_number),
        cmocka_unit_test(bytes_are_those_of_messages),
        cmocka_unit_test(a_site_moves_the_bytes_that_were_measured),
        cmocka_unit_test(costs_are_those_that_were_measured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
