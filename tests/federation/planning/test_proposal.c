/* What is proposed: against all partitions of few sites, each gone through by hand. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include <jansson.h>

#include "base/random.h"
#include "federation/planning/proposal.h"

enum { SITES = 4, CASES = 200, SUBSETS = 1 << SITES };

static const int members_of[SUBSETS][SITES] = {{0},    {0},       {1},       {0, 1},      {2},    {0, 2},
                                               {1, 2}, {0, 1, 2}, {3},       {0, 3},      {1, 3}, {0, 1, 3},
                                               {2, 3}, {0, 2, 3}, {1, 2, 3}, {0, 1, 2, 3}};

typedef struct Case {
    Federation federation;
    FederationSite sites[SITES];
    MeetingRules rules;
    GroupPlan plans[SUBSETS]; /* by set of sites */
    double seconds[SITES * SITES];
} Case;

static double draw(uint64_t *state, double low, double high)
{
    return low * pow(high / low, (double)(random_draw(state) >> 11) * 0x1p-53);
}

static void make_case(Case *made, uint64_t seed)
{
    static const char *const names[SITES] = {"paris", "oslo", "lima", "rome"};
    uint64_t state = seed * 977;
    *made = (Case){.rules = {.members = SITES,
                             .secure = seed % 2,
                             .elements = (int64_t)draw(&state, 1e5, 1e8),
                             .states = 2,
                             .fragments = 1,
                             .costs = meeting_costs_default}};
    for (int s = 0; s < SITES; s++) made->sites[s] = (FederationSite){.name = names[s], .rows_per_step = 8};
    made->federation = (Federation){.site_count = SITES, .sites = made->sites, .secure = seed % 2};
    made->federation.local_steps = seed % 3 ? FEDERATION_STEPS_AUTO : 40;
    for (int set = 1; set < SUBSETS; set++) {
        int count = 0;
        for (int s = 0; s < SITES; s++) count += set >> s & 1;
        GroupPlan *plan = &made->plans[set];
        *plan = (GroupPlan){.sites = members_of[set], .site_count = count, .rows = 8 * count, .devices = 2 * count};
        plan->step_s = draw(&state, 0.05, 3) * pow(count, 1.5);
        plan->busy_s = plan->step_s * plan->devices * 0.5;
        plan->used = 1;
        plan->replica = (Replica){plan->step_s, draw(&state, 1e-3, 0.2), draw(&state, 1e6, 1e9), 0.1 * count};
        plan->lead = members_of[set][0];
        if (draw(&state, 1, 2) > 1.85) plan->why_not = "too small";
    }
}

/* Seconds a row of these groups, as sets; INFINITY: they cannot. By going through some rounds. */
static double seconds_a_row(const Case *made, const int *sets, int count)
{
    Replica replicas[SITES];
    MeetingRules rules = made->rules;
    double rows = 0;
    int64_t steps = 1;
    rules.members = count;
    for (int g = 0; g < count; g++) {
        const GroupPlan *plan = &made->plans[sets[g]];
        if (plan->why_not) return INFINITY;
        replicas[g] = plan->replica;
        rows += (double)plan->rows;
    }
    if (count == 1) return replicas[0].step_s / rows;
    if (count == 2 && rules.secure) return INFINITY;
    if (made->federation.local_steps == FEDERATION_STEPS_AUTO)
        while (round_meeting_share(&rules, replicas, steps) > 0.05) steps++;
    else
        steps = made->federation.local_steps;
    return round_seconds(&rules, replicas, steps) / (rows * (double)steps);
}

/* The least over all partitions: the group of the lowest site that is left is chosen, then the rest. */
static double least(const Case *made, int left, int *sets, int count)
{
    double best = INFINITY;
    if (!left || count == SITES) return seconds_a_row(made, sets, count);
    for (int set = left; set; set = (set - 1) & left) {
        if (!(set & left & -left)) continue;
        sets[count] = set;
        best = fmin(best, least(made, left & ~set, sets, count + 1));
    }
    return best;
}

