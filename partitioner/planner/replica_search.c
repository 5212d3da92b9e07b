#include "partitioner/planner/replica_search.h"

#include <stdlib.h>
#include <string.h>

#include "base/integers.h"
#include "partitioner/problem.h"
#include "partitioner/replicas.h"
#include "partitioner/schedule/replica_steps.h"

enum {
    MOST_DEALS = 4,  /* of the micro-batches to the same groups */
    MOST_STARTS = 3, /* that are improved */
    FEW_STARTS = 12  /* the same of a few devices */
};

/* Counted, for all pipelines from one start; a pipeline counts a hundredth more for its simulation. */
static const double SECONDS = 2, PIPELINE_SECONDS = 0.003;

/* Devices that agree in everything are of one kind. */
typedef struct Grouping {
    int count;
    int *devices;      /* [group][kind] */
    int *microbatches; /* [group] */
    int64_t step_ns;
    int order; /* in which groupings were tried */
} Grouping;

/* A group's pipeline; stands for all groups with as many devices of each kind. */
typedef struct Pipeline {
    const int *devices; /* [kind] */
    int groups, microbatches;
    bool rough, made;
    Plan plan;
} Pipeline;

struct ReplicaSearch {
    const Costs *costs;
    PlanRequest request;
    Arena arena;
    int *kind_of;   /* [device]; -1: left out */
    int *kind_size; /* [kind] */
    double *speed;  /* [kind]: micro-batches a ns, if it had all layers */
    int kind_count, most;
    int wanted; /* groups; 0: any number */
    Watch watch;
    double started; /* on the watch: the work from this start */
    int planned;    /* pipelines, since then */
    Pipeline **known;
    int known_count, known_capacity;
    Grouping **tried; /* groups in order, so that each set of them is tried once */
    int tried_count, tried_capacity;
    const Grouping *starts[PLAN_MOST_REPLICAS]; /* the fastest first */
    int start_count;
    Grouping now; /* where the search is */
};

static int *row(const ReplicaSearch *s, const Grouping *g, int group) { return g->devices + group * s->kind_count; }

static Grouping grouping_create(ReplicaSearch *s)
{
    return (Grouping){.devices = arena_new_array(&s->arena, int, (size_t)(s->most * s->kind_count)),
                      .microbatches = arena_new_array(&s->arena, int, (size_t)s->most),
                      .step_ns = INT64_MAX};
}

static void grouping_copy(const ReplicaSearch *s, Grouping *to, const Grouping *from)
{
    memcpy(to->devices, from->devices, (size_t)(from->count * s->kind_count) * sizeof *to->devices);
    memcpy(to->microbatches, from->microbatches, (size_t)from->count * sizeof *to->microbatches);
    to->count = from->count;
    to->step_ns = from->step_ns;
}

static double speed_of(const ReplicaSearch *s, const int *devices)
{
    double speed = 0;
    for (int k = 0; k < s->kind_count; k++) speed += devices[k] * s->speed[k];
    return speed;
}

/* ---- opening ---- */

static void find_kinds(ReplicaSearch *s, const Problem *p)
{
    s->kind_size = arena_new_array(&s->arena, int, (size_t)p->type_count);
    s->speed = arena_new_array(&s->arena, double, (size_t)p->type_count);
    s->kind_count = p->type_count;
    for (int d = 0; d < s->costs->device_count; d++) {
        int kind = p->type_of[d];
        s->kind_of[d] = plan_request_without(&s->request, s->costs->devices[d].name) ? -1 : kind;
        if (s->kind_of[d] < 0) continue;
        s->kind_size[kind]++;
        s->speed[kind] = 1 / (double)larger(1, problem_work(p, kind, 0, p->layer_count));
    }
}

