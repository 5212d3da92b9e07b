#include "partitioner/planner/fastest.h"

#include <math.h>
#include <string.h>

#include "base/integers.h"
#include "partitioner/schedule/schedule.h"
#include "partitioner/sizes.h"

enum {
    MOST_VISITS = 400000,    /* partial allocations that an enumeration may look at */
    SIMULATED_PIECES = 4000, /* ns that a piece of work of a step counts: it is laid out in some forty orders */
    LIKELY_VISITS = 400000,  /* partial allocations that a search for the likeliest looks at, about */
    PAIR_VISITS = 400000,    /* the same for each pair of devices that is left out */
    VISIT = 100,             /* ns that each of them counts */
    LIKELY_SIMULATED = 100,  /* of the likeliest */
};

Fastest fastest_create(const Problem *problem, int keeper, double deadline, Allocation *allocation)
{
    return (Fastest){.problem = problem,
                     .keeper = keeper,
                     .most_ns = INT64_MAX,
                     .limits = problem->schedule == PLAN_AUTO && problem->level_limit > 0,
                     .restricts = size_has_few_devices(problem),
                     .deadline = deadline,
                     .allocation = allocation,
                     .step_ns = INT64_MAX};
}

/* ---- bounds ---- */

/* Micro-batches of a step; at least the mean's, where steps differ. */
static int64_t rounds_of(const Problem *p) { return (int64_t)p->rounds + 1; }

/* Whether half of a backward can be put off. */
static bool may_split(const Problem *p)
{
    return p->schedule == PLAN_AUTO || plan_schedule_traits(p->schedule).splits_backward;
}

/* A time that no order of the first stages beats, whatever follows after them. Half of a backward that `splits` can be
 * put off until everything is on its way back, where only the first stage's backward, which is never split, counts.
 * *there: when the first micro-batch leaves the last of these stages. */
static int64_t order_bound_of(const Problem *p, const Allocation *a, bool splits, int64_t *there)
{
    int64_t bound = 0, back = 0, n = rounds_of(p);
    *there = 0;
    for (int k = 0; k < a->stage_count; k++) {
        int type = p->type_of[a->device[k]], start = allocation_start(a, k), end = a->end[k];
        int64_t work = problem_work(p, type, start, end), forward = problem_forward(p, type, start, end);
        if (k > 0 && !p->free_links) {
            int from = p->type_region[p->type_of[a->device[k - 1]]], to = p->type_region[type];
            const LinkCharge *link = problem_link(p, start, from, to);
            *there += problem_latency(p, from, to) + link->transfer_ns[0];
            back += problem_latency(p, to, from) + link->transfer_ns[1];
            bound = larger(bound, *there + back + (n - 1) * larger(link->transfer_ns[0], link->transfer_ns[1]));
        }
        bound = larger(bound, *there + n * work + (k > 0 && splits ? 0 : back));
        bound = larger(bound, *there + n * work + problem_update(p, type, start, end));
        *there += forward;
        if (k == 0 || !splits) back += work - forward;
    }
    return bound;
}

/* ---- one allocation ---- */

static void simulate(Fastest *f, const Problem *p, const Allocation *a)
{
    FREED_WITH(plan_free) Plan plan = {0};
    plan_build_candidate(&plan, p, a);
    f->simulated++;
    watch_count(p->watch, SIMULATED_PIECES, 2 * (int64_t)a->stage_count * p->microbatches);
    if (plan.simulated_step_ns < f->step_ns) {
        f->step_ns = plan.simulated_step_ns;
        f->in_flight_limit = p->in_flight_limit;
        if (f->allocation != a) allocation_copy(f->allocation, a);
    }
}

void fastest_offer(Fastest *f, const Allocation *a)
{
    Problem p = *f->problem;
    int64_t there, before = -1;
    if (order_bound_of(&p, a, may_split(&p), &there) >= f->step_ns) return;
    int most = problem_in_flight(&p, a->stage_count), least = f->limits ? 1 : most;
    for (int flights = most; flights >= least; flights--) {
        if (flights < most) problem_limit_in_flight(&p, flights);
        AllocationValue value = allocation_settle(&p, a);
        int64_t objective = allocation_objective(&p, &value);
        if (!value.fits || objective == before) continue;
        if (flights < most || objective <= f->most_ns) simulate(f, &p, a);
        before = objective;
    }
}

