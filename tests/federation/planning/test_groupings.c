/* Ways to divide sites: against all partitions of few sites, and against paths between all pairs of more. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>

#include "base/random.h"
#include "federation/planning/groupings.h"

enum { MOST_SITES = 40, CASES = 60 };

static double seconds[MOST_SITES * MOST_SITES], widest[MOST_SITES * MOST_SITES];

/* Few different speeds, so that some are equal; some sites are not joined. */
static void make_links(uint64_t seed, int sites, int speeds, int missing)
{
    uint64_t state = seed;
    for (int a = 0; a < sites; a++)
        for (int b = 0; b <= a; b++) {
            uint64_t drawn = random_draw(&state) >> 33;
            double made = a == b                        ? 0
                          : (int)(drawn % 10) < missing ? INFINITY
                                                        : pow(1.7, (double)(drawn / 16 % (uint64_t)speeds));
            seconds[a * sites + b] = seconds[b * sites + a] = made;
        }
}

/* The slowest link of the best path between all pairs (Floyd and Warshall), over sites of the same group alone. */
static void find_paths(int sites, const int *group)
{
    for (int i = 0; i < sites * sites; i++)
        widest[i] = group && group[i / sites] != group[i % sites] ? INFINITY : seconds[i];
    for (int k = 0; k < sites; k++)
        for (int a = 0; a < sites; a++)
            for (int b = 0; b < sites; b++)
                widest[a * sites + b] = fmin(widest[a * sites + b], fmax(widest[a * sites + k], widest[k * sites + b]));
}

/* Whether there is exactly one item of these groups. */
static int times_listed(const Groupings *groupings, int sites, const int *group)
{
    int times = 0;
    for (int i = 0; i < groupings->count; i++) {
        bool same = true;
        for (int a = 0; a < sites; a++)
            for (int b = 0; b < sites; b++)
                same = same && (group[a] == group[b]) == (groupings->items[i].group[a] == groupings->items[i].group[b]);
        times += same;
    }
    return times;
}

static void all_ways_of_few_sites_are_listed(void **state)
{
    static const int bell[] = {1, 1, 2, 5, 15};
    (void)state;
    for (uint64_t seed = 0; seed < CASES; seed++) {
        int sites = 1 + (int)(seed % GROUPINGS_OF_ALL), joined = 0, group[GROUPINGS_OF_ALL], ways = 1;
        make_links(seed, sites, 5, seed % 2 ? 4 : 0);
        Groupings groupings;
        groupings_make(&groupings, sites, seconds);
        for (int s = 0; s < sites; s++) ways *= sites;
        for (int code = 0; code < ways; code++) { /* every labelling; many of them are the same partition */
            for (int s = 0, rest = code; s < sites; s++, rest /= sites) group[s] = rest % sites;
            find_paths(sites, group);
            bool reached = true;
            for (int i = 0; i < sites * sites; i++)
                reached = reached && (group[i / sites] != group[i % sites] || isfinite(widest[i]));
            assert_int_equal(times_listed(&groupings, sites, group), reached);
            joined += reached;
        }
        assert_true(groupings.all_tried && joined > 0);
        if (seed % 2 == 0) assert_int_equal(groupings.count, bell[sites]);
        for (int i = 1; i < groupings.count; i++) assert_true(groupings.items[i].count <= groupings.items[i - 1].count);
        assert_int_equal(groupings.items[0].count, sites);
        groupings_free(&groupings);
    }
}

/* Each is what some speed joins, and with few speeds every speed is there. */
static void speeds_of_links_make_groups(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < CASES; seed++) {
        int sites = GROUPINGS_OF_ALL + 1 + (int)(seed % (MOST_SITES - GROUPINGS_OF_ALL)), group[MOST_SITES], ways = 1;
        bool many = seed % 3 == 0;
        make_links(seed, sites, many ? 10000 : 8, seed % 2 ? 3 : 0);
        find_paths(sites, NULL);
        Groupings groupings;
        groupings_make(&groupings, sites, seconds);
        assert_in_range(groupings.count, 1, MOST_GROUPINGS);
        assert_int_equal(groupings.items[0].count, sites);
        for (int i = 0; i < groupings.count; i++) {
            const Grouping *grouping = &groupings.items[i];
            double inside = 0, between = INFINITY;
            for (int a = 0; a < sites * sites; a++) {
                if (grouping->group[a / sites] == grouping->group[a % sites])
                    inside = fmax(inside, widest[a]);
                else
                    between = fmin(between, widest[a]);
            }
            assert_true(inside < between); /* some speed lies between the two */
            ways += i > 0 && !grouping_equal(grouping, &groupings.items[i - 1], sites);
        }
        assert_int_equal(ways, groupings.count);
        for (int k = 0; k < 8 && !many; k++) {
            for (int a = 0; a < sites; a++)
                for (group[a] = 0; !(widest[a * sites + group[a]] <= pow(1.7, k)); group[a]++) {}
            assert_int_equal(times_listed(&groupings, sites, group), 1);
        }
        if (!many) assert_int_equal(groupings.left_out, 0);
        groupings_free(&groupings);
    }
}

static void groups_merge_with_the_nearest(void **state)
{
    (void)state;
    int group[] = {0, 1, 2, 0, 3}, expected[] = {0, 1, 0, 0, 2};
    Grouping grouping = {group, 4};
    make_links(7, 5, 9, 0);
    seconds[2 * 5 + 3] = seconds[3 * 5 + 2] = 0.01;
    assert_int_equal(grouping_nearest(&grouping, 5, seconds, 2, NULL), 0);
    assert_int_equal(grouping_nearest(&grouping, 5, seconds, 2, (bool[]){false, true, true, false}), 1);
    grouping_merge(&grouping, 5, 2, 0);
    assert_int_equal(grouping.count, 3);
    assert_memory_equal(group, expected, sizeof group);
    for (int i = 0; i < 25; i++) seconds[i] = INFINITY;
    assert_int_equal(grouping_nearest(&grouping, 5, seconds, 0, NULL), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_ways_of_few_sites_are_listed),
        cmocka_unit_test(speeds_of_links_make_groups),
        cmocka_unit_test(groups_merge_with_the_nearest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
