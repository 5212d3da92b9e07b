#include "partitioner/planner/advice.h"

#include <stdlib.h>
#include <string.h>

#include "partitioner/planner/fastest.h"
#include "partitioner/question.h"
#include "partitioner/sizes.h"
#include "partitioner/solve/keeper_recompute.h"

typedef struct Adviser {
    const Plan *plan;
    Costs costs;  /* those of the plan without the devices it had to leave out; shares everything else */
    int *rank_of; /* [device]: of the plan, or -1 */
    int *device_of_stage;
    Arena arena, *out;
    Advice *advice;
    int effort; /* neighbourhoods for each of the questions that matter in the end */
    Watch watch;
    double deadline; /* on the watch */
} Adviser;

enum { MOST_KINDS = 12, MOST_EXAMINED = 4, MOST_LINKS = 4, FINALISTS = 3 };

/* ---- the plan's own cluster ---- */

static void prepare(Adviser *a, const Costs *asked)
{
    a->costs = question_costs(a->plan, asked, &a->arena);
    a->rank_of = arena_new_array(&a->arena, int, (size_t)a->costs.device_count + 1);
    a->device_of_stage = arena_new_array(&a->arena, int, (size_t)a->plan->stage_count);
    for (int d = 0; d <= a->costs.device_count; d++) a->rank_of[d] = -1;
    for (int k = 0; k < a->plan->stage_count; k++) {
        int device = costs_find_device(&a->costs, a->plan->stages[k].device);
        a->device_of_stage[k] = device;
        a->rank_of[device] = a->plan->stages[k].rank;
    }
}

/* Of a device that is used; the one that keeps inputs and labels may have two stages. */
static int64_t work_on(const Adviser *a, int device) { return plan_rank_work(a->plan, a->rank_of[device]); }

static int first_stage_on(const Adviser *a, int device) { return a->plan->ranks[a->rank_of[device]].stages[0]; }

static bool is_pinned(const Adviser *a, int device)
{
    for (int i = 0; i < a->plan->pin_count; i++)
        if (strcmp(a->plan->pins[i].device, a->costs.devices[device].name) == 0) return true;
    return false;
}

static bool create_problem(Adviser *a, const Costs *costs, Problem *problem)
{
    if (!question_problem(a->plan, costs, &a->watch, problem)) return false;
    bool chosen = !a->plan->schedule_forced && problem->schedule != PLAN_GPIPE;
    if (chosen) problem->schedule = PLAN_AUTO; /* as it was asked for */
    return true;
}

/* As plan_make does: the best by the objective, then the fastest in simulation. Only tiny problems are searched for
 * it; where orders are searched for, too, which takes long, only among allocations that are as good by the objective,
 * unless steps are limited in flight or longer than their objective. */
static Replanned plan_again(const Adviser *a, const Problem *problem, Allocation *allocation, int effort)
{
    const char *name = costs_keeper(problem->costs);
    int keeper = name ? costs_find_device(problem->costs, name) : -1;
    FREED_WITH(arena_free) Arena arena = {0};
    Allocation best = allocation_create(&arena, problem);
    Fastest fastest = fastest_create(problem, keeper, a->deadline, &best);
    bool limited = problem->in_flight_limit > 0, all = limited || !plan_schedule_traits(problem->schedule).is_searched;
    if (limited) fastest_offer(&fastest, allocation);
    Replanned found = keeper >= 0 ? keeper_replan(problem, keeper, allocation, effort, a->deadline)
                                  : replan(problem, allocation, effort, a->deadline);
    if (found.found && problem->objective == PLAN_OBJECTIVE_STEP) {
        fastest.limits &= limited;
        fastest_offer(&fastest, allocation);
        if (!all && fastest.step_ns <= found.value_ns) fastest.most_ns = found.value_ns;
        if (size_is_tiny(problem)) fastest_search(&fastest);
        allocation_copy(allocation, &best);
        AllocationValue value = allocation_settle(problem, allocation);
        found.value_ns = allocation_objective(problem, &value);
        found.simulated_ns = fastest.step_ns;
        found.exact = fastest.complete && fastest.most_ns == INT64_MAX;
    }
    return found;
}

/* The plan as an allocation; devices are numbered as in a->costs. */
static void start_from_plan(const Adviser *a, Allocation *allocation)
{
    allocation->stage_count = a->plan->stage_count;
    for (int k = 0; k < a->plan->stage_count; k++) {
        allocation->device[k] = a->device_of_stage[k];
        allocation->end[k] = a->plan->stages[k].last_layer + 1;
    }
}