/* ---- all of them ---- */

typedef struct Enumeration {
    Fastest *fastest;
    Allocation part;
    bool *used;      /* [device] */
    int64_t *to_end; /* [cut]: the work after it, each layer on the device that is quickest with it */
    double *speed;   /* [type]: how much of that work a device does in a time, at most */
    int *held;       /* [type * layers + cut]: layers after it that a stage can have, at most */
    double free;     /* the speeds of the devices that are not used yet, added up */
    int visits;
} Enumeration;

static bool is_late(const Fastest *f) { return f->deadline > 0 && watch_passed(f->problem->watch, f->deadline); }

/* A time that no completion of the part beats, where backwards are split or not. */
static int64_t bound_of_part(const Enumeration *e, bool splits)
{
    const Problem *p = e->fastest->problem;
    int64_t there, bound = order_bound_of(p, &e->part, splits, &there);
    int keeper = e->fastest->keeper, end = e->part.end[e->part.stage_count - 1];
    double left = e->free + (keeper >= 0 ? e->speed[p->type_of[keeper]] : 0), nothing = 1e-9;
    if (end == p->layer_count) return bound;
    if (left < nothing) return INT64_MAX;
    double rest = (double)rounds_of(p) * (double)e->to_end[end] / left;
    return larger(bound, there + (int64_t)fmin(rest * (1 - nothing), 1e18));
}

/* Whether the part's stages fit, with as many micro-batches in flight as any completion keeps; and whether the other
 * devices can hold the other layers. */
static bool part_fits(const Enumeration *e)
{
    const Problem *p = e->fastest->problem;
    const Allocation *a = &e->part;
    int end = a->end[a->stage_count - 1], rest = p->layer_count - end;
    if (!p->has_limits) return true;
    for (int k = a->stage_count - 1; k >= 0; k--) {
        int to_end = e->fastest->limits ? 1 : a->stage_count - k + (rest > 0);
        if (!problem_stage_fits(p, p->type_of[a->device[k]], allocation_start(a, k), a->end[k], to_end)) return false;
    }
    for (int d = 0; d < p->device_count && rest > 0; d++)
        if (!e->used[d] || d == e->fastest->keeper) rest -= e->held[p->type_of[d] * p->layer_count + end];
    return rest <= 0;
}

/* Of devices that are alike the first one that is not used; with a keeper, it is first and last. */
static bool may_have(const Enumeration *e, int stage, int device)
{
    const Problem *p = e->fastest->problem;
    int keeper = e->fastest->keeper;
    if (device == keeper) return stage == 0 || e->part.device[stage - 1] != keeper;
    if (e->used[device] || (keeper >= 0 && stage == 0)) return false;
    for (int d = 0; d < device; d++)
        if (p->type_of[d] == p->type_of[device] && !e->used[d] && d != keeper) return false;
    return true;
}

static void enumerate(Enumeration *e, int start)
{
    const Problem *p = e->fastest->problem;
    int stage = e->part.stage_count++, keeper = e->fastest->keeper;
    for (int d = 0; d < p->device_count; d++) {
        if (!may_have(e, stage, d)) continue;
        bool closes = d == keeper && stage > 0, was_used = e->used[d];
        e->used[d] = true;
        if (!was_used) e->free -= e->speed[p->type_of[d]];
        e->part.device[stage] = d;
        for (int end = closes ? p->layer_count : start + 1; end <= p->layer_count && e->visits < MOST_VISITS; end++) {
            e->part.end[stage] = end;
            e->visits++;
            if (is_late(e->fastest)) e->visits = MOST_VISITS;
            if (!part_fits(e) || bound_of_part(e, may_split(p)) >= e->fastest->step_ns) continue;
            if (end < p->layer_count)
                enumerate(e, end);
            else if (keeper < 0 || d == keeper)
                fastest_offer(e->fastest, &e->part);
        }
        e->used[d] = was_used;
        if (!was_used) e->free += e->speed[p->type_of[d]];
    }
    e->part.stage_count--;
}

