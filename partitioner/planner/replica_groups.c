#include "partitioner/planner/replica_groups.h"

#include <math.h>
#include <string.h>

#include "base/integers.h"
#include "partitioner/planner/replica_estimate.h"
#include "partitioner/replicas.h"

enum { MOST_GROUPS = 64 };

/* Groups as numbers of devices of each kind. */
typedef struct Grouping {
    int count;
    int *devices; /* [group][kind] */
    int microbatches[MOST_GROUPS];
    int64_t step_ns; /* INT64_MAX: some group has no plan */
} Grouping;

typedef struct Search {
    ReplicaEstimator estimator;
    Arena arena;
    int total;  /* micro-batches of a step */
    int wanted; /* groups; 0: any number */
    int most;   /* groups */
    int tried;
    int64_t work; /* that the search may still do: layers x devices of estimated groups */
    Grouping best;
    Grouping best_of[MOST_GROUPS + 1]; /* [groups]; devices NULL: none was tried */
} Search;

static int *row(const Search *s, const Grouping *g, int group)
{
    return g->devices + (size_t)group * (size_t)s->estimator.kind_count;
}

static Grouping grouping_create(Search *s)
{
    return (Grouping){.devices = arena_new_array(&s->arena, int, (size_t)MOST_GROUPS *(size_t)s->estimator.kind_count),
                      .step_ns = INT64_MAX};
}

static void grouping_copy(const Search *s, Grouping *to, const Grouping *from)
{
    int *devices = to->devices;
    *to = *from;
    to->devices = devices;
    memcpy(devices, from->devices, (size_t)from->count * (size_t)s->estimator.kind_count * sizeof *devices);
}

/* ---- what a grouping is worth ---- */

static double speed_of(const Search *s, const Grouping *g, int group)
{
    double speed = 0;
    for (int k = 0; k < s->estimator.kind_count; k++) speed += row(s, g, group)[k] * s->estimator.kind_speed[k];
    return speed;
}

static const GroupEstimate *estimate(Search *s, const Grouping *g, int group, int microbatches)
{
    int known = s->estimator.known_count, devices = 0;
    const GroupEstimate *found = replica_estimate(&s->estimator, row(s, g, group), microbatches, g->count);
    for (int k = 0; k < s->estimator.kind_count; k++) devices += row(s, g, group)[k];
    if (s->estimator.known_count > known) s->work -= (int64_t)devices * s->estimator.costs.layer_count;
    return found;
}

/* With n micro-batches. Exact: of the optimum for so many. */
static int64_t ends_at(Search *s, const Grouping *g, int group, int n, const GroupEstimate **used)
{
    if (s->estimator.exact) *used = estimate(s, g, group, n);
    return (*used)->fits ? (*used)->fill_ns + n * (*used)->period_ns : INT64_MAX;
}

/* Each micro-batch goes to the group that ends first with it, which is best, as more never end sooner. */
static void deal(Search *s, Grouping *g, const GroupEstimate **used)
{
    int64_t ends[MOST_GROUPS];
    const GroupEstimate *next[MOST_GROUPS];
    for (int i = 0; i < g->count; i++) {
        g->microbatches[i] = 0;
        next[i] = used[i];
        ends[i] = ends_at(s, g, i, 1, &next[i]);
    }
    for (int m = 0; m < s->total; m++) {
        int soonest = 0;
        for (int i = 1; i < g->count; i++)
            if (ends[i] < ends[soonest]) soonest = i;
        used[soonest] = next[soonest];
        if (++g->microbatches[soonest] < s->total)
            ends[soonest] = ends_at(s, g, soonest, g->microbatches[soonest] + 1, &next[soonest]);
    }
}

/* Groups without micro-batches are left out. */
static void drop_idle(const Search *s, Grouping *g, const GroupEstimate **used)
{
    int kept = 0;
    for (int i = 0; i < g->count; i++) {
        if (g->microbatches[i] == 0) continue;
        memmove(row(s, g, kept), row(s, g, i), (size_t)s->estimator.kind_count * sizeof *g->devices);
        g->microbatches[kept] = g->microbatches[i];
        used[kept++] = used[i];
    }
    g->count = kept;
}

