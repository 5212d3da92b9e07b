#include "partitioner/verify/verify_rules.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

bool rules_refuse(Rules *r, const char *object, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const char *reason = arena_format_va(&r->arena, format, arguments);
    va_end(arguments);
    return diagnostics_error(r->diagnostics, EXIT_BAD_INPUT, (Place){.object = object}, NULL, "%s", reason);
}

int64_t rules_ns(double seconds) { return (int64_t)ceil(seconds * 1e9); }

/* ---- times ---- */

static void sum_times(Rules *r)
{
    int forwards = r->plan->recompute == PLAN_RECOMPUTE_ALWAYS ? 2 : 1;
    r->work = arena_new_array(&r->arena, int64_t *, (size_t)r->devices);
    r->update = arena_new_array(&r->arena, int64_t *, (size_t)r->devices);
    for (int d = 0; d < r->devices; d++) {
        int64_t *work = r->work[d] = arena_new_array(&r->arena, int64_t, (size_t)r->layers + 1);
        int64_t *update = r->update[d] = arena_new_array(&r->arena, int64_t, (size_t)r->layers + 1);
        for (int l = 0; l < r->layers; l++) {
            work[l + 1] = work[l] + forwards * rules_ns(costs_forward_s(r->costs, d, l)) +
                          rules_ns(costs_backward_s(r->costs, d, l));
            update[l + 1] = update[l] + rules_ns(costs_update_s(r->costs, d, l));
        }
    }
}

bool rules_create(Rules *r, const Plan *plan, const Costs *costs, Diagnostics *diagnostics)
{
    char hash[33];
    *r = (Rules){.plan = plan,
                 .costs = costs,
                 .diagnostics = diagnostics,
                 .layers = costs->layer_count,
                 .devices = costs->device_count,
                 .regions = costs->region_count ? costs->region_count : 1};
    if (strcmp(plan->costs_hash, hash_format(costs_hash(costs), hash)) != 0)
        return rules_refuse(r, "costs_hash", "the plan was made for other costs (%s, these are %s)", plan->costs_hash,
                            hash);
    if (plan->layer_count != r->layers) return rules_refuse(r, "layers", "the costs have %d layers", r->layers);
    if (!row_samples_equal(&plan->rows, &costs->rows))
        return rules_refuse(r, "rows", "are not the samples of the costs");
    if (plan->rows.microbatch_kinds && plan->microbatches != costs->microbatches)
        return rules_refuse(r, "microbatches", "a step of such rows has %d at most", costs->microbatches);
    if (plan->in_flight_limit > 0 && plan->schedule <= PLAN_1F1B)
        return rules_refuse(r, "in_flight_limit", "%s has as many in flight as it has",
                            plan_schedule_name(plan->schedule));
    r->left_out = arena_new_array(&r->arena, bool, (size_t)r->devices);
    r->pinned = arena_new_array(&r->arena, int, (size_t)r->layers);
    for (int l = 0; l < r->layers; l++) r->pinned[l] = -1;
    for (int i = 0; i < plan->without_count; i++) {
        int d = costs_find_device(costs, plan->without[i]);
        if (d < 0) return rules_refuse(r, "without", "no device is named '%s'", plan->without[i]);
        r->left_out[d] = true;
    }
    for (int d = 0; d < r->devices; d++) r->usable += !r->left_out[d];
    for (int i = 0; i < plan->pin_count; i++) {
        int d = costs_find_device(costs, plan->pins[i].device);
        if (d < 0) return rules_refuse(r, "pins", "no device is named '%s'", plan->pins[i].device);
        for (int l = plan->pins[i].first_layer; l <= plan->pins[i].last_layer; l++) r->pinned[l] = d;
    }
    sum_times(r);
    return true;
}

bool rules_allow(const Rules *r, int layer, int device)
{
    const SiteCosts *sites = &r->costs->sites;
    int site = sites->count ? r->costs->devices[device].site : -1;
    if (site >= 0 && layer == 0 && sites->keep_inputs >= 0 && site != sites->keep_inputs) return false;
    if (site >= 0 && layer == r->layers - 1 && sites->keep_labels >= 0 && site != sites->keep_labels) return false;
    return r->pinned[layer] < 0 || r->pinned[layer] == device;
}

int rules_keeper(const Rules *r)
{
    const char *keeper = costs_keeper(r->costs);
    return keeper ? costs_find_device(r->costs, keeper) : -1;
}