static void find_held(Enumeration *e, Arena *arena)
{
    const Problem *p = e->fastest->problem;
    int layers = p->layer_count;
    e->held = arena_new_array(arena, int, (size_t)(p->type_count * layers));
    for (int t = 0; t < p->type_count; t++)
        for (int start = layers - 1, *held = e->held + t * layers; start >= 0; start--) {
            held[start] = start + 1 < layers ? held[start + 1] : 0;
            for (int end = start + held[start] + 1; end <= layers; end++)
                if (problem_stage_fits(p, t, start, end, 1)) held[start] = end - start;
        }
}

static Enumeration enumeration_create(Fastest *f, Arena *arena)
{
    const Problem *p = f->problem;
    Enumeration e = {.fastest = f, .part = allocation_create(arena, p)};
    e.used = arena_new_array(arena, bool, (size_t)p->device_count);
    e.to_end = arena_new_array(arena, int64_t, (size_t)p->layer_count + 1);
    e.speed = arena_new_array(arena, double, (size_t)p->type_count);
    for (int l = p->layer_count - 1; l >= 0; l--) {
        int64_t least = INT64_MAX;
        for (int t = 0; t < p->type_count; t++)
            if (problem_work(p, t, l, l + 1) < least) least = problem_work(p, t, l, l + 1);
        e.to_end[l] = e.to_end[l + 1] + least;
        for (int t = 0; t < p->type_count; t++) {
            int64_t work = problem_work(p, t, l, l + 1);
            e.speed[t] = fmax(e.speed[t], work > 0 ? (double)least / (double)work : 1);
        }
    }
    for (int d = 0; d < p->device_count; d++) e.free += e.speed[p->type_of[d]];
    if (p->has_limits) find_held(&e, arena);
    return e;
}

static bool enumerate_all(Fastest *f)
{
    FREED_WITH(arena_free) Arena arena = {0};
    Enumeration e = enumeration_create(f, &arena);
    enumerate(&e, 0);
    return e.visits < MOST_VISITS;
}

/* ---- the likeliest of them ---- */

/* Partial allocations up to a cut: those that look fastest, ascending. */
typedef struct Likely {
    int count;
    int64_t *estimate;
    Allocation *part;
} Likely;

static void keep(Likely *likely, int most, int64_t estimate, const Allocation *part)
{
    int at = likely->count;
    if (at == most && estimate >= likely->estimate[most - 1]) return;
    Allocation slot = likely->part[at < most ? likely->count++ : --at];
    for (; at > 0 && likely->estimate[at - 1] > estimate; at--) {
        likely->estimate[at] = likely->estimate[at - 1];
        likely->part[at] = likely->part[at - 1];
    }
    allocation_copy(&slot, part);
    likely->estimate[at] = estimate;
    likely->part[at] = slot;
}

/* By one stage that follows the part; what has a bound of `limit` is hopeless. The estimate is the bound without split
 * backwards: it is nearer to what orders reach. */
static void extend(Enumeration *e, Likely *likely, int most, int64_t limit)
{
    const Problem *p = e->fastest->problem;
    int stage = e->part.stage_count, keeper = e->fastest->keeper, start = stage > 0 ? e->part.end[stage - 1] : 0;
    e->part.stage_count++;
    for (int d = 0; d < p->device_count; d++) {
        if (!may_have(e, stage, d)) continue;
        bool closes = d == keeper && stage > 0, was_used = e->used[d];
        double before = e->free;
        e->part.device[stage] = d;
        if (!was_used) e->free -= e->speed[p->type_of[d]];
        e->used[d] = true;
        for (int end = closes ? p->layer_count : start + 1; end <= p->layer_count; end++) {
            e->part.end[stage] = end;
            e->visits++;
            bool open = end == p->layer_count && keeper >= 0 && d != keeper;
            if (open || !part_fits(e)) continue;
            if (bound_of_part(e, may_split(p)) < limit) keep(&likely[end], most, bound_of_part(e, false), &e->part);
        }
        e->free = before;
        e->used[d] = was_used;
    }
    e->part.stage_count--;
}

