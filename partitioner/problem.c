#include "partitioner/problem.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

/* Sums of a few such values, also times the micro-batches and in parts of sampled steps, stay exact in doubles. */
static const double MAX_TOTAL_NS = 1e15, MAX_STEP_NS = 4e15;

/* Buffers at a cut: activations and gradients, each double-buffered. */
enum { BUFFERS_PER_CUT = 4 };

static double nanoseconds(double seconds) { return ceil(seconds * 1e9); }

/* Layer times are slowdown x seconds x 1e9 in that order, rounded up: the contract of the format. `repeated` [layer]:
 * takes as long as the layer before it, which need not be converted again. */
static bool fill_times(Problem *p, int type, const bool *repeated, Diagnostics *diagnostics)
{
    const Costs *costs = p->costs;
    int device = p->first_device[type];
    const DeviceCost *d = &costs->devices[device];
    size_t base = (size_t)type * (size_t)(p->layer_count + 1);
    int64_t *forwards = p->forward + base, *work = p->work + base, *updates = p->update + base;
    double *work_f = p->work_f + base, total = 0, layer_total = 0;
    double times = p->microbatches * (costs->rows.microbatch_kinds ? row_samples_steps(&costs->rows) : 1.0);
    int64_t forward_ns = 0, work_ns = 0, update_ns = 0;
    bool own_times = d->forward_s || d->backward_s || d->update_s;
    bool recomputes = p->recompute == PLAN_RECOMPUTE_ALWAYS || (p->recomputing && p->recomputing[device]);
    for (int l = 0; l < p->layer_count; l++) {
        if (own_times || !repeated[l]) {
            double forward = nanoseconds(costs_forward_s(costs, device, l));
            double backward = nanoseconds(costs_backward_s(costs, device, l));
            double update = nanoseconds(costs_update_s(costs, device, l)) + nanoseconds(costs_sum_s(costs, device, l));
            if (recomputes) backward += forward;
            layer_total = forward + backward + update;
            if (layer_total <= MAX_TOTAL_NS) {
                forward_ns = (int64_t)forward;
                work_ns = forward_ns + (int64_t)backward;
                update_ns = (int64_t)update;
            }
        }
        total += layer_total;
        if (!(total <= MAX_TOTAL_NS) || !(total * times <= MAX_STEP_NS))
            return diagnostics_error(diagnostics, EXIT_BAD_INPUT, (Place){.file = costs->name, .object = d->name},
                                     "check the unit: times are in seconds", "the layers' times add up to too much");
        forwards[l + 1] = forwards[l] + forward_ns;
        work[l + 1] = work[l] + work_ns;
        work_f[l + 1] = (double)work[l + 1];
        if (update_ns > 0) p->has_update = true;
        if (p->has_update) updates[l + 1] = updates[l] + update_ns; /* else they stay 0, untouched */
    }
    return true;
}

static bool same_times(const double *a, const double *b, int count)
{
    return a == b || (a && b && memcmp(a, b, (size_t)count * sizeof *a) == 0);
}

static bool same_type(const Costs *costs, int i, int j)
{
    const DeviceCost *a = &costs->devices[i], *b = &costs->devices[j];
    return a->slowdown == b->slowdown && a->sum_s == b->sum_s &&
           (costs->processors == 0 || (a->host == b->host && a->cores == b->cores)) &&
           a->memory_bytes == b->memory_bytes && a->region == b->region &&
           same_times(a->forward_s, b->forward_s, costs->layer_count) &&
           same_times(a->backward_s, b->backward_s, costs->layer_count) &&
           same_times(a->update_s, b->update_s, costs->layer_count) &&
           costs_may_begin(costs, i) == costs_may_begin(costs, j) && costs_may_end(costs, i) == costs_may_end(costs, j);
}