ReplicaSearch *replica_search_open(const Costs *costs, const PlanRequest *request, int wanted)
{
    Problem problem;
    Diagnostics ignored = {0};
    ReplicaSearch *s = memory_allocate(sizeof *s);
    *s = (ReplicaSearch){.costs = costs, .request = *request, .most = costs->device_count, .wanted = wanted};
    s->watch.counted = true;
    s->request.part = s->request.compared = s->request.rough = true;
    s->request.watch = &s->watch;
    s->kind_of = arena_new_array(&s->arena, int, (size_t)costs->device_count);
    if (problem_create(&problem, costs, request->objective, request->schedule, 1, &ignored)) {
        find_kinds(s, &problem);
        problem_free(&problem);
    }
    diagnostics_free(&ignored);
    s->now = grouping_create(s);
    return s;
}

void replica_search_close(ReplicaSearch *s)
{
    for (int i = 0; i < s->known_count; i++)
        if (s->known[i]->made) plan_free(&s->known[i]->plan);
    free(s->known);
    free(s->tried);
    arena_free(&s->arena);
    free(s);
}

static bool is_late(const ReplicaSearch *s)
{
    return watch_seconds(&s->watch) - s->started + s->planned * PIPELINE_SECONDS > SECONDS;
}

/* ---- what groups take ---- */

/* Which group each device is in; of a kind the first devices are in the first groups. */
static void assign(const ReplicaSearch *s, const Grouping *g, int *group_of)
{
    FREED int *left = memory_allocate((size_t)(g->count * s->kind_count + 1) * sizeof *left);
    memcpy(left, g->devices, (size_t)(g->count * s->kind_count) * sizeof *left);
    for (int d = 0; d < s->costs->device_count; d++) {
        group_of[d] = -1;
        for (int i = 0; i < g->count && s->kind_of[d] >= 0 && group_of[d] < 0; i++)
            if (left[i * s->kind_count + s->kind_of[d]]-- > 0) group_of[d] = i;
    }
}

static bool make_pipeline(ReplicaSearch *s, Pipeline *pipeline, const Grouping *g, const int *group_of, int group)
{
    FREED_WITH(arena_free) Arena arena = {0};
    FREED_WITH(diagnostics_free) Diagnostics ignored = {0};
    Costs costs = replica_costs(s->costs, group_of, g->microbatches, g->count, group, s->request.codecs, &arena);
    PlanRequest request = s->request;
    const char **without = arena_new_array(&arena, const char *, (size_t)costs.device_count);
    request.without = without;
    request.without_count = 0;
    request.replicas = 1;
    request.rows = 0;
    request.microbatches = g->microbatches[group];
    for (int d = 0; d < costs.device_count; d++)
        if (group_of[d] != group) without[request.without_count++] = costs.devices[d].name;
    bool made = plan_make(&pipeline->plan, &costs, &request, &ignored);
    if (!made) plan_free(&pipeline->plan);
    s->planned++;
    return made;
}

/* NULL: there is none. */
static const Plan *find_pipeline(ReplicaSearch *s, const Grouping *g, const int *group_of, int group)
{
    size_t bytes = (size_t)s->kind_count * sizeof(int);
    for (int i = 0; i < s->known_count; i++) {
        const Pipeline *known = s->known[i];
        if (known->rough == s->request.rough && known->groups == g->count &&
            known->microbatches == g->microbatches[group] && memcmp(known->devices, row(s, g, group), bytes) == 0)
            return known->made ? &known->plan : NULL;
    }
    Pipeline *pipeline = arena_new(&s->arena, Pipeline);
    *pipeline = (Pipeline){.devices = arena_copy(&s->arena, row(s, g, group), bytes),
                           .rough = s->request.rough,
                           .groups = g->count,
                           .microbatches = g->microbatches[group]};
    pipeline->made = make_pipeline(s, pipeline, g, group_of, group);
    array_push(s->known, s->known_count, s->known_capacity, pipeline);
    return pipeline->made ? &pipeline->plan : NULL;
}

/* Of the groups with these micro-batches, which are then dealt so that the groups should end together, if they do not.
 * INT64_MAX: some group has no pipeline. */