static bool is_better(const Replanned *a, const Replanned *b)
{
    return a->found != b->found ? a->found : replanned_ns(a) < replanned_ns(b);
}

/* Questions that are still to be asked then stay unasked: what was found so far is worth reporting. */
static bool is_late(Adviser *a) { return watch_passed(&a->watch, a->deadline); }

/* ---- why not one device fewer ---- */

/* Plans again without stage `gone`'s device: its layers go to the stage before, the one after, or `instead`. */
static Replanned hand_over(Adviser *a, const Problem *problem, int gone, int to_stage, int instead, int effort)
{
    FREED_WITH(arena_free) Arena arena = {0};
    Allocation all = allocation_create(&arena, problem);
    int removed = a->device_of_stage[gone];
    for (int k = 0; k < a->plan->stage_count; k++) {
        int end = a->plan->stages[k].last_layer + 1, device = k == gone ? instead : a->device_of_stage[k];
        if (k == gone && instead < 0) {
            if (to_stage < k) all.end[all.stage_count - 1] = end; /* else the next stage starts earlier */
            continue;
        }
        all.device[all.stage_count] = device > removed ? device - 1 : device;
        all.end[all.stage_count++] = end;
    }
    return plan_again(a, problem, &all, effort);
}

static Replanned plan_without(Adviser *a, int device, int effort)
{
    Costs fewer = a->costs;
    Problem problem;
    Replanned best = {0};
    int gone = first_stage_on(a, device), unused = 0;
    FREED_WITH(arena_free) Arena arena = {0};
    fewer.devices = arena_copy(&arena, a->costs.devices, (size_t)a->costs.device_count * sizeof *fewer.devices);
    memmove(fewer.devices + device, fewer.devices + device + 1,
            (size_t)(a->costs.device_count - device - 1) * sizeof *fewer.devices);
    fewer.device_count--;
    if (fewer.device_count > 0 && create_problem(a, &fewer, &problem)) {
        for (int side = -1; side <= 1; side += 2) {
            if (best.exact || gone + side < 0 || gone + side >= a->plan->stage_count) continue;
            Replanned found = hand_over(a, &problem, gone, gone + side, -1, effort);
            if (is_better(&found, &best)) best = found;
            best.exact = found.exact;
        }
        for (int d = 0; d < a->costs.device_count && unused < MOST_EXAMINED && !best.exact; d++) {
            if (a->rank_of[d] >= 0) continue;
            Replanned found = hand_over(a, &problem, gone, gone, d, effort);
            if (is_better(&found, &best)) best = found;
            best.exact = found.exact;
            unused++;
        }
        problem_free(&problem);
    } else {
        best.exact = fewer.device_count == 0;
    }
    /* Fewer devices make no better plans, so a plan at the bound for all devices is the optimum. */
    if (best.found && a->plan->objective == PLAN_OBJECTIVE_PERIOD && best.value_ns <= a->plan->lower_bound_ns)
        best.exact = true;
    return best;
}

static int by_cost(const void *a, const void *b)
{
    const AdviceWithout *x = a, *y = b;
    if (x->plan.found != y->plan.found) return x->plan.found ? -1 : 1;
    int64_t one = replanned_ns(&x->plan), other = replanned_ns(&y->plan);
    if (one != other) return one < other ? -1 : 1;
    return strcmp(x->device, y->device);
}

/* Of every kind of device in use the one with the least to do; devices that a pin names are needed anyway. */
static int choose_kinds(const Adviser *a, const Problem *problem, int *chosen, int *alike, int most)
{
    int count = 0;
    for (int t = 0; t < problem->type_count; t++) {
        int best = -1, used = 0;
        for (int d = 0; d < problem->device_count; d++) {
            if (problem->type_of[d] != t || a->rank_of[d] < 0 || is_pinned(a, d)) continue;
            if (best < 0 || work_on(a, d) < work_on(a, best)) best = d;
            used++;
        }
        if (best < 0) continue;
        int at = count;
        while (at > 0 && work_on(a, best) < work_on(a, chosen[at - 1])) at--;
        if (at == most) continue;
        if (count == most) count--;
        memmove(chosen + at + 1, chosen + at, (size_t)(count - at) * sizeof *chosen);
        memmove(alike + at + 1, alike + at, (size_t)(count - at) * sizeof *alike);
        chosen[at] = best;
        alike[at] = used;
        count++;
    }
    return count;
}

