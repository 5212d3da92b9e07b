/* Simulated rounds: where nothing is random against the formula, lines that are shared against small steps of time, and
 * what must hold whatever is drawn. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "base/random.h"
#include "federation/planning/simulate_rounds.h"

enum { SITES = 6 };

static const Replica three[] = {{2, 0.01, 1e6, 0}, {3, 0.05, 5e5, 0}, {1, 0.02, 2e6, 0}};

static MeetingRules rules_of(bool secure, double line)
{
    return (MeetingRules){.members = 3,
                          .secure = secure,
                          .elements = 1000000,
                          .states = 2,
                          .fragments = 2,
                          .coordinator_Bps = line,
                          .costs = meeting_costs_default};
}

static SimulatedRounds simulate(SimulationRequest request, const MeetingRules *rules)
{
    SimulatedRounds result;
    simulate_rounds(&result, &request, rules, three, 3);
    return result;
}

/* Small steps: every transfer under way gets an equal part of what those leave that cannot use theirs. */
static void lines_are_shared_as_small_steps_have_it(void **state)
{
    static const double step = 1e-3;
    (void)state;
    for (uint64_t seed = 0; seed < 30; seed++) {
        double start[SITES], cap[SITES], end[SITES], left[SITES], stepped[SITES] = {0}, now = 0;
        double bytes = 100, line = seed % 4 ? 20 + (double)seed * 4 : INFINITY;
        uint64_t drawn = seed;
        int under_way = SITES;
        for (int i = 0; i < SITES; i++) {
            start[i] = seed % 3 ? (double)(random_draw(&drawn) >> 60) / 4 : 1;
            cap[i] = 5 + (double)(random_draw(&drawn) >> 59);
            left[i] = bytes;
        }
        share_line(start, cap, SITES, bytes, line, end);
        for (; under_way; now += step) {
            double rate[SITES] = {0}, rest = line;
            bool open[SITES];
            int sharing = 0;
            for (int i = 0; i < SITES; i++) sharing += open[i] = left[i] > 0 && start[i] <= now + step / 2;
            for (bool changed = true; changed;) { /* who needs less than an equal part has it */
                changed = false;
                for (int i = 0; i < SITES; i++)
                    if (open[i] && sharing && cap[i] <= rest / sharing) {
                        rate[i] = cap[i];
                        rest -= cap[i];
                        open[i] = false;
                        sharing--;
                        changed = true;
                    }
            }
            for (int i = 0; i < SITES; i++) {
                if (open[i]) rate[i] = rest / sharing;
                if (!(rate[i] > 0)) continue;
                left[i] -= rate[i] * step;
                if (left[i] <= 0) stepped[i] = now + step, under_way--;
            }
        }
        for (int i = 0; i < SITES; i++) assert_true(fabs(end[i] - stepped[i]) < SITES * 4 * step);
    }
}

/* Without drawing, rounds take about what round_seconds says: it has every site wait for its own share of the line, and
 * the coordinator add when all is there. */
static void rounds_of_the_given_sites_take_what_is_calculated(void **state)
{
    (void)state;
    for (int k = 0; k < 4; k++) {
        MeetingRules rules = rules_of(k % 2, k < 2 ? 0 : 7e5);
        SimulationRequest request = {.sites = 3, .rounds = 8, .timeout_s = 600, .steps = 50, .secure = rules.secure};
        SimulatedRounds result = simulate(request, &rules);
        double expected = round_seconds(&rules, three, 50);
        assert_true(fabs(result.round_s / expected - 1) < 0.02 && result.lost == 0 && result.restarts == 0);
        assert_true(fabs(result.training - 50 * 2 / result.round_s) < 1e-6); /* 2 s a step on average */
        assert_true(result.bytes_in == 3 * (double)meeting_bytes_up(&rules));
        assert_true(fabs(result.coordinator_s / meeting_coordinator_s(&rules, 0) - 1) < 1e-9);
        assert_int_equal(result.coordinators, 1);
        for (int64_t overlap = 20; overlap <= 50; overlap += 30) {
            rules.overlap = overlap;
            request.rounds = 200; /* the first has nothing before it */
            SimulatedRounds with = simulate(request, &rules);
            assert_true(fabs(with.round_s / round_seconds(&rules, three, 50) - 1) < 0.02);
            assert_true(with.round_s < result.round_s && with.training > result.training);
        }
    }
}