/* Two devices and the devices of a region; -1: none. */
typedef struct Without {
    int device, other, region;
} Without;

static bool leaves_out(const Problem *p, Without without, int device)
{
    return device == without.device || device == without.other || p->type_region[p->type_of[device]] == without.region;
}

static void continue_part(Enumeration *e, Without without, const Allocation *part)
{
    const Problem *p = e->fastest->problem;
    allocation_copy(&e->part, part);
    for (int d = 0; d < p->device_count; d++) e->used[d] = leaves_out(p, without, d);
    for (int k = 0; k < part->stage_count; k++) e->used[part->device[k]] = true;
    e->free = 0;
    for (int d = 0; d < p->device_count; d++) e->free += e->used[d] ? 0 : e->speed[p->type_of[d]];
}

/* From cut to cut, those that look fastest go on; simulates the ones that look fastest in the end. */
static void offer_likely(Fastest *f, Without without, int64_t limit)
{
    enum { LEAST = 8 };
    const Problem *p = f->problem;
    FREED_WITH(arena_free) Arena arena = {0};
    Enumeration e = enumeration_create(f, &arena);
    Allocation none = allocation_create(&arena, p);
    int layers = p->layer_count, visits = without.other < 0 ? LIKELY_VISITS : PAIR_VISITS;
    int most = (int)(visits / (size_of(p) * layers / 2 + 1));
    if (most < LEAST) most = LEAST;
    Likely *likely = arena_new_array(&arena, Likely, (size_t)layers + 1);
    for (int c = 0; c <= layers; c++) {
        likely[c].estimate = arena_new_array(&arena, int64_t, (size_t)most);
        likely[c].part = arena_new_array(&arena, Allocation, (size_t)most);
        for (int i = 0; i < most; i++) likely[c].part[i] = allocation_create(&arena, p);
    }
    keep(&likely[0], most, 0, &none);
    for (int c = 0; c < layers && !is_late(f); c++)
        for (int i = 0; i < likely[c].count; i++) {
            continue_part(&e, without, &likely[c].part[i]);
            extend(&e, likely, most, limit);
        }
    watch_count(p->watch, VISIT, e.visits);
    most = f->simulated + LIKELY_SIMULATED;
    for (int i = 0; i < likely[layers].count && f->simulated < most && !is_late(f); i++)
        fastest_offer(f, &likely[layers].part[i]);
}

/* ---- those near the fastest ---- */

typedef struct Climb {
    Fastest *fastest;
    Allocation trial;
} Climb;

/* Offers the trial if it is an allocation, and puts the fastest in its place again. True: it is faster. */
static bool offer_trial(Climb *c)
{
    int64_t before = c->fastest->step_ns;
    bool whole = c->trial.stage_count > 0;
    for (int k = 0; k < c->trial.stage_count; k++) {
        whole &= allocation_start(&c->trial, k) < c->trial.end[k];
        whole &= k == 0 || c->trial.device[k] != c->trial.device[k - 1]; /* both ends of a keeper */
    }
    if (whole) fastest_offer(c->fastest, &c->trial);
    allocation_copy(&c->trial, c->fastest->allocation);
    return c->fastest->step_ns < before;
}

static bool move_cuts(Climb *c)
{
    bool better = false;
    for (int k = 0; k + 1 < c->trial.stage_count; k++)
        for (int step = -2; step <= 2 && k + 1 < c->trial.stage_count; step++) {
            if (step == 0 || is_late(c->fastest)) continue;
            c->trial.end[k] += step;
            better |= offer_trial(c);
        }
    return better;
}