static void ask_without(Adviser *a, const Problem *problem)
{
    Advice *advice = a->advice;
    int chosen[MOST_KINDS + 1], alike[MOST_KINDS + 1];
    int count = choose_kinds(a, problem, chosen, alike, size_is_large(problem) ? 2 : MOST_KINDS);
    advice->without = arena_new_array(a->out, AdviceWithout, (size_t)count + 1);
    for (int i = 0; i < count && !is_late(a); i++)
        advice->without[advice->without_count++] = (AdviceWithout){
            arena_string(a->out, a->costs.devices[chosen[i]].name), alike[i], plan_without(a, chosen[i], 0)};
    count = advice->without_count;
    qsort(advice->without, (size_t)count, sizeof *advice->without, by_cost);
    /* The first few are those that a reader goes by, so they are planned again with more work. */
    for (int i = 0; i < count && i < FINALISTS && a->effort > 0 && !is_late(a); i++) {
        AdviceWithout *without = &advice->without[i];
        if (without->plan.exact) continue;
        Replanned again = plan_without(a, costs_find_device(&a->costs, without->device), a->effort);
        if (is_better(&again, &without->plan)) without->plan = again;
    }
    qsort(advice->without, (size_t)count, sizeof *advice->without, by_cost);
}

/* ---- what would help most ---- */

static void scale(double *times, int count, double factor)
{
    for (int l = 0; times && l < count; l++) times[l] *= factor;
}

static double *copy_times(Arena *arena, const double *times, int count)
{
    return times ? arena_copy(arena, times, (size_t)count * sizeof *times) : NULL;
}

static void apply(const Adviser *a, const ClusterChange *change, Costs *costs, Arena *arena)
{
    int n = a->costs.device_count, layers = a->costs.layer_count;
    *costs = a->costs;
    costs->devices = arena_new_array(arena, DeviceCost, (size_t)n + 1);
    memcpy(costs->devices, a->costs.devices, (size_t)n * sizeof *costs->devices);
    DeviceCost *device = &costs->devices[change->device];
    size_t pairs = (size_t)costs->region_count * (size_t)costs->region_count, regions = (size_t)costs->region_count;
    size_t there = (size_t)change->from * regions + (size_t)change->to,
           back = (size_t)change->to * regions + (size_t)change->from;
    switch (change->kind) {
    case ADVICE_MEMORY:
        if (__builtin_mul_overflow(device->memory_bytes, 2, &device->memory_bytes)) device->memory_bytes = INT64_MAX;
        break;
    case ADVICE_SPEED:
        device->slowdown /= 2;
        device->forward_s = copy_times(arena, device->forward_s, layers);
        device->backward_s = copy_times(arena, device->backward_s, layers);
        device->update_s = copy_times(arena, device->update_s, layers);
        scale(device->forward_s, layers, 0.5);
        scale(device->backward_s, layers, 0.5);
        scale(device->update_s, layers, 0.5);
        break;
    case ADVICE_DEVICE:
        costs->devices[n] = *device;
        costs->devices[n].name = "another";
        costs->device_count++;
        break;
    case ADVICE_BANDWIDTH:
        costs->bandwidth_Bps = arena_copy(arena, costs->bandwidth_Bps, pairs * sizeof *costs->bandwidth_Bps);
        costs->bandwidth_Bps[there] *= 2;
        if (back != there) costs->bandwidth_Bps[back] *= 2;
        break;
    case ADVICE_LATENCY:
        costs->latency_s = arena_copy(arena, costs->latency_s, pairs * sizeof *costs->latency_s);
        costs->latency_s[there] /= 2;
        if (back != there) costs->latency_s[back] /= 2;
        break;
    case ADVICE_MICROBATCHES: /* not of the cluster */
    case ADVICE_KIND_COUNT: break;
    }
}

/* What the new plan takes of a device's memory. */
static int64_t memory_on(const Problem *p, const Allocation *all, int device)
{
    int64_t bytes = 0;
    for (int k = 0; k < all->stage_count; k++) {
        int start = allocation_start(all, k), to_end = all->stage_count - k, flights = problem_in_flight(p, to_end);
        if (all->device[k] != device) continue;
        bytes += allocation_recomputes(p, all, k) ? problem_recompute_bytes(p, start, all->end[k], flights)
                                                  : problem_stage_bytes(p, start, all->end[k], flights);
    }
    return bytes;
}