/* Equal for devices of one type. */
static uint64_t type_hash(const Problem *p, int d)
{
    const DeviceCost *device = &p->costs->devices[d];
    size_t bytes = (size_t)p->layer_count * sizeof(double);
    double numbers[] = {device->slowdown, (double)device->memory_bytes, device->region};
    Hash hash = hash_bytes(numbers, sizeof numbers);
    if (device->forward_s) hash = hash_extend(hash, device->forward_s, bytes);
    if (device->backward_s) hash = hash_extend(hash, device->backward_s, bytes);
    if (device->update_s) hash = hash_extend(hash, device->update_s, bytes);
    return hash.low;
}

static void find_types(Problem *p)
{
    int n = p->device_count;
    size_t mask = 1;
    while (mask < 2 * (size_t)n) mask *= 2;
    FREED int *table = memory_allocate(mask-- * sizeof *table); /* 1 + type; 0: free */
    p->type_of = arena_new_array(&p->arena, int, (size_t)n);
    p->first_device = arena_new_array(&p->arena, int, (size_t)n);
    p->type_size = arena_new_array(&p->arena, int, (size_t)n);
    for (int i = 0; i < n; i++) {
        size_t slot = type_hash(p, i) & mask;
        for (; table[slot]; slot = (slot + 1) & mask) {
            int first = p->first_device[table[slot] - 1];
            if (same_type(p->costs, first, i) && (!p->recomputing || p->recomputing[first] == p->recomputing[i])) break;
        }
        if (!table[slot]) {
            p->first_device[p->type_count] = i;
            table[slot] = ++p->type_count;
        }
        p->type_of[i] = table[slot] - 1;
        p->type_size[p->type_of[i]]++;
    }
}

static bool fill_types(Problem *p, Diagnostics *diagnostics)
{
    size_t types = (size_t)p->type_count, entries;
    if (!size_multiply(types, (size_t)p->layer_count + 1, &entries)) memory_exhausted();
    p->forward = arena_new_array(&p->arena, int64_t, entries);
    p->work = arena_new_array(&p->arena, int64_t, entries);
    p->update = arena_new_array(&p->arena, int64_t, entries);
    p->work_f = arena_new_array(&p->arena, double, entries);
    p->type_region = arena_new_array(&p->arena, int, types);
    p->type_limit = arena_new_array(&p->arena, int64_t, types);
    bool *repeated = arena_new_array(&p->arena, bool, (size_t)p->layer_count);
    for (int l = 1; l < p->layer_count; l++) {
        const LayerCost *own = &p->costs->layers[l], *before = own - 1;
        repeated[l] = own->forward_s == before->forward_s && own->backward_s == before->backward_s &&
                      own->update_s == before->update_s && own->summed_bytes == before->summed_bytes;
    }
    for (int t = 0; t < p->type_count; t++) {
        const DeviceCost *device = &p->costs->devices[p->first_device[t]];
        p->type_region[t] = p->costs->region_count > 0 ? device->region : 0;
        p->type_limit[t] = device->memory_bytes;
        if (!fill_times(p, t, repeated, diagnostics)) return false;
    }
    return true;
}

static void fill_scratch(Problem *p)
{
    int n = p->layer_count, powers = 1;
    bool any = false;
    for (int l = 0; l < n; l++) any |= p->costs->layers[l].scratch_bytes > 0;
    if (!any) return;
    while (1 << powers <= n) powers++;
    p->scratch_bytes = arena_new_array(&p->arena, int64_t, (size_t)powers * (size_t)n);
    for (int l = 0; l < n; l++) p->scratch_bytes[l] = p->costs->layers[l].scratch_bytes;
    for (int k = 1; k < powers; k++)
        for (int l = 0; l + (1 << k) <= n; l++) {
            const int64_t *half = p->scratch_bytes + (size_t)(k - 1) * (size_t)n + l;
            int64_t a = half[0], b = half[1 << (k - 1)];
            p->scratch_bytes[(size_t)k * (size_t)n + (size_t)l] = a > b ? a : b;
        }
}

static int64_t coded_bytes(const Problem *p, int start, int end)
{
    return p->coded_in ? p->coded_in[start] + p->coded_out[end] : 0;
}

