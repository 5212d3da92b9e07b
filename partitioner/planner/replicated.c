#include "partitioner/planner/replicated.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/integers.h"
#include "partitioner/planner/replica_search.h"
#include "partitioner/replica_sums.h"
#include "partitioner/replicas.h"
#include "partitioner/schedule/replica_steps.h"

typedef struct Grouping {
    const Costs *costs;
    const PlanRequest *asked;
    const ReplicaGroups *groups;
    PlanRequest *requests; /* [group] */
    Costs *pipeline_costs; /* [group] */
    Arena arena;
    Diagnostics *diagnostics;
} Grouping;

/* The devices of others are left out, and pins on them are about other pipelines. */
static void ask(Grouping *g, int group)
{
    PlanRequest *request = &g->requests[group];
    const Costs *costs = g->costs;
    *request = *g->asked;
    request->replicas = 1;
    request->rows = 0;
    request->part = g->asked->part;
    request->microbatches = g->groups->microbatches[group];
    request->time_limit_s = g->asked->time_limit_s / g->groups->count;
    const char **without =
        arena_new_array(&g->arena, const char *, (size_t)(costs->device_count + g->asked->without_count));
    PlanPin *pins = arena_new_array(&g->arena, PlanPin, (size_t)g->asked->pin_count);
    request->without = without;
    request->without_count = request->pin_count = 0;
    for (int d = 0; d < costs->device_count; d++)
        if (g->groups->group_of[d] != group || plan_request_without(g->asked, costs->devices[d].name))
            without[request->without_count++] = costs->devices[d].name;
    for (int i = 0; i < g->asked->without_count; i++) /* names that no device has are refused by them */
        if (costs_find_device(costs, g->asked->without[i]) < 0)
            without[request->without_count++] = g->asked->without[i];
    for (int i = 0; i < g->asked->pin_count; i++) {
        int device = costs_find_device(costs, g->asked->pins[i].device);
        if (device < 0 || g->groups->group_of[device] == group) pins[request->pin_count++] = g->asked->pins[i];
    }
    request->pins = pins;
}

/* Says which devices the message is about. */
static bool make_one(const Grouping *g, Plan *plan, int group, const PlanRequest *request)
{
    if (plan_make(plan, &g->pipeline_costs[group], request, g->diagnostics)) return true;
    int first = 0, devices = 0;
    for (int d = g->costs->device_count - 1; d >= 0; d--)
        if (g->groups->group_of[d] == group) first = d, devices++;
    plan_free(plan);
    return diagnostics_error(g->diagnostics, EXIT_NO_PLAN, PLACE_NONE, "--replicas 1 may still find a plan",
                             "replica %d has no plan of its own on its %d devices ('%s' is the first)", group, devices,
                             g->costs->devices[first].name);
}

/* What error feedback takes in addition to the stages: residuals and coded gradients, of three or more replicas those
 * of sums, too. */
static bool check_feedback(const Plan *plan, const Costs *costs, Diagnostics *diagnostics)
{
    double share = codecs_sum_share(plan->codecs) + 1, times = plan->replica_count > 2 ? 2 : 1;
    for (int r = 0; r < plan->rank_count && codecs_of_sums(plan->codecs) != CODEC_NONE; r++) {
        const PlanRank *rank = &plan->ranks[r];
        int64_t limit = plan->stages[rank->stages[0]].memory_limit_bytes, planned = 0, gradients = 0;
        for (int k = 0; k < rank->stage_count; k++) planned += plan->stages[rank->stages[k]].memory_bytes;
        for (int l = 0; l < plan->layer_count; l++)
            gradients += replica_sums_has(plan, r, l) ? costs->layers[l].gradient_bytes : 0;
        int64_t further = (int64_t)(share * times * (double)gradients);
        if (limit != COSTS_NO_LIMIT && planned + further > limit)
            return diagnostics_error(diagnostics, EXIT_NO_PLAN, PLACE_NONE, "give --codec lossless, or more memory",
                                     "'%s' has no room for the error feedback of %s: %lld MiB more than its stages",
                                     rank->device, codec_name(codecs_of_sums(plan->codecs)),
                                     (long long)(further >> 20));
    }
    return true;
}