static bool examine(Adviser *a, const ClusterChange *change, int effort, AdviceChange *result)
{
    FREED_WITH(arena_free) Arena arena = {0};
    Costs costs;
    Problem problem;
    bool helps = false;
    apply(a, change, &costs, &arena);
    if (create_problem(a, &costs, &problem)) {
        Allocation all = allocation_create(&arena, &problem);
        start_from_plan(a, &all);
        Replanned plan = plan_again(a, &problem, &all, effort);
        int64_t gain = plan_chosen_ns(a->plan) - replanned_ns(&plan);
        helps = plan.found && gain > 0;
        *result = (AdviceChange){.kind = change->kind, .plan = plan, .gain_ns = gain, .change = *change};
        if (change->kind <= ADVICE_DEVICE)
            result->device = arena_string(a->out, a->costs.devices[change->device].name);
        else {
            result->from = arena_string(a->out, a->costs.region_names[change->from]);
            result->to = arena_string(a->out, a->costs.region_names[change->to]);
        }
        if (change->kind == ADVICE_MEMORY) {
            result->memory_bytes = memory_on(&problem, &all, change->device);
            result->limit_bytes = a->costs.devices[change->device].memory_bytes;
            helps &= result->memory_bytes > result->limit_bytes;
        }
        problem_free(&problem);
    }
    return helps;
}

/* How promising it is to change this device: the fuller its memory, the longer its stage, the faster it is. */
static double promise(const Adviser *a, const Problem *problem, AdviceKind kind, int device)
{
    if (kind == ADVICE_DEVICE) return -(double)problem_work(problem, problem->type_of[device], 0, problem->layer_count);
    if (a->rank_of[device] < 0) return 0;
    if (kind == ADVICE_SPEED) return (double)work_on(a, device);
    int64_t limit = a->plan->stages[first_stage_on(a, device)].memory_limit_bytes;
    return limit > 0 ? (double)plan_rank_memory(a->plan, a->rank_of[device]) / (double)limit : 0;
}

/* The most promising device of each of the most promising kinds. */
static int choose_devices(const Adviser *a, const Problem *problem, AdviceKind kind, int *chosen, int most)
{
    int count = 0;
    for (int t = 0; t < problem->type_count; t++) {
        int best = problem->first_device[t];
        if (kind == ADVICE_MEMORY && (!problem->has_limits || problem->type_limit[t] == COSTS_NO_LIMIT)) continue;
        for (int d = best + 1; d < problem->device_count; d++)
            if (problem->type_of[d] == t && promise(a, problem, kind, d) > promise(a, problem, kind, best)) best = d;
        int at = count;
        while (at > 0 && promise(a, problem, kind, best) > promise(a, problem, kind, chosen[at - 1])) at--;
        if (at == most) continue;
        if (count == most) count--;
        memmove(chosen + at + 1, chosen + at, (size_t)(count - at) * sizeof *chosen);
        chosen[at] = best;
        count++;
    }
    return count;
}

/* The links that the plan uses, the busiest first. */
static int choose_links(const Adviser *a, ClusterChange *chosen)
{
    const Plan *plan = a->plan;
    int count = 0;
    int64_t busy[MOST_LINKS + 1];
    for (int k = 0; k < plan->link_count && a->costs.region_count > 0; k++) {
        int from = a->costs.devices[a->device_of_stage[k]].region,
            to = a->costs.devices[a->device_of_stage[k + 1]].region, known = 0;
        const PlanLink *link = &plan->links[k];
        int64_t time = link->transfer_ns[0] + link->transfer_ns[1] + link->latency_ns[0] + link->latency_ns[1];
        if (time == 0) continue;
        while (known < count && !((chosen[known].from == from && chosen[known].to == to) ||
                                  (chosen[known].from == to && chosen[known].to == from)))
            known++;
        if (known < count) continue;
        int at = count;
        while (at > 0 && time > busy[at - 1]) at--;
        if (at == MOST_LINKS) continue;
        if (count == MOST_LINKS) count--;
        memmove(chosen + at + 1, chosen + at, (size_t)(count - at) * sizeof *chosen);
        memmove(busy + at + 1, busy + at, (size_t)(count - at) * sizeof *busy);
        chosen[at] = (ClusterChange){.from = from, .to = to};
        busy[at] = time;
        count++;
    }
    return count;
}

static int by_gain(const void *a, const void *b)
{
    const AdviceChange *x = a, *y = b;
    if (x->gain_ns != y->gain_ns) return x->gain_ns > y->gain_ns ? -1 : 1;
    return (int)x->kind - (int)y->kind;
}