/* At least what any stage takes: without recomputation, and with it where stages have to recompute (those that choose
 * only do so for want of room). A part of the layers may take more than all of them: it has boundaries, and where it
 * recomputes it holds them again in every slot. */
static int64_t most_bytes(const Problem *p)
{
    int n = p->layer_count;
    int64_t most = problem_stage_bytes(p, 0, n, p->microbatches), widest = 0, slots = 0;
    if (p->recompute == PLAN_RECOMPUTE_ALWAYS || p->recomputing) {
        int64_t again = problem_recompute_bytes(p, 0, n, p->microbatches);
        if (again > most) most = again;
        slots = p->microbatches;
    }
    if (p->coded_in) slots = p->microbatches;
    for (int c = 0; c <= n; c++) {
        int64_t width = p->boundary_in[c] + p->boundary_out[c] + coded_bytes(p, c, c);
        if (width > widest) widest = width;
    }
    if (__builtin_mul_overflow(2 + slots, widest, &widest) || __builtin_add_overflow(most, widest, &most))
        return COSTS_NO_LIMIT;
    return most;
}

/* What crosses the cut after the layer, in the direction that carries more. */
static int64_t wider_bytes(const LayerCost *layer)
{
    int64_t forward = costs_output_bytes(layer, 0), backward = costs_output_bytes(layer, 1);
    return forward > backward ? forward : backward;
}

/* Where a link may use codecs, each micro-batch keeps what is coded there, in both directions. What is coded or decoded
 * needs its own room once. */
static void fill_coded(Problem *p)
{
    int n = p->layer_count;
    const LayerCost *layers = p->costs->layers;
    p->coded_in = arena_new_array(&p->arena, int64_t, (size_t)n + 1);
    p->coded_out = arena_new_array(&p->arena, int64_t, (size_t)n + 1);
    for (int c = 1; c < n; c++) {
        int64_t coded = costs_coded_bytes(p->costs, &layers[c - 1]);
        int64_t whole = costs_output_bytes(&layers[c - 1], 0) + costs_output_bytes(&layers[c - 1], 1);
        if (!layers[c].resident) p->coded_in[c] = coded, p->boundary_in[c] += whole;
        if (!layers[c - 1].resident) p->coded_out[c] = coded, p->boundary_out[c] += whole;
    }
}

static void fill_memory(Problem *p)
{
    int n = p->layer_count;
    const LayerCost *layers = p->costs->layers;
    bool uneven = false, stash = p->recompute == PLAN_RECOMPUTE_ALWAYS || p->recomputing;
    p->fixed_bytes = arena_new_array(&p->arena, int64_t, (size_t)n + 1);
    p->stash_bytes = arena_new_array(&p->arena, int64_t, (size_t)n + 1);
    p->kept_bytes = arena_new_array(&p->arena, int64_t, (size_t)n + 1);
    p->boundary_in = arena_new_array(&p->arena, int64_t, (size_t)n + 1);
    p->boundary_out = arena_new_array(&p->arena, int64_t, (size_t)n + 1);
    for (int l = 0; l < n; l++) {
        p->fixed_bytes[l + 1] = p->fixed_bytes[l] + layers[l].memory_bytes + layers[l].state_bytes;
        p->stash_bytes[l + 1] = p->stash_bytes[l] + layers[l].stash_bytes - layers[l].shared_bytes;
        p->kept_bytes[l + 1] = p->kept_bytes[l] + layers[l].kept_bytes;
        stash |= layers[l].stash_bytes > 0;
        if (l > 0 && !layers[l].resident) p->boundary_in[l] = BUFFERS_PER_CUT * wider_bytes(&layers[l - 1]);
        if (l + 1 < n && !layers[l].resident) p->boundary_out[l + 1] = BUFFERS_PER_CUT * wider_bytes(&layers[l]);
    }
    if (p->costs->codecs & ~CODECS_LOSSLESS) {
        fill_coded(p);
        stash = true;
    }
    /* Growing a stage by a layer adds state and swaps one boundary for another: a hole needs the swap to free bytes. */
    for (int c = 1; c <= n; c++) {
        uneven |= p->boundary_in[c - 1] < p->boundary_in[c] && c < n;
        uneven |= p->boundary_out[c] < p->boundary_out[c - 1];
        if (!p->coded_in) continue;
        uneven |= p->coded_in[c - 1] < p->coded_in[c] && c < n;
        uneven |= p->coded_out[c] < p->coded_out[c - 1];
    }
    fill_scratch(p);
    int64_t most = most_bytes(p);
    for (int t = 0; t < p->type_count; t++) p->has_limits |= p->type_limit[t] < most;
    p->holes = uneven && p->has_limits;
    if (!plan_schedule_traits(p->schedule).holds_all && stash && p->has_limits)
        p->level_limit = p->microbatches < p->device_count ? p->microbatches : p->device_count;
}