static bool make_all(const Grouping *g, Plan *plan)
{
    Plan *parts = memory_allocate((size_t)g->groups->count * sizeof *parts);
    bool ok = true;
    int made = 0;
    while (ok && made < g->groups->count) ok = make_one(g, &parts[made], made, &g->requests[made]), made += ok;
    if (ok) {
        plan_join(plan, parts, g->groups->count, g->asked->rows > 0 ? g->asked->rows : -1, g->costs);
        ok = check_feedback(plan, g->costs, g->diagnostics) &&
             replica_steps_overlap(plan, g->costs, true, g->diagnostics);
        replica_steps_expect(plan);
        if (!ok) plan_free(plan);
    } else
        for (int i = 0; i < made; i++) plan_free(&parts[i]);
    free(parts);
    return ok;
}

static bool make_dealt(Plan *plan, const Costs *costs, const PlanRequest *request, const ReplicaGroups *groups,
                       Diagnostics *diagnostics)
{
    Grouping g = {.costs = costs, .asked = request, .groups = groups, .diagnostics = diagnostics};
    memset(plan, 0, sizeof *plan);
    g.requests = arena_new_array(&g.arena, PlanRequest, (size_t)groups->count);
    g.pipeline_costs = arena_new_array(&g.arena, Costs, (size_t)groups->count);
    for (int i = 0; i < groups->count; i++) {
        ask(&g, i);
        g.pipeline_costs[i] =
            replica_costs(costs, groups->group_of, groups->microbatches, groups->count, i, request->codecs, &g.arena);
    }
    bool ok = make_all(&g, plan);
    arena_free(&g.arena);
    return ok;
}

/* Whoever hurries has the likeliest number of groups simulated only, as the estimate groups them at once. */
static bool is_hurried(const PlanRequest *request) { return request->quick || isfinite(request->time_limit_s); }

/* Keeps one of both. */
static void take_faster(Plan *plan, Plan *other)
{
    bool better = plan_chosen_ns(other) < plan_chosen_ns(plan);
    plan_free(better ? plan : other);
    if (better) *plan = *other;
}

bool plan_make_grouped(Plan *plan, const Costs *costs, const PlanRequest *request, const ReplicaGroups *groups,
                       Diagnostics *diagnostics)
{
    FREED_WITH(arena_free) Arena arena = {0};
    ReplicaGroups again = *groups;
    Plan other;
    FREED_WITH(diagnostics_free) Diagnostics said = {0};
    again.microbatches = arena_copy(&arena, groups->microbatches, (size_t)groups->count * sizeof(int));
    bool made = make_dealt(plan, costs, request, groups, diagnostics);
    if (made && groups->count > 1 && !is_hurried(request) && !costs->rows.microbatch_kinds &&
        plan_deal_again(plan, again.microbatches) && make_dealt(&other, costs, request, &again, &said))
        take_faster(plan, &other);
    return made;
}

/* Whether groups are searched for by simulation: of a few devices all are looked at. */
static bool are_searched(const Costs *costs, const PlanRequest *request)
{
    return costs->device_count > GROUPS_TRY_ALL && !is_hurried(request) && request->pin_count == 0;
}

/* As if all steps had the most micro-batches. */
static ReplicaGroups choose_groups(const Costs *costs, const PlanRequest *request, int count, Arena *arena)
{
    Costs whole = *costs;
    PlanRequest asked = *request;
    whole.rows = (RowSamples){0};
    asked.quick = is_hurried(request);
    return replica_groups_choose(&whole, &asked, count, arena);
}

/* The plan of the groups or, where that is faster, of pipelines with the optimum of the objective: each pipeline is
 * chosen as if it were the only one, and sums depend on all. */
static bool make_searched(Plan *plan, const Costs *costs, const PlanRequest *request, const ReplicaGroups *groups,
                          Diagnostics *diagnostics)
{
    PlanRequest rough = *request;
    Plan other;
    FREED_WITH(diagnostics_free) Diagnostics said = {0};
    rough.rough = true;
    bool made = plan_make_grouped(plan, costs, request, groups, diagnostics);
    if (made && plan->simulated_step_ns > groups->step_ns && make_dealt(&other, costs, &rough, groups, &said))
        take_faster(plan, &other);
    return made;
}