void rules_free(Rules *r) { arena_free(&r->arena); }

/* ---- memory ---- */

int rules_in_flight(const Rules *r, int to_end)
{
    int flights = r->plan->microbatches, limit = r->plan->in_flight_limit;
    if (r->plan->schedule == PLAN_GPIPE) return flights;
    if (to_end < flights) flights = to_end;
    return limit > 0 && limit < flights ? limit : flights;
}

void rules_add_layer(const Rules *r, StageMemory *memory, int layer)
{
    const LayerCost *cost = &r->costs->layers[layer];
    memory->fixed += (__int128)cost->memory_bytes + cost->state_bytes;
    memory->stash += cost->stash_bytes;
    if (memory->layers > 0) memory->stash -= (layer < memory->lowest ? cost : cost - 1)->shared_bytes;
    if (memory->layers++ == 0 || layer < memory->lowest) memory->lowest = layer;
    memory->kept += cost->kept_bytes;
    if (cost->scratch_bytes > memory->scratch) memory->scratch = cost->scratch_bytes;
}

/* With recomputation there is one stash, and each micro-batch in flight keeps what crosses the boundaries both ways. */
int64_t rules_bytes(const Rules *r, const StageMemory *memory, int start, int end, int flights, bool recompute)
{
    const LayerCost *layers = r->costs->layers;
    __int128 bytes = memory->fixed + (recompute ? 1 : flights) * memory->stash, boundary = 0;
    if (recompute) bytes += flights * memory->kept;
    if (start > 0 && !layers[start].resident) boundary += layers[start - 1].output_bytes;
    if (end < r->layers && !layers[end - 1].resident) boundary += layers[end - 1].output_bytes;
    bytes += memory->scratch + (4 + (recompute ? 2 * (__int128)flights : 0)) * boundary;
    return bytes < COSTS_NO_LIMIT - 1 ? (int64_t)bytes : COSTS_NO_LIMIT - 1;
}

/* Where recomputation is free to choose, its time is left out. */
int64_t rules_least_bytes(const Rules *r, const StageMemory *memory, int start, int end, int flights)
{
    PlanRecompute recompute = r->plan->recompute;
    int64_t bytes = rules_bytes(r, memory, start, end, flights, recompute == PLAN_RECOMPUTE_ALWAYS);
    if (recompute != PLAN_RECOMPUTE_AUTO) return bytes;
    int64_t again = rules_bytes(r, memory, start, end, flights, true);
    return bytes < again ? bytes : again;
}

int64_t rules_rounds(const Rules *r, int64_t period)
{
    const RowSamples *rows = &r->costs->rows;
    int64_t steps = 0, rounds = 0;
    if (!rows->microbatch_kinds) return (r->plan->microbatches - 1) * period;
    for (int i = 0; i < rows->microbatch_kinds; i++) {
        steps += rows->microbatches[i].times;
        rounds += (int64_t)rows->microbatches[i].times * (rows->microbatches[i].value - 1);
    }
    __int128 all = (__int128)rounds * period;
    return (int64_t)((all + steps - 1) / steps);
}

/* ---- links ---- */

int rules_region(const Rules *r, int device) { return r->costs->region_count ? r->costs->devices[device].region : 0; }

int64_t rules_transfer(const Rules *r, int cut, int from, int to)
{
    if (!r->costs->region_count) return 0;
    double busy = ceil((double)r->costs->layers[cut - 1].output_bytes /
                       r->costs->bandwidth_Bps[from * r->costs->region_count + to] * 1e9);
    return busy < 1e15 ? (int64_t)busy : (int64_t)1e15;
}

int64_t rules_latency(const Rules *r, int from, int to)
{
    return r->costs->region_count ? rules_ns(r->costs->latency_s[from * r->costs->region_count + to]) : 0;
}

int64_t rules_link_period(const Rules *r, int cut, int a, int b)
{
    int64_t forward = rules_transfer(r, cut, a, b), backward = rules_transfer(r, cut, b, a);
    return forward > backward ? forward : backward;
}

int64_t rules_link_sum(const Rules *r, int cut, int a, int b)
{
    return rules_latency(r, a, b) + rules_latency(r, b, a) + rules_transfer(r, cut, a, b) +
           rules_transfer(r, cut, b, a);
}
