#include "partitioner/planner/replicated.h"

#include <stdlib.h>
#include <string.h>

#include "base/integers.h"
#include "partitioner/replicas.h"

/* A group's pipeline, as it is asked for. */
typedef struct Group {
    PlanRequest request;
    int64_t period_ns, fill_ns; /* of a first plan: a step of n micro-batches takes about fill + n * period */
} Group;

typedef struct Grouping {
    const Costs *costs;
    const PlanRequest *asked;
    const int *group_of;
    int count;
    Group *groups;
    Arena arena;
    Diagnostics *diagnostics;
} Grouping;

static bool is_left_out(const PlanRequest *request, const char *name)
{
    for (int i = 0; i < request->without_count; i++)
        if (strcmp(request->without[i], name) == 0) return true;
    return false;
}

/* The devices of others are left out, and pins on them are about other pipelines. */
static void ask(Grouping *g, int group)
{
    PlanRequest *request = &g->groups[group].request;
    const Costs *costs = g->costs;
    *request = *g->asked;
    request->replicas = 1;
    request->rows = 0;
    request->time_limit_s = g->asked->time_limit_s / g->count;
    const char **without = arena_new_array(&g->arena, const char *, (size_t)costs->device_count);
    PlanPin *pins = arena_new_array(&g->arena, PlanPin, (size_t)g->asked->pin_count);
    request->without = without;
    request->without_count = request->pin_count = 0;
    for (int d = 0; d < costs->device_count; d++)
        if (g->group_of[d] != group || is_left_out(g->asked, costs->devices[d].name))
            without[request->without_count++] = costs->devices[d].name;
    for (int i = 0; i < g->asked->pin_count; i++) {
        int device = costs_find_device(costs, g->asked->pins[i].device);
        if (device < 0 || g->group_of[device] == group) pins[request->pin_count++] = g->asked->pins[i];
    }
    request->pins = pins;
}

/* Says which devices the message is about. */
static bool make_one(const Grouping *g, Plan *plan, int group, const PlanRequest *request)
{
    if (plan_make(plan, g->costs, request, g->diagnostics)) return true;
    int first = 0, devices = 0;
    for (int d = g->costs->device_count - 1; d >= 0; d--)
        if (g->group_of[d] == group) first = d, devices++;
    plan_free(plan);
    return diagnostics_error(g->diagnostics, EXIT_NO_PLAN, PLACE_NONE, "--replicas 1 may still find a plan",
                             "replica %d has no plan of its own on its %d devices ('%s' is the first)", group, devices,
                             g->costs->devices[first].name);
}

/* By the heuristic's pipeline where it fits, else by the solver's. */
static bool estimate(const Grouping *g, int group)
{
    Plan plan;
    Diagnostics ignored = {0};
    Group *estimated = &g->groups[group];
    PlanRequest request = estimated->request;
    if (request.allocate == PLAN_OPTIMAL) request.allocate = PLAN_HEURISTIC;
    request.quick = true;
    bool ok = plan_make(&plan, g->costs, &request, &ignored);
    diagnostics_free(&ignored);
    if (!ok) {
        plan_free(&plan);
        if (!make_one(g, &plan, group, &estimated->request)) return false;
    }
    estimated->period_ns = larger(plan.period_ns, 1);
    estimated->fill_ns = plan.simulated_step_ns - plan.microbatches * plan.period_ns;
    estimated->request.microbatches = plan.microbatches;
    plan_free(&plan);
    return true;
}

/* Each micro-batch goes to the group that ends first with it. */
static bool share_microbatches(const Grouping *g, int total)
{
    if (total < g->count)
        return diagnostics_error(g->diagnostics, EXIT_NO_PLAN, PLACE_NONE,
                                 "--replicas with a smaller number, or more micro-batches",
                                 "%d replicas cannot share %d micro-batch%s", g->count, total, total > 1 ? "es" : "");
    for (int i = 0; i < g->count; i++) g->groups[i].request.microbatches = 1;
    for (int m = g->count; m < total; m++) {
        Group *next = &g->groups[0];
        int64_t soonest = INT64_MAX;
        for (int i = 0; i < g->count; i++) {
            Group *group = &g->groups[i];
            int64_t end = group->fill_ns + (group->request.microbatches + 1) * group->period_ns;
            if (end < soonest) next = group, soonest = end;
        }
        next->request.microbatches++;
    }
    return true;
}