/* Keeps what was compared in the plan. */
static void record(Plan *plan, const ReplicaGroups *groups)
{
    plan->groupings_tried = groups->tried;
    plan->groupings_all = groups->all;
    plan->grouping_count = groups->best_count;
    plan->groupings = arena_new_array(&plan->arena, PlanGrouping, (size_t)groups->best_count);
    for (int i = 0; i < groups->best_count; i++) {
        PlanGrouping *one = &plan->groupings[i];
        *one = groups->best[i];
        one->device = arena_new_array(&plan->arena, const char *, (size_t)one->device_count);
        one->group = arena_copy(&plan->arena, one->group, (size_t)one->device_count * sizeof *one->group);
        for (int d = 0; d < one->device_count; d++)
            one->device[d] = arena_string(&plan->arena, groups->best[i].device[d]);
    }
}

/* The likeliest number of groups that is worth simulating, after those tried; 0: there is none. The estimate
 * takes pipelines as filled, and sums as if they began at the end, so some look slower than others that they beat. */
static int next_likely(const ReplicaGroups *groups, const int *tried, int tried_count)
{
    int64_t most = groups->step_ns + groups->step_ns / 2;
    int count = 0;
    for (int i = 0; i < groups->best_count; i++) {
        const PlanGrouping *one = &groups->best[i];
        bool again = one->count < 2;
        for (int t = 0; t < tried_count; t++) again |= tried[t] == one->count;
        if (again || one->step_ns > most) continue;
        most = one->step_ns;
        count = one->count;
    }
    return count;
}

enum { MOST_SIMULATED = 8 };

/* Two or three groups of which the first does more than its part: devices of a kind often suit each other. */
static void offer_unequal(ReplicaSearch *search, const Costs *costs, const PlanRequest *request, int wanted)
{
    enum { MOST_GROUPS = 3, STEP = 5, MOST_PERCENT = 90 };
    int total = request->microbatches > 0 ? request->microbatches : costs->microbatches;
    for (int count = 2; count <= MOST_GROUPS && count <= total; count++)
        for (int percent = 100 / count + STEP; percent <= MOST_PERCENT && (!wanted || wanted == count); percent += STEP)
            replica_search_offer_unequal(search, count, percent / 100.0, total);
}

/* From the likely numbers of groups, or the one that is wanted. `costs` are without samples of rows. */
static ReplicaSearch *start_search(const Costs *costs, const PlanRequest *request, int wanted,
                                   const ReplicaGroups *compared)
{
    FREED_WITH(arena_free) Arena arena = {0};
    ReplicaSearch *search = replica_search_open(costs, request, wanted);
    int tried[MOST_SIMULATED], count = 0;
    if (wanted) replica_search_offer(search, compared);
    for (; !wanted && count < MOST_SIMULATED && (tried[count] = next_likely(compared, tried, count)) > 0; count++) {
        ReplicaGroups groups =
            tried[count] == compared->count ? *compared : choose_groups(costs, request, tried[count], &arena);
        replica_search_offer(search, &groups);
    }
    if (costs->device_count > GROUPS_TRY_ALL) offer_unequal(search, costs, request, wanted);
    return search;
}

/* The fastest by simulation, and what local search makes of it. */
static ReplicaGroups end_search(ReplicaSearch *search, Arena *arena)
{
    replica_search_improve(search);
    ReplicaGroups best = replica_search_best(search, arena);
    replica_search_close(search);
    return best;
}

static ReplicaGroups search_groups(const Costs *costs, const PlanRequest *request, int wanted,
                                   const ReplicaGroups *compared, Arena *arena)
{
    Costs whole = *costs;
    whole.rows = (RowSamples){0};
    return end_search(start_search(&whole, request, wanted, compared), arena);
}

typedef struct Fastest {
    Plan *plan;
    bool found, thorough; /* thorough: there is time for more than the likely numbers of groups */
    const Costs *costs;
    const PlanRequest *request;
    Diagnostics *diagnostics; /* the plan's */
} Fastest;