static int64_t simulate(ReplicaSearch *s, const Grouping *g, const int *group_of, int *dealt, bool *again)
{
    Plan plan, *parts = memory_allocate((size_t)g->count * sizeof *parts);
    FREED_WITH(diagnostics_free) Diagnostics ignored = {0};
    int made = 0;
    int64_t step = INT64_MAX;
    for (const Plan *part; made < g->count && (part = find_pipeline(s, g, group_of, made)); made++) parts[made] = *part;
    *again = false;
    if (made == g->count && made == 1) step = parts[0].simulated_step_ns;
    if (made == g->count && made > 1) {
        plan_join(&plan, parts, g->count, -1, s->costs);
        if (replica_steps_overlap(&plan, s->costs, true, &ignored)) step = plan.simulated_step_ns;
        *again = plan_deal_again(&plan, dealt);
        plan.replica_count = 0; /* the pipelines stay */
        plan_free(&plan);
    }
    free(parts);
    return step;
}

/* Leaves the grouping with the best deal that was simulated. */
static void evaluate(ReplicaSearch *s, Grouping *g)
{
    Arena arena = {0};
    int *group_of = arena_new_array(&arena, int, (size_t)s->costs->device_count);
    Grouping trial = *g;
    trial.microbatches = arena_copy(&arena, g->microbatches, (size_t)g->count * sizeof(int));
    bool again = true;
    assign(s, g, group_of);
    g->step_ns = INT64_MAX;
    for (int i = 0; i < MOST_DEALS && again && (i == 0 || !is_late(s)); i++) {
        const int *now = arena_copy(&arena, trial.microbatches, (size_t)g->count * sizeof(int));
        trial.step_ns = simulate(s, &trial, group_of, trial.microbatches, &again);
        if (trial.step_ns >= g->step_ns) continue;
        g->step_ns = trial.step_ns;
        memcpy(g->microbatches, now, (size_t)g->count * sizeof(int));
    }
    arena_free(&arena);
}

/* ---- local search ---- */

static int compare_rows(const int *a, const int *b, int count)
{
    for (int k = 0; k < count; k++)
        if (a[k] != b[k]) return a[k] < b[k] ? 1 : -1;
    return 0;
}

/* Groups without devices are left out, and the others put in order. */
static void settle(const ReplicaSearch *s, Grouping *g)
{
    size_t bytes = (size_t)s->kind_count * sizeof(int);
    int *moved = memory_allocate(bytes), count = 0;
    for (int i = 0; i < g->count; i++) {
        if (speed_of(s, row(s, g, i)) <= 0) continue;
        int at = count++;
        memcpy(moved, row(s, g, i), bytes);
        for (; at > 0 && compare_rows(row(s, g, at - 1), moved, s->kind_count) > 0; at--)
            memcpy(row(s, g, at), row(s, g, at - 1), bytes);
        memcpy(row(s, g, at), moved, bytes);
    }
    g->count = count;
    free(moved);
}

/* In proportion to speeds. */
static void deal(const ReplicaSearch *s, Grouping *g, int total)
{
    double all = 0;
    int left = total;
    for (int i = 0; i < g->count; i++) all += speed_of(s, row(s, g, i));
    for (int i = 0; i < g->count; i++) {
        int share = (int)(total * speed_of(s, row(s, g, i)) / all);
        g->microbatches[i] = share < 1 ? 1 : share;
        left -= g->microbatches[i];
    }
    for (int i = 0; left != 0; i = (i + 1) % g->count) {
        int step = left > 0 ? 1 : g->microbatches[i] > 1 ? -1 : 0;
        g->microbatches[i] += step;
        left -= step;
    }
}

static int total_of(const Grouping *g)
{
    int total = 0;
    for (int i = 0; i < g->count; i++) total += g->microbatches[i];
    return total;
}