static void the_same_seed_gives_the_same_rounds(void **state)
{
    (void)state;
    MeetingRules rules = rules_of(true, 1e8);
    SimulationRequest request = {.sites = 200,
                                 .rounds = 5,
                                 .dropout = 0.1,
                                 .spread = 0.3,
                                 .timeout_s = 60,
                                 .steps = 20,
                                 .secure = true,
                                 .seed = 5};
    SimulatedRounds one = simulate(request, &rules), two = simulate(request, &rules);
    assert_memory_equal(&one.round_s, &two.round_s, sizeof one - offsetof(SimulatedRounds, round_s));
    request.seed = 6;
    assert_true(simulate(request, &rules).round_s != one.round_s);
}

static void what_vanishes_is_lost_and_waited_for(void **state)
{
    (void)state;
    MeetingRules rules = rules_of(true, 1e9);
    SimulationRequest request = {.sites = 250, .rounds = 20, .timeout_s = 1000, .steps = 20, .secure = true, .seed = 1};
    SimulatedRounds calm = simulate(request, &rules);
    request.dropout = 0.1;
    SimulatedRounds loss = simulate(request, &rules);
    assert_true(fabs(loss.lost - 0.1) < 0.015 && loss.restarts == 0);
    /* Offers wait for those that make none, updates for those that vanished behind their shares. */
    assert_true(loss.round_s > calm.round_s + 1900 && loss.round_s < calm.round_s + 2100);
    /* About 12 of 250 vanished behind their shares, each masked with 225 or so: ten times the masks. */
    double mask = 2e6 * rules.costs.mask_s, expected = calm.coordinator_s + mask * (12.5 * 225 - 25);
    assert_true(fabs(loss.coordinator_s / expected - 1) < 0.1);
    request.dropout = 0.3; /* about one third, and less than two thirds is too few */
    request.sites = 12;
    request.rounds = 60;
    assert_true(simulate(request, &rules).restarts > 0);
    request.secure = false; /* which waits for as many */
    assert_true(simulate(request, &rules).restarts > 0);
}

static void a_tree_spares_the_coordinators(void **state)
{
    (void)state;
    MeetingRules rules = rules_of(true, 1e8);
    SimulationRequest request = {
        .sites = 5000, .rounds = 2, .dropout = 0, .timeout_s = 60, .steps = 20, .secure = true};
    SimulatedRounds one = simulate(request, &rules);
    request.branch = 64;
    SimulatedRounds tree = simulate(request, &rules);
    assert_int_equal(one.most_members, 5000);
    assert_int_equal(tree.coordinators, 79 + 2 + 1); /* 5000 / 64, 79 / 64, 2 / 64, rounded up */
    assert_int_equal(tree.levels, 3);
    double steps = 20 * 3; /* of the slowest */
    assert_true(tree.round_s - steps < (one.round_s - steps) / 20 && tree.bytes_in < one.bytes_in / 70);
    assert_true(tree.coordinator_s < one.coordinator_s / 70 && tree.memory_bytes < one.memory_bytes / 20);
    request.sites = 64; /* all at one coordinator: no tree */
    SimulatedRounds whole = simulate(request, &rules);
    request.branch = 0;
    SimulatedRounds alone = simulate(request, &rules);
    assert_true(whole.coordinators == 1 && whole.round_s == alone.round_s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_are_shared_as_small_steps_have_it),
        cmocka_unit_test(rounds_of_the_given_sites_take_what_is_calculated),
        cmocka_unit_test(the_same_seed_gives_the_same_rounds),
        cmocka_unit_test(what_vanishes_is_lost_and_waited_for),
        cmocka_unit_test(a_tree_spares_the_coordinators),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