/* Plans and simulates the groups with a schedule, and keeps the plan if it is faster. */
static void offer_scheduled(Fastest *f, const ReplicaGroups *groups, PlanSchedule schedule)
{
    Diagnostics said = {0};
    PlanRequest request = *f->request;
    Plan other;
    request.schedule = schedule;
    bool made = groups->count > 1 && plan_make_grouped(&other, f->costs, &request, groups, &said);
    bool better = made && (!f->found || plan_chosen_ns(&other) < plan_chosen_ns(f->plan));
    if (made && f->found) plan_free(better ? f->plan : &other);
    if (better) {
        *f->plan = other;
        f->found = true;
        diagnostics_free(f->diagnostics);
        *f->diagnostics = said;
    } else {
        diagnostics_free(&said);
    }
}

/* What is best for each pipeline need not be for all of them, so one schedule for all is tried, too. */
static void offer_groups(Fastest *f, const ReplicaGroups *groups)
{
    offer_scheduled(f, groups, f->request->schedule);
    if (f->request->schedule == PLAN_AUTO && f->thorough) offer_scheduled(f, groups, PLAN_ZB);
}

/* Whether leaving out a device is the same question for one before it. */
static bool has_like(const Costs *costs, int device)
{
    const DeviceCost *a = &costs->devices[device];
    for (const DeviceCost *b = costs->devices; b < a; b++)
        if (b->slowdown == a->slowdown && b->memory_bytes == a->memory_bytes && b->region == a->region &&
            b->site == a->site && b->forward_s == a->forward_s && b->backward_s == a->backward_s &&
            b->update_s == a->update_s)
            return true;
    return false;
}

/* The best groups without a device, where the estimate says that they are no slower: which of those that look alike is
 * the fastest, only simulation tells, and what a user may ask with a device less is not to be faster. */
static void offer_without(Fastest *f, const ReplicaGroups *compared, int device, ReplicaSearch *search)
{
    enum { PART = 20 };
    Arena arena = {0};
    PlanRequest fewer = *f->request;
    const char **without = arena_new_array(&arena, const char *, (size_t)fewer.without_count + 1);
    for (int i = 0; i < fewer.without_count; i++) without[i] = fewer.without[i];
    without[fewer.without_count++] = f->costs->devices[device].name;
    fewer.without = without;
    ReplicaGroups best = choose_groups(f->costs, &fewer, 0, &arena);
    for (int i = 0; i < best.best_count; i++) {
        if (best.best[i].count < 2) continue;
        ReplicaGroups groups = choose_groups(f->costs, &fewer, best.best[i].count, &arena);
        replica_search_offer(search, &groups);
        if (best.best[i].step_ns - compared->step_ns <= compared->step_ns / PART) offer_groups(f, &groups);
    }
    arena_free(&arena);
}

/* The likely numbers of groups, and what local search finds from these, and from groups with a device less. */
static void offer_all(Fastest *f, const ReplicaGroups *compared)
{
    FREED_WITH(arena_free) Arena arena = {0};
    const PlanRequest *request = f->request;
    int tried[GROUPS_TRY_ALL], count = 0, most = is_hurried(request) ? 1 : GROUPS_TRY_ALL;
    while (count < most && (tried[count] = next_likely(compared, tried, count)) > 0) {
        ReplicaGroups groups =
            tried[count] == compared->count ? *compared : choose_groups(f->costs, request, tried[count], &arena);
        offer_groups(f, &groups);
        count++;
    }
    if (count == 0 || !f->thorough) return;
    Costs whole = *f->costs;
    whole.rows = (RowSamples){0};
    ReplicaSearch *search = start_search(&whole, request, 0, compared);
    for (int d = 0; d < f->costs->device_count; d++)
        if (!plan_request_without(request, f->costs->devices[d].name) && !has_like(f->costs, d))
            offer_without(f, compared, d, search);
    ReplicaGroups groups = end_search(search, &arena);
    offer_groups(f, &groups);
}