static void close_layers(Problem *p, int first_layer, int last_layer, int type)
{
    size_t cuts = (size_t)p->layer_count + 1, entries = cuts * (size_t)p->type_count;
    if (!p->pinned_before) p->pinned_before = arena_new_array(&p->arena, int, entries);
    int *pinned = p->pinned_before + (size_t)type * cuts;
    for (int c = first_layer + 1; c <= p->layer_count; c++)
        pinned[c] += (c <= last_layer + 1 ? c : last_layer + 1) - first_layer;
}

/* Where a site keeps inputs or labels, devices of other sites cannot have the first layer, or the last. */
static void close_for_sites(Problem *p)
{
    int last = p->layer_count - 1;
    for (int t = 0; t < p->type_count; t++) {
        if (!costs_may_begin(p->costs, p->first_device[t])) close_layers(p, 0, 0, t);
        if (!costs_may_end(p->costs, p->first_device[t])) close_layers(p, last, last, t);
    }
}

bool problem_create(Problem *problem, const Costs *costs, PlanObjective objective, PlanSchedule schedule,
                    int microbatches, Diagnostics *diagnostics)
{
    return problem_create_recomputing(problem, costs, objective, schedule, microbatches, PLAN_RECOMPUTE_NEVER, NULL,
                                      diagnostics);
}

bool problem_create_recomputing(Problem *problem, const Costs *costs, PlanObjective objective, PlanSchedule schedule,
                                int microbatches, PlanRecompute recompute, const bool *devices,
                                Diagnostics *diagnostics)
{
    memset(problem, 0, sizeof *problem);
    problem->recompute = plan_recompute_of_stages(recompute);
    problem->recomputing = devices;
    problem->costs = costs;
    problem->layer_count = costs->layer_count;
    problem->device_count = costs->device_count;
    problem->microbatches = microbatches > 0 ? microbatches : costs->microbatches;
    problem->rounds = (costs->rows.microbatch_kinds ? row_samples_mean(&costs->rows) : problem->microbatches) - 1;
    problem->objective = objective;
    problem->schedule = schedule;
    find_types(problem);
    if (!fill_types(problem, diagnostics) || !problem_fill_links(problem, diagnostics)) {
        problem_free(problem);
        return false;
    }
    fill_memory(problem);
    close_for_sites(problem);
    return true;
}

void problem_free(Problem *problem)
{
    arena_free(&problem->arena);
    memset(problem, 0, sizeof *problem);
}

int problem_in_flight(const Problem *problem, int to_end)
{
    if (plan_schedule_traits(problem->schedule).holds_all) return problem->microbatches;
    int flights = to_end < problem->microbatches ? to_end : problem->microbatches, limit = problem->in_flight_limit;
    return limit > 0 && limit < flights ? limit : flights;
}

void problem_limit_in_flight(Problem *problem, int limit)
{
    problem->in_flight_limit = limit;
    if (limit > 0 && limit < problem->level_limit) problem->level_limit = limit;
}