static void evaluate(Search *s, Grouping *g)
{
    const GroupEstimate *used[MOST_GROUPS];
    double all = 0;
    s->tried++;
    g->step_ns = INT64_MAX;
    for (int i = 0; i < g->count; i++) all += speed_of(s, g, i);
    for (int i = 0; i < g->count; i++) {
        int share = (int)lround(s->total * speed_of(s, g, i) / all);
        used[i] = estimate(s, g, i, s->estimator.exact || share < 1 ? 1 : share);
        if (!used[i]->fits) return;
    }
    deal(s, g, used);
    if (s->wanted == 0) drop_idle(s, g, used);
    int64_t step = 0;
    for (int i = 0; i < g->count; i++) {
        if (g->microbatches[i] == 0 || !used[i]->fits) return;
        step = larger(step, used[i]->fill_ns + g->microbatches[i] * used[i]->period_ns);
    }
    g->step_ns = step + replica_estimate_sums(&s->estimator, used, g->count);
}

/* Whether it is the best now. */
static bool offer(Search *s, Grouping *g)
{
    if (g->count < 1 || g->count > s->most || (s->wanted && g->count != s->wanted)) return false;
    evaluate(s, g);
    if (g->step_ns == INT64_MAX) return false;
    Grouping *same = &s->best_of[g->count];
    if (!same->devices) *same = grouping_create(s);
    if (g->step_ns < same->step_ns) grouping_copy(s, same, g);
    if (g->step_ns >= s->best.step_ns) return false;
    grouping_copy(s, &s->best, g);
    return true;
}

/* ---- where the search starts ---- */

/* Devices of every kind go round the groups from `first` on. */
static void deal_kinds(const Search *s, Grouping *g, int first_kind, int end_kind, int first, int count)
{
    int next = 0;
    for (int k = first_kind; k < end_kind; k++)
        for (int i = 0; i < s->estimator.kind_size[k]; i++) {
            /* There and back, so that no group gets the fastest of every kind. */
            int turn = next++ % (2 * count), group = turn < count ? turn : 2 * count - 1 - turn;
            row(s, g, first + group)[k]++;
        }
}

/* Chunks of devices in the order of kinds, about equally fast. */
static void deal_chunks(const Search *s, Grouping *g, int count)
{
    double all = 0, before = 0;
    for (int k = 0; k < s->estimator.kind_count; k++) all += s->estimator.kind_size[k] * s->estimator.kind_speed[k];
    for (int k = 0; k < s->estimator.kind_count; k++)
        for (int i = 0; i < s->estimator.kind_size[k]; i++) {
            double middle = before + s->estimator.kind_speed[k] / 2;
            int group = (int)(middle / all * count);
            row(s, g, group < count ? group : count - 1)[k]++;
            before += s->estimator.kind_speed[k];
        }
}

/* Groups inside regions: as many for each as its part of the speed, one at least. False: more regions than groups. */
static bool deal_regions(const Search *s, Grouping *g, int count)
{
    const ReplicaEstimator *e = &s->estimator;
    double left = 0;
    int groups = count, regions = 0;
    for (int k = 0; k < e->kind_count; k++) {
        left += e->kind_size[k] * e->kind_speed[k];
        regions += k == 0 || e->kind_region[k] != e->kind_region[k - 1];
    }
    if (regions > count || regions < 2) return false;
    for (int k = 0, end; k < e->kind_count; k = end) {
        double speed = 0;
        for (end = k; end < e->kind_count && e->kind_region[end] == e->kind_region[k]; end++)
            speed += e->kind_size[end] * e->kind_speed[end];
        int own = end == e->kind_count ? groups : (int)lround(groups * speed / left);
        regions--; /* each of those left needs a group, too */
        own = own < 1 ? 1 : own > groups - regions ? groups - regions : own;
        deal_kinds(s, g, k, end, count - groups, own);
        groups -= own;
        left -= speed;
    }
    return true;
}

