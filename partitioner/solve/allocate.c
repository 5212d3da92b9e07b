#include "partitioner/solve/allocate.h"

#include <stdlib.h>
#include <string.h>

void allocate_even(const Problem *problem, Allocation *allocation)
{
    int share = problem->layer_count / problem->device_count, rest = problem->layer_count % problem->device_count;
    allocation->stage_count = 0;
    for (int i = 0, cut = 0; i < problem->device_count && cut < problem->layer_count; i++) {
        cut += share + (i < rest);
        allocation->device[allocation->stage_count] = i;
        allocation->end[allocation->stage_count++] = cut;
    }
}

/* ---- Sky Computing ---- */

typedef struct Sky {
    const Problem *problem;
    int stages;
    int *end; /* of the allocation */
} Sky;

static int sky_start(const Sky *sky, int i) { return i ? sky->end[i - 1] : 0; }
static int sky_layers(const Sky *sky, int i) { return sky->end[i] - sky_start(sky, i); }

static bool sky_fits(const Sky *sky, int i, int end)
{
    return problem_stage_fits(sky->problem, sky->problem->type_of[i], sky_start(sky, i), end, sky->stages - i);
}

static bool sky_all_fit(const Sky *sky)
{
    for (int i = 0; i < sky->stages; i++)
        if (!sky_fits(sky, i, sky->end[i])) return false;
    return true;
}

/* One round of the repair; returns whether anything changed. */
static bool sky_repair(Sky *sky)
{
    bool changed = false;
    for (int i = 0; i + 1 < sky->stages; i++) {
        while (!sky_fits(sky, i, sky->end[i]) && sky_layers(sky, i) > 1) {
            sky->end[i]--;
            changed = true;
        }
        while (sky_layers(sky, i + 1) > 1 && sky_fits(sky, i, sky->end[i] + 1)) {
            sky->end[i]++;
            changed = true;
        }
    }
    return changed;
}

static int64_t sky_load(const Sky *sky, int i)
{
    return problem_work(sky->problem, sky->problem->type_of[i], sky_start(sky, i), sky->end[i]);
}

/* One round of balancing; returns whether anything changed. */
static bool sky_balance(Sky *sky)
{
    double target = 0;
    bool changed = false;
    for (int i = 0; i < sky->stages; i++) target += (double)sky_load(sky, i);
    target /= sky->problem->device_count;
    for (int i = 0; i + 1 < sky->stages; i++) {
        if ((double)sky_load(sky, i) >= target || sky_layers(sky, i + 1) <= 1 || !sky_fits(sky, i, sky->end[i] + 1))
            continue;
        sky->end[i]++;
        changed = true;
    }
    return changed;
}

bool allocate_sky(const Problem *problem, Allocation *allocation)
{
    enum { REPAIR_ROUNDS = 10000, BALANCE_ROUNDS = 1000 };
    allocate_even(problem, allocation);
    Sky sky = {problem, allocation->stage_count, allocation->end};
    /* The released program loops until nothing changes; the bound stops two devices that trade a layer for ever. */
    for (int round = 0; !sky_all_fit(&sky); round++)
        if (round == REPAIR_ROUNDS || !sky_repair(&sky)) return false;
    for (int round = 0; round < BALANCE_ROUNDS && sky_balance(&sky); round++) {}
    return true;
}

/* ---- the heuristic ---- */

typedef struct Descent {
    const Problem *problem;
    Allocation current, trial, best;
    AllocationValue current_value, best_value;
    bool *used;        /* [device], by `current` */
    int64_t work_left; /* stage evaluations left for this start: a reproducible bound of the time */
} Descent;

static Descent descent_create(const Problem *problem, Arena *arena)
{
    return (Descent){.problem = problem,
                     .current = allocation_create(arena, problem),
                     .trial = allocation_create(arena, problem),
                     .best = allocation_create(arena, problem),
                     .used = arena_new_array(arena, bool, (size_t)problem->device_count)};
}