static void propose(Proposal *proposal, const Case *made)
{
    Groupings groupings;
    *proposal = (Proposal){.federation = &made->federation, .model = "m", .rules = made->rules, .all_tried = true};
    groupings_make(&groupings, SITES, made->seconds);
    proposal->candidates = arena_new_array(&proposal->arena, Candidate, MOST_GROUPINGS);
    for (int i = 0; i < groupings.count; i++) {
        Candidate *candidate = &proposal->candidates[proposal->count++];
        candidate->grouping = (Grouping){arena_copy(&proposal->arena, groupings.items[i].group, SITES * sizeof(int)),
                                         groupings.items[i].count};
        candidate->groups = arena_new_array(&proposal->arena, const GroupPlan *, SITES);
        for (int g = 0; g < candidate->grouping.count; g++) {
            int set = 0;
            for (int s = 0; s < SITES; s++) set |= (candidate->grouping.group[s] == g) << s;
            candidate->groups[g] = &made->plans[set];
        }
        candidate_settle(candidate, &made->federation, &made->rules, 0.05, &proposal->arena);
    }
    groupings_free(&groupings);
    proposal_choose(proposal);
}

static void the_best_of_all_partitions_is_proposed(void **state)
{
    (void)state;
    int kinds[SITES + 1] = {0};
    for (uint64_t seed = 0; seed < CASES; seed++) {
        Case made;
        Proposal proposal;
        int sets[SITES];
        make_case(&made, seed);
        double expected = least(&made, SUBSETS - 1, sets, 0);
        propose(&proposal, &made);
        if (isinf(expected)) {
            assert_int_equal(proposal.proposed, -1);
            kinds[0]++;
        } else {
            const Candidate *best = &proposal.candidates[proposal.fastest];
            assert_true(fabs(best->row_s / expected - 1) < 1e-12);
            assert_int_equal(best->rows_leave, best->grouping.count < SITES);
            assert_int_equal(proposal.proposed, proposal.keeping >= 0 ? proposal.keeping : proposal.fastest);
            assert_true(proposal.keeping < 0 || !proposal.candidates[proposal.keeping].rows_leave);
            assert_true(best->grouping.count == 1 || best->meeting <= 0.05 ||
                        made.federation.local_steps != FEDERATION_STEPS_AUTO);
            assert_true(best->utilisation > 0 && best->utilisation <= 0.5);
            kinds[best->grouping.count]++;
        }
        arena_free(&proposal.arena);
    }
    for (int k = 1; k <= SITES; k++) assert_true(kinds[k] > 0); /* or little is tried here */
}

/* Bytes of a day, from what a round is. */
static void traffic_is_that_of_a_day(void **state)
{
    (void)state;
    Case made;
    Proposal proposal;
    make_case(&made, 3);
    static const SiteTraffic inside[] = {{0, 1, 1000}};
    for (int set = 1; set < SUBSETS; set++) {
        made.plans[set].why_not = set == 3 || set == 4 || set == 8 ? NULL : "no";
        made.plans[set].traffic = inside;
        made.plans[set].traffic_count = set == 3;
    }
    propose(&proposal, &made);
    const Candidate *best = &proposal.candidates[proposal.proposed];
    MeetingRules rules = made.rules;
    rules.members = 3;
    double rounds = 86400 / best->round_s;
    assert_int_equal(best->traffic_count, 7);
    for (int t = 0; t < 7; t++) {
        const SiteTraffic *traffic = &best->traffic[t];
        double expected = rounds * (traffic->to == SITES     ? (double)meeting_bytes_up(&rules)
                                    : traffic->from == SITES ? (double)meeting_bytes_down(&rules)
                                                             : 1000 * (double)best->steps);
        assert_true(fabs(traffic->bytes / expected - 1) < 1e-12);
    }
    assert_int_equal(proposal.keeping, -1);
    Buffer text = {0};
    proposal_print(&proposal, "json", &text);
    json_t *root = json_loads(buffer_text(&text), JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(root);
    assert_int_equal(json_integer_value(json_object_get(root, "proposed")), proposal.proposed);
    assert_true(json_is_null(json_object_get(root, "rows_stay")));
    json_decref(root);
    buffer_free(&text);
    arena_free(&proposal.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_best_of_all_partitions_is_proposed),
        cmocka_unit_test(traffic_is_that_of_a_day),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