/* The groups of the plan, if there is one, with the schedule that is asked for now. */
static void offer_again(Fastest *f)
{
    if (!f->found) return;
    FREED_WITH(arena_free) Arena arena = {0};
    ReplicaGroups groups = {.count = f->plan->replica_count};
    groups.group_of = arena_new_array(&arena, int, (size_t)f->costs->device_count);
    groups.microbatches = arena_new_array(&arena, int, (size_t)groups.count);
    replica_groups_of(f->plan, f->costs, groups.group_of);
    for (int r = 0; r < groups.count; r++) groups.microbatches[r] = f->plan->replicas[r].microbatches;
    offer_groups(f, &groups);
}

/* What is found without split backwards, with them, too: without, gradients end earlier, so that sums may save more
 * than split backwards do, which no pipeline sees alone. */
static void offer_unsplit(Fastest *f)
{
    FREED_WITH(arena_free) Arena arena = {0};
    const PlanRequest *asked = f->request;
    PlanRequest unsplit = *asked;
    unsplit.schedule = PLAN_SEARCHED;
    ReplicaGroups groups = choose_groups(f->costs, &unsplit, 0, &arena);
    f->request = &unsplit;
    offer_again(f);
    offer_all(f, &groups);
    f->request = asked;
    offer_again(f);
}

/* The fastest of several pipelines of a few devices, by simulation. False: none was found. */
static bool make_fastest(Plan *plan, const Costs *costs, const PlanRequest *request, const ReplicaGroups *compared,
                         Diagnostics *diagnostics)
{
    Fastest fastest = {.plan = plan, .costs = costs, .request = request, .diagnostics = diagnostics};
    fastest.thorough = !is_hurried(request) && !request->compared;
    offer_all(&fastest, compared);
    if (request->schedule != PLAN_AUTO || !fastest.thorough) return fastest.found;
    offer_unsplit(&fastest);
    if (fastest.found) plan->schedule_forced = false;
    for (int r = 0; fastest.found && r < plan->replica_count; r++) plan->replicas[r].pipeline->schedule_forced = false;
    return fastest.found;
}

/* Whether one pipeline takes so much longer that it need not be searched for. */
static bool is_far(const Costs *costs, const PlanRequest *request, const ReplicaGroups *groups)
{
    enum { PART = 5 };
    PlanRequest rough = *request;
    Plan plan = {0};
    Diagnostics ignored = {0};
    rough.rough = rough.compared = true;
    if (groups->count < 2) return false;
    bool far =
        !plan_make(&plan, costs, &rough, &ignored) || plan_chosen_ns(&plan) - groups->step_ns > groups->step_ns / PART;
    plan_free(&plan);
    diagnostics_free(&ignored);
    return far;
}

/* One pipeline, or the best grouping. */
static bool choose(Plan *plan, const Costs *costs, const PlanRequest *request, Diagnostics *diagnostics)
{
    FREED_WITH(arena_free) Arena arena = {0};
    Diagnostics single = {0}, several = {0};
    ReplicaGroups compared = choose_groups(costs, request, 0, &arena), fastest = {0};
    PlanRequest share = *request;
    Plan other;
    bool searched = are_searched(costs, request), open = request->microbatches == PLAN_MICROBATCHES_AUTO;
    if (next_likely(&compared, NULL, 0) > 0) share.time_limit_s /= 2;
    if (searched && !open) fastest = search_groups(costs, request, 0, &compared, &arena);
    bool skips = searched && !open && is_far(costs, request, &fastest);
    bool found = !skips && plan_make(plan, costs, &share, &single);
    if (open && found) {
        share.microbatches = plan->microbatches; /* for a step of as many rows */
        compared = choose_groups(costs, &share, 0, &arena);
        if (searched) fastest = search_groups(costs, &share, 0, &compared, &arena);
    }
    bool grouped = searched ? fastest.count > 1 && make_searched(&other, costs, &share, &fastest, &several)
                            : make_fastest(&other, costs, &share, &compared, &several);
    if (skips && !grouped) found = plan_make(plan, costs, &share, &single);
    int64_t least = found && grouped ? plan_chosen_ns(plan) / 100 * REPLICAS_GAIN_PERCENT : 0;
    bool better = grouped && (!found || plan_chosen_ns(&other) < plan_chosen_ns(plan) - least);
    if (better) {
        plan_free(plan);
        *plan = other;
    } else if (grouped) {
        plan_free(&other);
    }
    /* Who did not ask reads of groupings where one was taken. */
    if (better || (found && request->replicas == PLAN_REPLICAS_AUTO)) record(plan, &compared);
    diagnostics_append(diagnostics, better ? &several : &single);
    diagnostics_free(&single);
    diagnostics_free(&several);
    return found || better;
}