/* Takes the trial if it is better than the current allocation. */
static bool take_if_better(Descent *s)
{
    s->work_left -= s->trial.stage_count;
    AllocationValue value = allocation_evaluate(s->problem, &s->trial);
    if (!allocation_better(s->problem, &value, &s->current_value)) return false;
    for (int k = 0; k < s->current.stage_count; k++) s->used[s->current.device[k]] = false;
    allocation_copy(&s->current, &s->trial);
    for (int k = 0; k < s->current.stage_count; k++) s->used[s->current.device[k]] = true;
    s->current_value = value;
    return true;
}

/* Removes stages that became empty. */
static void drop_empty(Allocation *a)
{
    int kept = 0, start = 0;
    for (int k = 0; k < a->stage_count; k++) {
        if (a->end[k] == start) continue;
        a->device[kept] = a->device[k];
        start = a->end[kept++] = a->end[k];
    }
    a->stage_count = kept;
}

/* Moves one layer over each of the cuts from `low` to `high` (stage indices), towards the end or towards the start. */
static bool try_shift(Descent *s, int low, int high, int step)
{
    allocation_copy(&s->trial, &s->current);
    for (int k = low; k < high; k++) {
        s->trial.end[k] += step;
        if (s->trial.end[k] < allocation_start(&s->trial, k) || s->trial.end[k] < 0) return false;
    }
    if (high > low && s->trial.end[high - 1] > s->trial.end[high]) return false;
    drop_empty(&s->trial);
    return take_if_better(s);
}

static bool try_swap(Descent *s, int a, int b)
{
    allocation_copy(&s->trial, &s->current);
    int device = s->trial.device[a];
    s->trial.device[a] = s->trial.device[b];
    s->trial.device[b] = device;
    return take_if_better(s);
}

static bool try_replace(Descent *s, int k, int device)
{
    allocation_copy(&s->trial, &s->current);
    s->trial.device[k] = device;
    return take_if_better(s);
}

/* Splits stage k in the middle; `device` takes the first half or the second. */
static bool try_split(Descent *s, int k, int device, bool first)
{
    int start = allocation_start(&s->current, k), end = s->current.end[k], count = s->current.stage_count;
    if (end - start < 2) return false;
    allocation_copy(&s->trial, &s->current);
    memmove(s->trial.device + k + 1, s->trial.device + k, (size_t)(count - k) * sizeof(int));
    memmove(s->trial.end + k + 1, s->trial.end + k, (size_t)(count - k) * sizeof(int));
    s->trial.stage_count++;
    s->trial.end[k] = start + (end - start) / 2;
    s->trial.device[first ? k : k + 1] = device;
    return take_if_better(s);
}

/* The stage that is furthest over its memory, else the one that sets the period (its link to the next stage counts). */
static int worst_stage(const Descent *s)
{
    const Problem *p = s->problem;
    const Allocation *a = &s->current;
    int worst = 0;
    int64_t most = -1;
    for (int k = 0; k < a->stage_count; k++) {
        int type = p->type_of[a->device[k]], start = allocation_start(a, k), end = a->end[k];
        int64_t badness = problem_work(p, type, start, end);
        if (k + 1 < a->stage_count) {
            int64_t busy =
                problem_link_period(p, end, p->type_region[type], p->type_region[p->type_of[a->device[k + 1]]]);
            if (busy > badness) badness = busy;
        }
        if (!s->current_value.fits) {
            if (problem_stage_fits(p, type, start, end, a->stage_count - k)) continue;
            badness =
                problem_stage_bytes(p, start, end, problem_in_flight(p, a->stage_count - k)) - p->type_limit[type];
        }
        if (badness > most) most = badness, worst = k;
    }
    return worst;
}