/* Whether a device may be moved; a keeper stays at both ends. */
static bool is_end(const Climb *c, int stage) { return c->trial.device[stage] == c->fastest->keeper; }

/* The trial with one cut in another place, too; in any case the trial is the fastest again. */
static bool offer_with_cuts(Climb *c)
{
    Arena arena = {0};
    Allocation moved = allocation_create(&arena, c->fastest->problem);
    allocation_copy(&moved, &c->trial);
    bool better = offer_trial(c);
    for (int k = 0; k + 1 < moved.stage_count && !better && c->fastest->restricts; k++)
        for (int step = -2; step <= 2 && !better; step++) {
            if (step == 0 || is_late(c->fastest)) continue;
            allocation_copy(&c->trial, &moved);
            c->trial.end[k] += step;
            better = offer_trial(c);
        }
    arena_free(&arena);
    return better;
}

static bool swap_stages(Climb *c)
{
    bool better = false;
    for (int i = 0; i < c->trial.stage_count; i++)
        for (int k = i + 1; k < c->trial.stage_count; k++) {
            int first = c->trial.device[i], second = c->trial.device[k];
            const int *type = c->fastest->problem->type_of;
            if (type[first] == type[second] || is_end(c, i) || is_end(c, k) || is_late(c->fastest)) continue;
            c->trial.device[i] = second;
            c->trial.device[k] = first;
            better |= offer_with_cuts(c);
        }
    return better;
}

/* Leaves out a stage; its layers go to the one before or after it. */
static bool remove_stages(Climb *c)
{
    bool better = false;
    for (int k = 0; k < c->trial.stage_count; k++)
        for (int after = 0; after < 2 && k < c->trial.stage_count; after++) {
            int last = c->trial.stage_count - 1;
            if (is_end(c, k) || last == 0 || k == (after ? last : 0) || is_late(c->fastest)) continue;
            if (!after) c->trial.end[k - 1] = c->trial.end[k];
            size_t rest = (size_t)(last - k) * sizeof *c->trial.device;
            memmove(c->trial.device + k, c->trial.device + k + 1, rest);
            memmove(c->trial.end + k, c->trial.end + k + 1, rest);
            c->trial.stage_count--;
            better |= offer_trial(c);
        }
    return better;
}

static bool is_first_idle(const Climb *c, int device)
{
    const Problem *p = c->fastest->problem;
    for (int d = 0; d <= device; d++) {
        bool idle = p->type_of[d] == p->type_of[device];
        for (int k = 0; k < c->trial.stage_count; k++) idle &= c->trial.device[k] != d;
        if (idle) return d == device;
    }
    return false;
}

/* An idle device of each type takes a stage over, or half of it. */
static bool use_idle(Climb *c)
{
    bool better = false;
    for (int d = 0; d < c->fastest->problem->device_count; d++)
        for (int k = 0; k < c->trial.stage_count; k++)
            for (int way = 0; way < 3 && k < c->trial.stage_count; way++) {
                int last = c->trial.stage_count, start = allocation_start(&c->trial, k), end = c->trial.end[k];
                if (is_late(c->fastest) || !is_first_idle(c, d) || (way == 0 && is_end(c, k))) continue;
                if (way > 0) {
                    size_t rest = (size_t)(last - k) * sizeof *c->trial.device;
                    memmove(c->trial.device + k + 1, c->trial.device + k, rest);
                    memmove(c->trial.end + k + 1, c->trial.end + k, rest);
                    c->trial.stage_count++;
                    c->trial.end[k] = start + (end - start) / 2;
                }
                c->trial.device[way == 2 ? k + 1 : k] = d;
                better |= offer_trial(c);
            }
    return better;
}

static void climb(Fastest *f)
{
    FREED_WITH(arena_free) Arena arena = {0};
    Climb c = {f, allocation_create(&arena, f->problem)};
    allocation_copy(&c.trial, f->allocation);
    for (bool better = true; better && !is_late(f);) {
        better = move_cuts(&c);
        better |= remove_stages(&c);
        better |= swap_stages(&c);
        better |= use_idle(&c);
    }
}