static bool was_tried(const ReplicaSearch *s, const Grouping *g)
{
    for (int i = 0; i < s->tried_count; i++)
        if (s->tried[i]->count == g->count &&
            compare_rows(s->tried[i]->devices, g->devices, g->count * s->kind_count) == 0)
            return true;
    return false;
}

/* Deals the micro-batches, simulates, and keeps the grouping among those tried. */
static const Grouping *try(ReplicaSearch *s, Grouping *g, int total)
{
    Grouping *copy = arena_new(&s->arena, Grouping);
    *copy = grouping_create(s);
    deal(s, g, total);
    evaluate(s, g);
    grouping_copy(s, copy, g);
    copy->order = s->tried_count;
    array_push(s->tried, s->tried_count, s->tried_capacity, copy);
    return copy;
}

/* So many devices of kind `a` go from group `from` to group `to`, and one of kind `b` back; -1: no group, or none. */
static bool try_move(ReplicaSearch *s, Grouping *trial, int from, int to, int many, int a, int b)
{
    grouping_copy(s, trial, &s->now);
    int total = total_of(trial);
    if (from >= 0) row(s, trial, from)[a] -= many;
    if (to >= 0) row(s, trial, to)[a] += many;
    if (to >= 0 && b >= 0) row(s, trial, to)[b]--;
    if (from >= 0 && b >= 0) row(s, trial, from)[b]++;
    settle(s, trial);
    if (trial->count == 0 || (s->wanted && trial->count != s->wanted) || was_tried(s, trial)) return false;
    try(s, trial, total);
    if (trial->step_ns >= s->now.step_ns) return false;
    grouping_copy(s, &s->now, trial);
    return true;
}

/* How many devices of the kind a group has, -1: that none has. */
static int has(const ReplicaSearch *s, int group, int kind)
{
    if (group >= 0) return row(s, &s->now, group)[kind];
    int idle = s->kind_size[kind];
    for (int i = 0; i < s->now.count; i++) idle -= row(s, &s->now, i)[kind];
    return idle;
}

static bool improve_pair(ReplicaSearch *s, Grouping *trial, int from, int to)
{
    for (int a = 0; a < s->kind_count; a++) {
        for (int b = -1; b < s->kind_count && has(s, from, a) > 0; b++)
            if (a != b && (b < 0 || has(s, to, b) > 0) && !is_late(s) && try_move(s, trial, from, to, 1, a, b))
                return true;
        for (int many = 2; many <= has(s, from, a) && !is_late(s); many *= 2)
            if (try_move(s, trial, from, to, many, a, -1)) return true;
    }
    return false;
}

static bool improve(ReplicaSearch *s, Grouping *trial)
{
    for (int from = -1; from < s->now.count; from++)
        for (int to = -1; to < s->now.count; to++)
            if (from != to && improve_pair(s, trial, from, to)) return true;
    return false;
}

void replica_search_improve(ReplicaSearch *s)
{
    enum { PART = 20, FEW_PART = 10 };
    Grouping trial = grouping_create(s);
    bool many = s->costs->device_count > GROUPS_TRY_ALL;
    int most = many ? MOST_STARTS : FEW_STARTS;
    int64_t best = s->start_count > 0 ? s->starts[0]->step_ns : 0;
    for (int i = 0; i < s->start_count && i < most; i++) {
        const Grouping *start = s->starts[i];
        if (start->step_ns - best > best / (many ? PART : FEW_PART)) break;
        grouping_copy(s, &s->now, start);
        s->started = watch_seconds(&s->watch);
        s->planned = 0;
        while (improve(s, &trial)) continue;
        if (many && s->now.step_ns < best) best = s->now.step_ns;
    }
}

/* ---- in and out ---- */

static int64_t start_from(ReplicaSearch *s, Grouping *g, int total)
{
    int at = s->start_count;
    if (at == PLAN_MOST_REPLICAS) return INT64_MAX;
    s->started = watch_seconds(&s->watch);
    s->planned = 0;
    const Grouping *start = try(s, g, total);
    if (start->step_ns == INT64_MAX) return INT64_MAX;
    for (s->start_count++; at > 0 && s->starts[at - 1]->step_ns > start->step_ns; at--)
        s->starts[at] = s->starts[at - 1];
    s->starts[at] = start;
    return start->step_ns;
}

