#include "federation/planning/groupings.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

void groupings_free(Groupings *groupings)
{
    for (int i = 0; i < groupings->count; i++) free(groupings->items[i].group);
    *groupings = (Groupings){0};
}

Grouping grouping_copy(const Grouping *grouping, int sites)
{
    Grouping copy = {memory_allocate((size_t)sites * sizeof *copy.group), grouping->count};
    memcpy(copy.group, grouping->group, (size_t)sites * sizeof *copy.group);
    return copy;
}

bool grouping_equal(const Grouping *a, const Grouping *b, int sites)
{
    return a->count == b->count && memcmp(a->group, b->group, (size_t)sites * sizeof *a->group) == 0;
}

/* Numbers groups by their first sites. */
static void number(Grouping *grouping, int sites)
{
    FREED int *place = memory_allocate((size_t)sites * sizeof *place);
    for (int s = 0; s < sites; s++) place[s] = -1;
    grouping->count = 0;
    for (int s = 0; s < sites; s++) {
        int *at = &place[grouping->group[s]];
        if (*at < 0) *at = grouping->count++;
        grouping->group[s] = *at;
    }
}

void grouping_merge(Grouping *grouping, int sites, int group, int other)
{
    for (int s = 0; s < sites; s++)
        if (grouping->group[s] == other) grouping->group[s] = group;
    number(grouping, sites);
}

int grouping_nearest(const Grouping *grouping, int sites, const double *seconds, int group, const bool *allowed)
{
    double least = INFINITY;
    int nearest = -1;
    for (int a = 0; a < sites; a++)
        for (int b = 0; b < sites && grouping->group[a] == group; b++) {
            if (grouping->group[b] == group || (allowed && !allowed[grouping->group[b]]) ||
                !(seconds[a * sites + b] < least))
                continue;
            least = seconds[a * sites + b];
            nearest = grouping->group[b];
        }
    return nearest;
}

/* Joins sites over any number of links of at most `most` seconds each. */
static Grouping join_within(int sites, const double *seconds, double most)
{
    Grouping joined = {memory_allocate((size_t)sites * sizeof *joined.group), sites};
    for (int s = 0; s < sites; s++) joined.group[s] = s;
    for (int a = 0; a < sites; a++)
        for (int b = 0; b < a; b++) {
            int from = joined.group[a], to = joined.group[b];
            if (from == to || !(seconds[a * sites + b] <= most)) continue;
            for (int s = 0; s < sites; s++)
                if (joined.group[s] == from) joined.group[s] = to;
        }
    number(&joined, sites);
    return joined;
}

/* Whether links join the sites of every group, within the group. */
static bool is_joined(const Grouping *grouping, int sites, const double *seconds)
{
    FREED double *inside = memory_allocate((size_t)(sites * sites) * sizeof *inside);
    for (int a = 0; a < sites; a++)
        for (int b = 0; b < sites; b++)
            inside[a * sites + b] = grouping->group[a] == grouping->group[b] ? seconds[a * sites + b] : INFINITY;
    Grouping parts = join_within(sites, inside, DBL_MAX);
    bool joined = parts.count == grouping->count;
    free(parts.group);
    return joined;
}

/* Every grouping, numbered by first sites, the one with most groups first. */
static void add_all(Groupings *groupings, int sites, const double *seconds)
{
    int group[GROUPINGS_OF_ALL] = {0};
    for (int count = sites; count >= 1; count--)
        for (int code = 0; code < 1 << (2 * sites); code++) {
            Grouping grouping = {group, 0};
            bool numbered = true;
            for (int s = 0; s < sites; s++) {
                group[s] = code >> (2 * (sites - 1 - s)) & 3;
                numbered = numbered && group[s] <= grouping.count;
                grouping.count += group[s] == grouping.count;
            }
            if (numbered && grouping.count == count && is_joined(&grouping, sites, seconds))
                groupings->items[groupings->count++] = grouping_copy(&grouping, sites);
        }
    groupings->all_tried = true;
}

typedef struct Edge {
    double seconds;
    int from, to;
} Edge;

static int by_seconds(const void *a, const void *b)
{
    const Edge *left = a, *right = b;
    return left->seconds < right->seconds ? -1 : left->seconds > right->seconds;
}

/* The speeds, as seconds, ascending, at which groups become one (Kruskal's minimum spanning forest), each once. */
static int list_speeds(int sites, const double *seconds, double *speeds)
{
    FREED Edge *edges = memory_allocate((size_t)(sites * sites) * sizeof *edges);
    Grouping joined = join_within(sites, seconds, -1);
    int count = 0, kept = 0;
    for (int a = 0; a < sites; a++)
        for (int b = 0; b < a; b++)
            if (isfinite(seconds[a * sites + b])) edges[count++] = (Edge){seconds[a * sites + b], a, b};
    qsort(edges, (size_t)count, sizeof *edges, by_seconds);
    for (int i = 0; i < count; i++) {
        int from = joined.group[edges[i].from], to = joined.group[edges[i].to];
        if (from == to) continue;
        for (int s = 0; s < sites; s++)
            if (joined.group[s] == from) joined.group[s] = to;
        if (!kept || edges[i].seconds > speeds[kept - 1]) speeds[kept++] = edges[i].seconds;
    }
    free(joined.group);
    return kept;
}

/* Keeps the speeds after which the next slower link is slowest in proportion; always the last. */
static int choose_speeds(double *speeds, int count, int most)
{
    while (count > most) {
        int least = 0;
        for (int i = 1; i + 1 < count; i++)
            if (speeds[i + 1] * speeds[least] < speeds[least + 1] * speeds[i]) least = i;
        memmove(&speeds[least], &speeds[least + 1], (size_t)(count - least - 1) * sizeof *speeds);
        count--;
    }
    return count;
}

void groupings_make(Groupings *groupings, int sites, const double *seconds)
{
    *groupings = (Groupings){0};
    if (sites <= GROUPINGS_OF_ALL) {
        add_all(groupings, sites, seconds);
        return;
    }
    FREED double *speeds = memory_allocate((size_t)sites * sizeof *speeds);
    int all = list_speeds(sites, seconds, speeds), count = choose_speeds(speeds, all, MOST_GROUPINGS - 1);
    groupings->left_out = all - count;
    groupings->items[groupings->count++] = join_within(sites, seconds, -1);
    for (int i = 0; i < count; i++) groupings->items[groupings->count++] = join_within(sites, seconds, speeds[i]);
}