/* Groups without devices are left out. */
static void offer_start(Search *s, Grouping *g, int count)
{
    g->count = 0;
    for (int i = 0; i < count; i++) {
        if (speed_of(s, g, i) <= 0) continue;
        if (g->count < i) memcpy(row(s, g, g->count), row(s, g, i), (size_t)s->estimator.kind_count * sizeof(int));
        g->count++;
    }
    offer(s, g);
}

static void start_with(Search *s, int count)
{
    for (int way = 0; way < 3; way++) {
        Grouping g = grouping_create(s);
        if (way == 0) deal_kinds(s, &g, 0, s->estimator.kind_count, 0, count);
        if (way == 1) deal_chunks(s, &g, count);
        if (way < 2 || deal_regions(s, &g, count)) offer_start(s, &g, count);
    }
}

/* 1, 2, 3, 4, 6, 8, 12 ... and as many as there are devices. */
static void start(Search *s)
{
    for (int n = 1; n <= s->most; n++) {
        bool listed = n <= 6 || !(n & (n - 1)) || (n % 3 == 0 && !(n / 3 & (n / 3 - 1))) || n == s->most;
        if (s->wanted ? n == s->wanted : listed) start_with(s, n);
    }
}

/* ---- every grouping of a few devices ---- */

static void try_all(Search *s, Grouping *g, int kind, int placed, int last)
{
    while (kind < s->estimator.kind_count && placed == s->estimator.kind_size[kind]) kind++, placed = 0, last = 0;
    if (kind == s->estimator.kind_count) {
        Grouping whole = *g;
        FREED_WITH(arena_free) Arena arena = {0};
        whole.devices =
            arena_copy(&arena, g->devices, (size_t)g->count * (size_t)s->estimator.kind_count * sizeof(int));
        offer(s, &whole);
        return;
    }
    /* Devices of a kind go into groups in ascending order: they are all the same. */
    for (int group = last; group <= g->count && group < s->most; group++) {
        bool opens = group == g->count;
        g->count += opens;
        row(s, g, group)[kind]++;
        try_all(s, g, kind, placed + 1, group);
        row(s, g, group)[kind]--;
        g->count -= opens;
    }
}

/* ---- local search ---- */

/* From the best grouping: moves a device, or swaps two, or merges groups (kind_a < 0). */
static bool try_pair(Search *s, Grouping *trial, int a, int b, int kind_a, int kind_b)
{
    grouping_copy(s, trial, &s->best);
    int *from = row(s, trial, a), *to = row(s, trial, b), kinds = s->estimator.kind_count;
    for (int k = 0; k < kinds && kind_a < 0; k++) to[k] += from[k], from[k] = 0;
    if (kind_a >= 0) from[kind_a]--, to[kind_a]++;
    if (kind_b >= 0) to[kind_b]--, from[kind_b]++;
    if (speed_of(s, trial, a) <= 0) {
        memmove(from, row(s, trial, trial->count - 1), (size_t)kinds * sizeof *from);
        trial->count--;
    }
    return offer(s, trial);
}

static bool try_split(Search *s, Grouping *trial, int group)
{
    grouping_copy(s, trial, &s->best);
    if (trial->count >= s->most) return false;
    int *from = row(s, trial, group), *to = row(s, trial, trial->count), turn = 0;
    for (int k = 0; k < s->estimator.kind_count; k++) {
        to[k] = (from[k] + turn) / 2;
        if (from[k] % 2) turn = !turn;
        from[k] -= to[k];
    }
    trial->count++;
    return speed_of(s, trial, group) > 0 && speed_of(s, trial, trial->count - 1) > 0 && offer(s, trial);
}

static bool improve_pair(Search *s, Grouping *trial, int a, int b)
{
    int kinds = s->estimator.kind_count;
    for (int i = 0; i < kinds; i++) {
        if (row(s, &s->best, a)[i] == 0) continue;
        for (int k = -1; k < kinds; k++)
            if (k != i && (k < 0 || row(s, &s->best, b)[k] > 0) && s->work > 0 && try_pair(s, trial, a, b, i, k))
                return true;
    }
    return s->work > 0 && try_pair(s, trial, a, b, -1, -1);
}