static bool knows_gradients(const Costs *costs)
{
    for (int l = 0; l < costs->layer_count; l++)
        if (costs->layers[l].gradient_bytes > 0) return true;
    return costs->region_count == 0;
}

/* How many are best, where that can be asked. */
static bool make_best(Plan *plan, const Costs *costs, const PlanRequest *request, Diagnostics *diagnostics)
{
    bool asked = request->replicas == PLAN_REPLICAS_AUTO;
    PlanAllocator allocate = request->quick ? PLAN_OPTIMAL : request->allocate; /* which stands for it then */
    const char *reason =
        replicas_excluded(costs, request->codecs, allocate, request->objective, request->pin_count > 0);
    if (!reason && !knows_gradients(costs)) reason = "the costs do not say how large gradients are (gradient_bytes)";
    if (reason && asked)
        diagnostics_warning(diagnostics, PLACE_NONE, NULL, "--replicas auto takes one pipeline: %s", reason);
    return reason ? plan_make(plan, costs, request, diagnostics) : choose(plan, costs, request, diagnostics);
}

/* So many as were asked for. */
static bool make_several(Plan *plan, const Costs *costs, const PlanRequest *request, Diagnostics *diagnostics)
{
    int count = request->replicas, devices = 0;
    int total = request->microbatches > 0 ? request->microbatches : costs->microbatches;
    Arena arena = {0};
    const char *reason = replicas_refused(costs, request->codecs);
    for (int d = 0; d < costs->device_count; d++) devices += !plan_request_without(request, costs->devices[d].name);
    if (reason)
        return usage_error(diagnostics, "leave out --replicas, or give --replicas 1", "--replicas %d: %s", count,
                           reason);
    if (!knows_gradients(costs))
        diagnostics_warning(diagnostics, (Place){.file = costs->name}, "give gradient_bytes of layers",
                            "the costs do not say how large gradients are: summing them over replicas counts for "
                            "nothing");
    if (count > devices)
        return diagnostics_error(diagnostics, EXIT_NO_PLAN, PLACE_NONE, "each replica needs a device of its own",
                                 "%d replicas need more than the %d devices that there are", count, devices);
    if (total < count)
        return diagnostics_error(diagnostics, EXIT_NO_PLAN, PLACE_NONE,
                                 "--replicas with a smaller number, or more micro-batches",
                                 "%d replicas cannot share %d micro-batch%s", count, total, total > 1 ? "es" : "");
    ReplicaGroups groups = choose_groups(costs, request, count, &arena), found = {0};
    if (groups.count > 0 && are_searched(costs, request)) found = search_groups(costs, request, count, &groups, &arena);
    bool ok = groups.count > 0
                  ? (found.count > 0 ? make_searched(plan, costs, request, &found, diagnostics)
                                     : plan_make_grouped(plan, costs, request, &groups, diagnostics))
                  : diagnostics_error(diagnostics, EXIT_NO_PLAN, PLACE_NONE, "try fewer replicas",
                                      "no %d groups of devices were found that each hold the model", count);
    if (ok) record(plan, &groups);
    arena_free(&arena);
    return ok;
}

bool plan_make_replicas(Plan *plan, const Costs *costs, const PlanRequest *request, Diagnostics *diagnostics)
{
    /* Rows that share lines say how many micro-batches there are: plan_make refuses another number. */
    bool wrong =
        costs->rows.microbatch_kinds && request->microbatches > 0 && request->microbatches != costs->microbatches;
    memset(plan, 0, sizeof *plan);
    if (request->replicas == 1 || wrong) return plan_make(plan, costs, request, diagnostics);
    return (request->replicas > 1 ? make_several : make_best)(plan, costs, request, diagnostics);
}