/* ---- restricted questions ---- */

static bool is_in_use(const Fastest *f, int type, int region)
{
    bool used = false;
    for (int k = 0; k < f->allocation->stage_count; k++) {
        int own = f->problem->type_of[f->allocation->device[k]];
        used |= own == type || f->problem->type_region[own] == region;
    }
    return used;
}

/* The likeliest where these are left out, and those near the fastest of them. */
static void search_without(Fastest *f, Without without)
{
    FREED_WITH(arena_free) Arena arena = {0};
    Allocation own = allocation_create(&arena, f->problem);
    Fastest other = *f;
    other.allocation = &own;
    other.step_ns = INT64_MAX;
    offer_likely(&other, without, f->step_ns);
    if (other.step_ns < INT64_MAX) climb(&other);
    if (other.step_ns < f->step_ns) {
        allocation_copy(f->allocation, &own);
        f->step_ns = other.step_ns;
        f->in_flight_limit = other.in_flight_limit;
    }
}

/* The fastest with a schedule, near the fastest of all and the likeliest. Problems with these schedules are alike. */
static void search_scheduled(Fastest *f, PlanSchedule schedule)
{
    FREED_WITH(arena_free) Arena arena = {0};
    Problem forced = *f->problem;
    Allocation own = allocation_create(&arena, f->problem);
    Fastest other = *f;
    forced.schedule = schedule;
    other.problem = &forced;
    other.limits = false;
    other.allocation = &own;
    other.step_ns = INT64_MAX;
    fastest_offer(&other, f->allocation);
    if (other.step_ns < INT64_MAX) climb(&other);
    search_without(&other, (Without){-1, -1, -1});
    if (other.step_ns < INT64_MAX) fastest_offer(f, &own);
}

/* The next device of its type; -1: there is none. */
static int next_alike(const Problem *p, int device)
{
    for (int d = device + 1; d < p->device_count; d++)
        if (p->type_of[d] == p->type_of[device]) return d;
    return -1;
}

/* Without each pair of devices: what questions without one device look at. */
static void search_without_pairs(Fastest *f)
{
    const Problem *p = f->problem;
    for (int t = 0; t < p->type_count; t++)
        for (int u = t; u < p->type_count; u++) {
            int first = p->first_device[t], other = u > t ? p->first_device[u] : next_alike(p, first);
            if (other >= 0 && first != f->keeper && other != f->keeper) search_without(f, (Without){first, other, -1});
        }
}

/* Climbing ends at different allocations from different starts: those of the questions that a user may restrict this
 * one to. */
static void search_restricted(Fastest *f)
{
    static const PlanSchedule schedules[] = {PLAN_1F1B, PLAN_SEARCHED, PLAN_ZB};
    const Problem *p = f->problem;
    search_without(f, (Without){-1, -1, -1});
    for (int t = 0; t < p->type_count; t++) /* devices that are alike: any of them */
        if (p->first_device[t] != f->keeper && is_in_use(f, t, -1))
            search_without(f, (Without){p->first_device[t], -1, -1});
    for (int r = 0; r < p->region_count && p->region_count > 1; r++)
        if (is_in_use(f, -1, r)) search_without(f, (Without){-1, -1, r});
    search_without_pairs(f);
    for (size_t s = 0; s < sizeof schedules / sizeof *schedules && p->schedule == PLAN_AUTO; s++)
        search_scheduled(f, schedules[s]);
}

void fastest_search(Fastest *f)
{
    bool restricts = f->restricts && f->most_ns == INT64_MAX;
    if (f->step_ns < INT64_MAX) climb(f);
    f->complete = size_is_tiny(f->problem) && enumerate_all(f);
    if (f->complete) return;
    if (f->step_ns < INT64_MAX) climb(f);
    if (!restricts) return;
    int64_t before;
    do {
        before = f->step_ns;
        search_restricted(f);
        if (f->step_ns < before) climb(f);
    } while (f->step_ns < before);
    f->complete = enumerate_all(f);
}