static bool make_all(const Grouping *g, Plan *plan)
{
    Plan *parts = memory_allocate((size_t)g->count * sizeof *parts);
    bool ok = true;
    int made = 0;
    while (ok && made < g->count) ok = make_one(g, &parts[made], made, &g->groups[made].request), made += ok;
    if (ok)
        plan_join(plan, parts, g->count, g->asked->rows > 0 ? g->asked->rows : -1, g->costs);
    else
        for (int i = 0; i < made; i++) plan_free(&parts[i]);
    free(parts);
    return ok;
}

bool plan_make_grouped(Plan *plan, const Costs *costs, const PlanRequest *request, const int *group_of, int count,
                       Diagnostics *diagnostics)
{
    Grouping g = {.costs = costs, .asked = request, .group_of = group_of, .count = count, .diagnostics = diagnostics};
    int total = request->microbatches ? request->microbatches : costs->microbatches, most = 0;
    memset(plan, 0, sizeof *plan);
    g.groups = arena_new_array(&g.arena, Group, (size_t)count);
    bool ok = true;
    for (int i = 0; ok && i < count; i++) {
        ask(&g, i);
        ok = estimate(&g, i);
        most = g.groups[i].request.microbatches > most ? g.groups[i].request.microbatches : most;
    }
    if (total == PLAN_MICROBATCHES_AUTO) total = most * count;
    ok = ok && share_microbatches(&g, total) && make_all(&g, plan);
    arena_free(&g.arena);
    return ok;
}

/* What cannot be had with several pipelines. */
static bool check(const Costs *costs, const PlanRequest *request, int count, Diagnostics *diagnostics)
{
    static const char hint[] = "leave out --replicas, or give --replicas 1";
    if (costs->keep_inputs || costs->keep_labels ||
        (costs->sites.count && (costs->sites.keep_inputs >= 0 || costs->sites.keep_labels >= 0)))
        return usage_error(diagnostics, hint,
                           "--replicas %d: keep: leaves raw data on one device, which serves one pipeline", count);
    if (costs->sites.count > 1)
        return usage_error(diagnostics, hint, "--replicas %d: replicas across sites are not built yet", count);
    if (request->codecs & ~CODECS_LOSSLESS)
        return usage_error(diagnostics, hint, "--replicas %d: lossy codecs between replicas are not built yet", count);
    if (costs->rows.microbatch_kinds)
        return usage_error(diagnostics, hint, "--replicas %d: replicas of packed rows are not built yet", count);
    return true;
}

/* Devices that follow each other by region, then by speed, in groups of as many. */
static void group_by_speed(const Costs *costs, const PlanRequest *request, int *group_of, int count)
{
    int *order = memory_allocate((size_t)costs->device_count * sizeof *order), used = 0;
    for (int d = 0; d < costs->device_count; d++) {
        const DeviceCost *device = &costs->devices[d];
        int at = used;
        group_of[d] = -1;
        if (is_left_out(request, device->name)) continue;
        for (; at > 0; at--) {
            const DeviceCost *before = &costs->devices[order[at - 1]];
            bool stays = before->region != device->region ? before->region < device->region
                                                          : before->slowdown <= device->slowdown;
            if (stays) break;
            order[at] = order[at - 1];
        }
        order[at] = d;
        used++;
    }
    for (int i = 0; i < used; i++) group_of[order[i]] = (int)((int64_t)i * count / used);
    free(order);
}

bool plan_make_replicas(Plan *plan, const Costs *costs, const PlanRequest *request, Diagnostics *diagnostics)
{
    int count = request->replicas == PLAN_REPLICAS_AUTO ? 1 : request->replicas;
    memset(plan, 0, sizeof *plan);
    if (count <= 1) return plan_make(plan, costs, request, diagnostics);
    int devices = 0;
    for (int d = 0; d < costs->device_count; d++) devices += !is_left_out(request, costs->devices[d].name);
    if (!check(costs, request, count, diagnostics)) return false;
    if (count > devices)
        return diagnostics_error(diagnostics, EXIT_NO_PLAN, PLACE_NONE, "each replica needs a device of its own",
                                 "%d replicas need more than the %d devices that there are", count, devices);
    int *group_of = memory_allocate((size_t)costs->device_count * sizeof *group_of);
    group_by_speed(costs, request, group_of, count);
    bool ok = plan_make_grouped(plan, costs, request, group_of, count, diagnostics);
    free(group_of);
    return ok;
}