/* State, boundaries, scratch and `once`, and in_flight times `each`. */
static int64_t sum_bytes(const Problem *problem, int start, int end, int in_flight, int64_t each, int64_t once)
{
    int64_t fixed = problem->fixed_bytes[end] - problem->fixed_bytes[start], stash, total;
    int64_t scratch = 0;
    if (problem->scratch_bytes) {
        int k = 31 - __builtin_clz((unsigned)(end - start));
        const int64_t *row = problem->scratch_bytes + (size_t)k * (size_t)problem->layer_count;
        int64_t a = row[start], b = row[end - (1 << k)];
        scratch = a > b ? a : b;
    }
    if (__builtin_mul_overflow(each, in_flight, &stash) || __builtin_add_overflow(stash, once, &stash) ||
        __builtin_add_overflow(fixed, stash, &total) || __builtin_add_overflow(total, scratch, &total) ||
        __builtin_add_overflow(total, problem->boundary_in[start] + problem->boundary_out[end], &total))
        return COSTS_NO_LIMIT - 1; /* more than any limit but none */
    return total;
}

/* What the last layer would share with the next it keeps for itself. */
static int64_t stage_stash(const Problem *problem, int start, int end)
{
    return problem->stash_bytes[end] - problem->stash_bytes[start] + problem->costs->layers[end - 1].shared_bytes;
}

int64_t problem_stage_bytes(const Problem *problem, int start, int end, int in_flight)
{
    int64_t each = stage_stash(problem, start, end) + coded_bytes(problem, start, end);
    return sum_bytes(problem, start, end, in_flight, each, 0);
}

/* Received and sent tensors of both directions stay in the slot; one of each kind of what boundary buffers hold. */
int64_t problem_recompute_bytes(const Problem *problem, int start, int end, int in_flight)
{
    int64_t each = problem->kept_bytes[end] - problem->kept_bytes[start];
    each += (problem->boundary_in[start] + problem->boundary_out[end]) / (BUFFERS_PER_CUT / 2);
    each += coded_bytes(problem, start, end);
    return sum_bytes(problem, start, end, in_flight, each, stage_stash(problem, start, end));
}

int64_t problem_least_bytes(const Problem *problem, int start, int end, int in_flight)
{
    int64_t plain = problem_stage_bytes(problem, start, end, in_flight);
    if (problem->recompute == PLAN_RECOMPUTE_NEVER) return plain;
    int64_t again = problem_recompute_bytes(problem, start, end, in_flight);
    return problem->recompute == PLAN_RECOMPUTE_ALWAYS || again < plain ? again : plain;
}

static bool fits_plain(const Problem *p, int type, int start, int end, int in_flight)
{
    return problem_stage_bytes(p, start, end, in_flight) <= p->type_limit[type];
}

bool problem_stage_recomputes(const Problem *problem, int type, int start, int end, int to_end)
{
    if (problem->recompute == PLAN_RECOMPUTE_NEVER) return false;
    if (problem->recompute == PLAN_RECOMPUTE_ALWAYS) return true;
    if (!problem->has_limits) return false;
    int in_flight = problem_in_flight(problem, to_end);
    return !fits_plain(problem, type, start, end, in_flight) &&
           problem_recompute_bytes(problem, start, end, in_flight) <
               problem_stage_bytes(problem, start, end, in_flight);
}

bool problem_stage_fits(const Problem *problem, int type, int start, int end, int to_end)
{
    if (problem->pinned_before) {
        const int *pinned = problem->pinned_before + (size_t)type * (size_t)(problem->layer_count + 1);
        if (pinned[end] > pinned[start]) return false;
    }
    if (!problem->has_limits || problem->type_limit[type] == COSTS_NO_LIMIT) return true;
    int in_flight = problem_in_flight(problem, to_end);
    bool again = problem->recomputing ? problem->recomputing[problem->first_device[type]]
                                      : problem->recompute != PLAN_RECOMPUTE_NEVER;
    return (problem->recompute != PLAN_RECOMPUTE_ALWAYS && fits_plain(problem, type, start, end, in_flight)) ||
           (again && problem_recompute_bytes(problem, start, end, in_flight) <= problem->type_limit[type]);
}