static bool improve(Search *s, Grouping *trial)
{
    for (int a = 0; a < s->best.count; a++) {
        if (s->work > 0 && try_split(s, trial, a)) return true;
        for (int b = 0; b < s->best.count; b++)
            if (a != b && improve_pair(s, trial, a, b)) return true;
    }
    return false;
}

/* ---- the result ---- */

/* Which group each device of the costs is in; takes the devices from the grouping. */
static void assign(const Search *s, const Costs *costs, const Grouping *grouping, int *group_of)
{
    for (int d = 0, i = 0; d < costs->device_count; d++) {
        const Costs *used = &s->estimator.costs;
        group_of[d] = -1;
        if (i == used->device_count || strcmp(used->devices[i].name, costs->devices[d].name) != 0) continue;
        int kind = s->estimator.kind_of[i++];
        for (int g = 0; g < grouping->count && group_of[d] < 0; g++) {
            if (row(s, grouping, g)[kind] == 0) continue;
            row(s, grouping, g)[kind]--;
            group_of[d] = g;
        }
    }
}

static PlanGrouping describe(const Search *s, const Costs *costs, const Grouping *grouping, int *group_of, Arena *arena)
{
    PlanGrouping one = {.count = grouping->count, .step_ns = grouping->step_ns};
    assign(s, costs, grouping, group_of);
    one.bound_ns = replica_groups_bound_ns(costs, group_of, one.count, s->total);
    one.device = arena_new_array(arena, const char *, (size_t)costs->device_count);
    one.group = arena_new_array(arena, int, (size_t)costs->device_count);
    for (int d = 0; d < costs->device_count; d++) {
        if (group_of[d] < 0) continue;
        one.device[one.device_count] = costs->devices[d].name;
        one.group[one.device_count++] = group_of[d];
    }
    return one;
}

static ReplicaGroups result_of(const Search *s, const Costs *costs, Arena *arena)
{
    const Grouping *best = &s->best;
    ReplicaGroups result = {.tried = s->tried};
    if (best->step_ns == INT64_MAX) return result;
    result.count = best->count;
    result.step_ns = best->step_ns;
    result.group_of = arena_new_array(arena, int, (size_t)costs->device_count);
    result.microbatches = arena_copy(arena, best->microbatches, (size_t)best->count * sizeof(int));
    result.best = arena_new_array(arena, PlanGrouping, MOST_GROUPS);
    for (int n = 1; n <= MOST_GROUPS; n++)
        if (s->best_of[n].devices)
            result.best[result.best_count++] = describe(s, costs, &s->best_of[n], result.group_of, arena);
    assign(s, costs, best, result.group_of);
    return result;
}

ReplicaGroups replica_groups_choose(const Costs *costs, const PlanRequest *request, int count, Arena *arena)
{
    enum { WORK = 400000, QUICK_WORK = 40000 };
    Watch watch = {.counted = true};
    Search s = {.wanted = count, .work = request->quick ? QUICK_WORK : WORK};
    replica_estimator_open(&s.estimator, costs, request, &watch);
    int devices = s.estimator.costs.device_count;
    s.total = request->microbatches > 0 ? request->microbatches : costs->microbatches;
    s.most = devices < s.total ? devices : s.total;
    if (s.most > MOST_GROUPS) s.most = MOST_GROUPS;
    s.best = grouping_create(&s);
    Grouping trial = grouping_create(&s);
    bool all = devices <= GROUPS_TRY_ALL && !request->quick;
    s.estimator.exact = all && devices <= 6 && devices * costs->layer_count <= 100 && s.total <= 32;
    if (all)
        try_all(&s, &trial, 0, 0, 0);
    else
        start(&s);
    while (!all && s.best.step_ns < INT64_MAX && !request->quick && improve(&s, &trial)) continue;
    ReplicaGroups result = result_of(&s, costs, arena);
    result.all = all && s.estimator.exact;
    replica_estimator_close(&s.estimator);
    arena_free(&s.arena);
    return result;
}