/* The best of each kind first, then whatever else is best, until there are enough; in the order of their gains. */
static void take_best(Advice *advice, AdviceChange *all, int count)
{
    bool taken[ADVICE_KIND_COUNT] = {false};
    qsort(all, (size_t)count, sizeof *all, by_gain);
    for (int repeated = 0; repeated < 2; repeated++)
        for (int i = 0; i < count && advice->change_count < ADVICE_CHANGES; i++) {
            if (taken[all[i].kind] != repeated || all[i].gain_ns == 0) continue;
            taken[all[i].kind] = true;
            advice->changes[advice->change_count++] = all[i];
            all[i].gain_ns = 0;
        }
    qsort(advice->changes, (size_t)advice->change_count, sizeof *advice->changes, by_gain);
}

static void look_closer(Adviser *a, AdviceChange *results, int count)
{
    qsort(results, (size_t)count, sizeof *results, by_gain);
    for (int i = 0; i < count && i < 2 * FINALISTS && a->effort > 0; i++) {
        AdviceChange again;
        if (results[i].plan.exact || is_late(a) || !examine(a, &results[i].change, a->effort, &again)) continue;
        if (again.gain_ns > results[i].gain_ns) results[i] = again;
    }
}

static void ask_changes(Adviser *a, const Problem *problem)
{
    AdviceChange results[3 * MOST_EXAMINED + 2 * MOST_LINKS];
    ClusterChange links[MOST_LINKS + 1];
    int count = 0, chosen[MOST_EXAMINED + 1], most = size_is_large(problem) ? 1 : MOST_EXAMINED;
    for (AdviceKind kind = ADVICE_MEMORY; kind <= ADVICE_DEVICE; kind++) {
        int devices = choose_devices(a, problem, kind, chosen, most);
        for (int i = 0; i < devices && !is_late(a); i++) {
            count += examine(a, &(ClusterChange){.kind = kind, .device = chosen[i]}, 0, &results[count]);
            a->advice->tried++;
        }
    }
    int link_count = choose_links(a, links);
    for (int i = 0; i < link_count && i < most && !is_late(a); i++)
        for (AdviceKind kind = ADVICE_BANDWIDTH; kind <= ADVICE_LATENCY; kind++) {
            links[i].kind = kind;
            count += examine(a, &links[i], 0, &results[count]);
            a->advice->tried++;
        }
    look_closer(a, results, count);
    take_best(a->advice, results, count);
}

/* Every device has one stage, but the keeper of inputs and labels may have the first and the last. */
static bool has_known_shape(const Plan *plan, const Costs *costs)
{
    const PlanStage *last = &plan->stages[plan->stage_count - 1];
    bool both_ends = plan->stage_count > 1 && last->rank == plan->stages[0].rank && costs_keeper(costs);
    return plan->rank_count == plan->stage_count - both_ends;
}

void advice_make(Advice *advice, const Plan *plan, const Costs *costs, double deadline)
{
    *advice = (Advice){0};
    static const double COUNTED_SECONDS = 20;
    Adviser a = {
        .plan = plan, .out = &advice->arena, .advice = advice, .watch.counted = deadline == 0, .deadline = deadline};
    if (deadline == 0) a.deadline = watch_seconds(&a.watch) + COUNTED_SECONDS;
    Problem problem;
    if (plan->replica_count > 1 || plan->allocator < PLAN_HEURISTIC || !has_known_shape(plan, costs)) return;
    prepare(&a, costs);
    if (create_problem(&a, &a.costs, &problem)) {
        advice->given = true;
        int allowance = size_is_large(&problem) ? 0 : replan_allowance(&problem);
        a.effort = allowance > 0 ? 1 + allowance / (4 * FINALISTS) : 0;
        ask_without(&a, &problem);
        ask_changes(&a, &problem);
        problem_free(&problem);
    }
    arena_free(&a.arena);
}

void advice_add_microbatches(Advice *advice, const Plan *plan, int64_t rows, int64_t batch, Replanned found)
{
    AdviceChange change = {.kind = ADVICE_MICROBATCHES,
                           .rows = rows,
                           .batch = batch,
                           .plan = found,
                           .gain_ns = plan_chosen_ns(plan) - replanned_ns(&found)};
    int i = advice->change_count++;
    for (; i > 0 && advice->changes[i - 1].gain_ns < change.gain_ns; i--) advice->changes[i] = advice->changes[i - 1];
    advice->changes[i] = change;
    advice->tried++;
}

void advice_free(Advice *advice)
{
    arena_free(&advice->arena);
    *advice = (Advice){0};
}