/* Gives `device` a type of its own, so that a pin can speak about it alone. */
static void isolate(Problem *p, int device)
{
    int old = p->type_of[device], fresh = p->type_count;
    if (p->type_size[old] == 1) return;
    size_t cuts = (size_t)p->layer_count + 1, entries = cuts * (size_t)(fresh + 1);
    int64_t **sums[] = {&p->forward, &p->work, &p->update};
    for (size_t k = 0; k < sizeof sums / sizeof *sums; k++) {
        int64_t *grown = arena_new_array(&p->arena, int64_t, entries);
        memcpy(grown, *sums[k], cuts * (size_t)fresh * sizeof *grown);
        memcpy(grown + cuts * (size_t)fresh, grown + cuts * (size_t)old, cuts * sizeof *grown);
        *sums[k] = grown;
    }
    double *work_f = arena_new_array(&p->arena, double, entries);
    for (size_t k = 0; k < entries; k++) work_f[k] = (double)p->work[k];
    p->work_f = work_f;
    if (p->pinned_before) {
        int *grown = arena_new_array(&p->arena, int, entries);
        memcpy(grown, p->pinned_before, cuts * (size_t)fresh * sizeof *grown);
        memcpy(grown + cuts * (size_t)fresh, grown + cuts * (size_t)old, cuts * sizeof *grown);
        p->pinned_before = grown;
    }
    int *region = arena_new_array(&p->arena, int, (size_t)fresh + 1);
    int64_t *limit = arena_new_array(&p->arena, int64_t, (size_t)fresh + 1);
    memcpy(region, p->type_region, (size_t)fresh * sizeof *region);
    memcpy(limit, p->type_limit, (size_t)fresh * sizeof *limit);
    region[fresh] = region[old];
    limit[fresh] = limit[old];
    p->type_region = region;
    p->type_limit = limit;
    p->type_of[device] = fresh;
    p->type_size[old]--;
    p->type_size[fresh] = 1;
    p->first_device[fresh] = device;
    p->type_count++;
    for (int d = 0; d < p->device_count; d++)
        if (p->type_of[d] == old) {
            p->first_device[old] = d;
            break;
        }
}

void problem_pin(Problem *problem, int first_layer, int last_layer, int device)
{
    isolate(problem, device);
    ProblemPin *pins = arena_new_array(&problem->arena, ProblemPin, (size_t)problem->pin_count + 1);
    if (problem->pin_count) memcpy(pins, problem->pins, (size_t)problem->pin_count * sizeof *pins);
    pins[problem->pin_count++] = (ProblemPin){first_layer, last_layer, device};
    problem->pins = pins;
    for (int t = 0; t < problem->type_count; t++)
        if (t != problem->type_of[device]) close_layers(problem, first_layer, last_layer, t);
}

void problem_forbid(Problem *problem, int first_layer, int last_layer, int device)
{
    isolate(problem, device);
    close_layers(problem, first_layer, last_layer, problem->type_of[device]);
}

bool problem_derive(Problem *derived, const Problem *problem, const Costs *costs, int microbatches,
                    PlanRecompute recompute, const bool *devices)
{
    FREED_WITH(diagnostics_free) Diagnostics ignored = {0};
    bool ok = problem_create_recomputing(derived, costs, problem->objective, problem->schedule, microbatches, recompute,
                                         devices, &ignored);
    for (int i = 0; ok && i < problem->pin_count; i++)
        problem_pin(derived, problem->pins[i].first_layer, problem->pins[i].last_layer, problem->pins[i].device);
    if (ok) problem_limit_in_flight(derived, problem->in_flight_limit);
    if (ok) derived->watch = problem->watch;
    return ok;
}