/* Sky moves layers to a neighbour; here the neighbour may pass them on, up to REACH stages away, either way. */
static bool improve_by_shifting(Descent *s, int worst)
{
    enum { REACH = 24 };
    int count = s->current.stage_count;
    for (int distance = 1; distance <= REACH && s->work_left > 0; distance++) {
        if (worst + distance < count && try_shift(s, worst, worst + distance, -1)) return true;
        if (worst - distance >= 0 && try_shift(s, worst - distance, worst, 1)) return true;
    }
    return false;
}

static bool improve_by_devices(Descent *s, int worst)
{
    for (int device = 0; device < s->problem->device_count && s->work_left > 0; device++) {
        if (s->used[device]) continue;
        if (try_replace(s, worst, device) || try_split(s, worst, device, true) || try_split(s, worst, device, false))
            return true;
    }
    for (int k = 0; k < s->current.stage_count && s->work_left > 0; k++)
        if (k != worst && s->problem->type_of[s->current.device[k]] != s->problem->type_of[s->current.device[worst]] &&
            try_swap(s, k, worst))
            return true;
    return false;
}

static void improve(Descent *s, int64_t work)
{
    memset(s->used, 0, (size_t)s->problem->device_count * sizeof *s->used);
    for (int k = 0; k < s->current.stage_count; k++) s->used[s->current.device[k]] = true;
    s->current_value = allocation_evaluate(s->problem, &s->current);
    s->work_left = work;
    for (bool moved = true; moved && s->work_left > 0;) {
        int worst = worst_stage(s);
        moved = improve_by_shifting(s, worst) || improve_by_devices(s, worst);
    }
    if (s->best.stage_count == 0 || allocation_better(s->problem, &s->current_value, &s->best_value)) {
        allocation_copy(&s->best, &s->current);
        s->best_value = s->current_value;
    }
}

/* Layers in proportion to speed, in the given device order. */
static void start_in_proportion(Descent *s, const int *order)
{
    const Problem *p = s->problem;
    double speed = 0, share = 0;
    Allocation *a = &s->current;
    for (int i = 0; i < p->device_count; i++)
        speed += 1 / (1 + (double)problem_work(p, p->type_of[order[i]], 0, p->layer_count));
    a->stage_count = 0;
    for (int i = 0, cut = 0; i < p->device_count && cut < p->layer_count; i++) {
        int type = p->type_of[order[i]], start = cut;
        double total = (double)problem_work(p, type, 0, p->layer_count);
        share += 1 / (1 + total);
        while (cut < p->layer_count && (i + 1 == p->device_count ||
                                        (double)problem_work(p, type, 0, cut + 1) <= share / speed * total * 1.0000001))
            cut++;
        if (cut == start) continue;
        a->device[a->stage_count] = order[i];
        a->end[a->stage_count++] = cut;
    }
}

/* The start of the longest stage of `type` that ends at `end`, has `following` stages after it, and keeps the period
 * and its memory; `end` if there is none. */
static int longest_stage(const Problem *p, int type, int end, int following, int64_t period)
{
    int low = 0, high = end; /* a stage from `high` keeps the period */
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (problem_work(p, type, middle, end) <= period)
            high = middle;
        else
            low = middle + 1;
    }
    while (low < end && !problem_stage_fits(p, type, low, end, following + 1)) low++;
    return low;
}

/* Gives each device in the given order as many layers as it can take, or none if it has too slow a link. Goes from the
 * last layer to the first, because memory under 1F1B depends on the later stages; the allocation comes out backwards.
 * Returns whether the devices take all layers. */
static bool fill_in_order(const Problem *p, const int *order, int64_t period, Allocation *backwards)
{
    int end = p->layer_count, count = 0;
    for (int i = 0; i < p->device_count && end > 0; i++) {
        int type = p->type_of[order[i]], start = longest_stage(p, type, end, count, period);
        if (start == end) continue;
        if (count > 0 && problem_link_period(p, end, p->type_region[type],
                                             p->type_region[p->type_of[backwards->device[count - 1]]]) > period)
            continue;
        backwards->device[count] = order[i];
        backwards->end[count++] = end;
        end = start;
    }
    backwards->stage_count = count;
    return end == 0;
}