int64_t replica_search_offer(ReplicaSearch *s, const ReplicaGroups *groups)
{
    Grouping g = grouping_create(s);
    int total = 0;
    g.count = groups->count;
    for (int i = 0; i < g.count; i++) total += groups->microbatches[i];
    for (int d = 0; d < s->costs->device_count; d++)
        if (groups->group_of[d] >= 0 && s->kind_of[d] >= 0) row(s, &g, groups->group_of[d])[s->kind_of[d]]++;
    settle(s, &g);
    return g.count == 0 || was_tried(s, &g) ? INT64_MAX : start_from(s, &g, total);
}

/* The kinds in the order of their speed, the fastest first. */
static int *fastest_first(ReplicaSearch *s)
{
    int *order = arena_new_array(&s->arena, int, (size_t)s->kind_count);
    for (int k = 0; k < s->kind_count; k++) {
        int at = k;
        for (; at > 0 && s->speed[order[at - 1]] < s->speed[k]; at--) order[at] = order[at - 1];
        order[at] = k;
    }
    return order;
}

void replica_search_offer_unequal(ReplicaSearch *s, int count, double share, int microbatches)
{
    Grouping g = grouping_create(s);
    const int *order = fastest_first(s);
    double all = speed_of(s, s->kind_size), before = 0;
    for (int i = 0; i < s->kind_count; i++)
        for (int k = order[i], d = 0; d < s->kind_size[k]; d++) {
            double middle = (before + s->speed[k] / 2) / all;
            int group = middle < share ? 0 : 1 + (int)((middle - share) / (1 - share) * (count - 1));
            row(s, &g, group < count ? group : count - 1)[k]++;
            before += s->speed[k];
        }
    g.count = count;
    settle(s, &g);
    if (g.count == count && !was_tried(s, &g)) start_from(s, &g, microbatches);
}

static int by_step(const void *a, const void *b)
{
    const Grouping *x = *(const Grouping *const *)a, *y = *(const Grouping *const *)b;
    if (x->step_ns != y->step_ns) return x->step_ns < y->step_ns ? -1 : 1;
    return x->order - y->order;
}

/* Simulates the fastest again, with pipelines that a short search finds. */
static void refine(ReplicaSearch *s)
{
    enum { CLOSE = 4, FEW_CLOSE = 16 };
    int most = s->costs->device_count > GROUPS_TRY_ALL ? CLOSE : FEW_CLOSE;
    s->request.rough = false;
    qsort(s->tried, (size_t)s->tried_count, sizeof *s->tried, by_step);
    for (int i = 0; i < most && i < s->tried_count && s->tried[i]->step_ns < INT64_MAX; i++) {
        Grouping g = grouping_create(s);
        grouping_copy(s, &g, s->tried[i]);
        s->started = watch_seconds(&s->watch);
        evaluate(s, &g);
        if (g.step_ns < s->tried[i]->step_ns) grouping_copy(s, s->tried[i], &g);
    }
}

ReplicaGroups replica_search_best(ReplicaSearch *s, Arena *arena)
{
    if (s->tried_count == 0) return (ReplicaGroups){0};
    refine(s);
    qsort(s->tried, (size_t)s->tried_count, sizeof *s->tried, by_step);
    if (s->tried[0]->step_ns == INT64_MAX) return (ReplicaGroups){0};
    const Grouping *best = s->tried[0];
    ReplicaGroups groups = {.count = best->count, .step_ns = best->step_ns};
    groups.group_of = arena_new_array(arena, int, (size_t)s->costs->device_count);
    groups.microbatches = arena_copy(arena, best->microbatches, (size_t)groups.count * sizeof(int));
    assign(s, best, groups.group_of);
    return groups;
}