static void turn(const Allocation *backwards, Allocation *forwards)
{
    int count = forwards->stage_count = backwards->stage_count;
    for (int k = 0; k < count; k++) {
        forwards->device[k] = backwards->device[count - 1 - k];
        forwards->end[k] = backwards->end[count - 1 - k];
    }
}

/* Fills in this order at the shortest period that succeeds. False: none does. */
static bool start_in_order(Descent *s, const int *order, int64_t longest)
{
    int64_t low = 0, high = longest;
    if (!fill_in_order(s->problem, order, high, &s->trial)) return false;
    turn(&s->trial, &s->current);
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (fill_in_order(s->problem, order, middle, &s->trial)) {
            turn(&s->trial, &s->current);
            high = middle;
        } else {
            low = middle;
        }
    }
    return true;
}

typedef struct Key {
    int region, device;
    int64_t total, limit;
} Key;

static int by_speed(const void *a, const void *b)
{
    const Key *x = a, *y = b;
    if (x->total != y->total) return x->total < y->total ? -1 : 1;
    return x->device - y->device;
}

static int by_memory(const void *a, const void *b)
{
    const Key *x = a, *y = b;
    return x->limit != y->limit ? (x->limit > y->limit ? -1 : 1) : by_speed(a, b);
}

static int by_region(const void *a, const void *b)
{
    const Key *x = a, *y = b;
    return x->region != y->region ? x->region - y->region : by_speed(a, b);
}

enum { AS_GIVEN, BY_SPEED, BY_MEMORY, BY_REGION, ORDERS }; /* each in both directions */

static void order_devices(const Problem *p, int which, bool backwards, Key *keys, int *order)
{
    int (*const compare[])(const void *, const void *) = {NULL, by_speed, by_memory, by_region};
    int n = p->device_count;
    for (int i = 0; i < n; i++) {
        int type = p->type_of[i];
        keys[i] = (Key){p->type_region[type], i, problem_work(p, type, 0, p->layer_count), p->type_limit[type]};
    }
    if (which != AS_GIVEN) qsort(keys, (size_t)n, sizeof *keys, compare[which]);
    for (int i = 0; i < n; i++) order[i] = keys[backwards ? n - 1 - i : i].device;
}

static bool is_worth(const Problem *p, int which)
{
    return which == BY_REGION ? p->region_count > 1 : which != BY_MEMORY || p->has_limits;
}

bool allocate_heuristic(const Problem *problem, Allocation *allocation)
{
    static const int64_t WORK = 400000;
    FREED_WITH(arena_free) Arena arena = {0};
    Descent s = descent_create(problem, &arena);
    Key *keys = arena_new_array(&arena, Key, (size_t)problem->device_count);
    int *order = arena_new_array(&arena, int, (size_t)problem->device_count);
    int64_t longest = 0;
    for (int t = 0; t < problem->type_count; t++) {
        int64_t work = problem_work(problem, t, 0, problem->layer_count);
        if (work > longest) longest = work;
    }
    allocate_sky(problem, &s.current);
    improve(&s, WORK);
    for (int which = 0; which < 2 * ORDERS; which++) {
        if (!is_worth(problem, which / 2)) continue;
        order_devices(problem, which / 2, which % 2, keys, order);
        if (start_in_order(&s, order, longest)) improve(&s, WORK);
        start_in_proportion(&s, order);
        improve(&s, WORK);
    }
    allocation_copy(allocation, &s.best);
    return s.best_value.fits;
}

bool allocate_improve(const Problem *problem, Allocation *allocation, int64_t work)
{
    FREED_WITH(arena_free) Arena arena = {0};
    Descent s = descent_create(problem, &arena);
    allocation_copy(&s.current, allocation);
    improve(&s, work);
    allocation_copy(allocation, &s.best);
    return s.best_value.fits;
}
