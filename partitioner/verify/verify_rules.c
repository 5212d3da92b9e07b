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
            update[l + 1] =
                update[l] + rules_ns(costs_update_s(r->costs, d, l)) + rules_ns(costs_sum_s(r->costs, d, l));
        }
    }
}

/* NULL is empty. */
static bool same_text(const char *a, const char *b) { return strcmp(a ? a : "", b ? b : "") == 0; }

/* What the costs keep on a device stays there, whatever pins the plan lists. */
static bool keep_at_home(Rules *r, int layer, const char *device)
{
    int home = device ? costs_find_device(r->costs, device) : -1;
    if (home >= 0 && r->pinned[layer] >= 0 && r->pinned[layer] != home)
        return rules_refuse(r, "pins", "layer %d is pinned elsewhere, but '%s' keeps what it reads", layer, device);
    if (home >= 0) r->pinned[layer] = home;
    return true;
}

bool rules_create(Rules *r, const Plan *plan, const Costs *costs, Diagnostics *diagnostics)
{
    char hash[33];
    *r = (Rules){.plan = plan,
                 .costs = costs,
                 .diagnostics = diagnostics,
                 .layers = costs->layer_count,
                 .codecs = plan->codecs ? plan->codecs : CODECS_LOSSLESS,
                 .devices = costs->device_count,
                 .regions = costs->region_count ? costs->region_count : 1};
    if (strcmp(plan->costs_hash, hash_format(costs_hash(costs), hash)) != 0)
        return rules_refuse(r, "costs_hash", "the plan was made for other costs (%s, these are %s)", plan->costs_hash,
                            hash);
    if (!same_text(plan->name, costs->name)) return rules_refuse(r, "name", "the costs are of '%s'", costs->name);
    if (!same_text(plan->model_hash, costs->model_hash))
        return rules_refuse(r, "model_hash", "is not that of the costs");
    if (!(plan->microbatches_gain >= -1 && plan->microbatches_gain <= 1))
        return rules_refuse(r, "microbatches_gain", "twice as many micro-batches do at most twice the work");
    if (plan->layer_count != r->layers) return rules_refuse(r, "layers", "the costs have %d layers", r->layers);
    if (!row_samples_equal(&plan->rows, &costs->rows))
        return rules_refuse(r, "rows", "are not the samples of the costs");
    if (!batch_choice_equal(&plan->batch, &costs->batch))
        return rules_refuse(r, "batch", "is not the choice of the costs");
    if (plan->rows.microbatch_kinds && plan->microbatches != costs->microbatches)
        return rules_refuse(r, "microbatches", "a step of such rows has %d at most", costs->microbatches);
    if (plan->in_flight_limit > 0 && !plan_schedule_traits(plan->schedule).is_searched)
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
    if (!keep_at_home(r, 0, costs->keep_inputs) || !keep_at_home(r, r->layers - 1, costs->keep_labels)) return false;
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
    if (plan_schedule_traits(r->plan->schedule).holds_all) return flights;
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

static int64_t wider(const LayerCost *layer)
{
    int64_t forward = costs_output_bytes(layer, 0), backward = costs_output_bytes(layer, 1);
    return forward > backward ? forward : backward;
}

static bool is_lossless(const Rules *r) { return r->codecs == CODECS_LOSSLESS; }

/* Where a link may use codecs, what crosses needs room in addition to what is coded: once, ... */
static int64_t coded_whole(const Rules *r, const LayerCost *layer)
{
    return is_lossless(r) ? 0 : costs_output_bytes(layer, 0) + costs_output_bytes(layer, 1);
}

/* ... while each micro-batch keeps the largest that is coded of both directions, in pieces that are aligned. */
static int64_t coded_kept(const Rules *r, const LayerCost *layer)
{
    int64_t most[2] = {0};
    for (int codec = CODEC_BF16; codec < CODEC_COUNT; codec++)
        for (int d = 0; d < 2 && r->codecs >> codec & 1; d++) {
            int64_t bytes = costs_wire_bytes(layer, d, (Codec)codec);
            if (bytes > most[d]) most[d] = bytes;
        }
    return is_lossless(r) ? 0 : most[0] + most[1] + 512;
}

/* With recomputation there is one stash, and each micro-batch in flight keeps what crosses the boundaries both ways. */
int64_t rules_bytes(const Rules *r, const StageMemory *memory, int start, int end, int flights, bool recompute)
{
    const LayerCost *layers = r->costs->layers;
    __int128 bytes = memory->fixed + (recompute ? 1 : flights) * memory->stash, boundary = 0;
    if (recompute) bytes += flights * memory->kept;
    const LayerCost *before = start > 0 && !layers[start].resident ? &layers[start - 1] : NULL;
    const LayerCost *last = end < r->layers && !layers[end - 1].resident ? &layers[end - 1] : NULL;
    if (before) boundary += 4 * (__int128)wider(before) + coded_whole(r, before);
    if (last) boundary += 4 * (__int128)wider(last) + coded_whole(r, last);
    if (before) bytes += (__int128)flights * coded_kept(r, before);
    if (last) bytes += (__int128)flights * coded_kept(r, last);
    bytes += memory->scratch + boundary + (recompute ? flights * (boundary / 2) : 0);
    return bytes < COSTS_NO_LIMIT - 1 ? (int64_t)bytes : COSTS_NO_LIMIT - 1;
}

/* Where recomputation is free to choose, its time is left out. */
int64_t rules_least_bytes(const Rules *r, const StageMemory *memory, int start, int end, int flights)
{
    PlanRecompute recompute = plan_recompute_of_stages(r->plan->recompute);
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

int64_t rules_whole(const Rules *r, int64_t expected)
{
    const RowSamples *rows = &r->costs->rows;
    __int128 all = 0;
    if (!rows->lines_computed) return expected;
    for (int i = 0; i < rows->microbatch_kinds; i++)
        all += (__int128)rows->microbatches[i].times * rows->microbatches[i].value * rows->packing.lines;
    if (!rows->tokens_computed) return (int64_t)((expected * all + rows->lines_computed - 1) / rows->lines_computed);
    all *= rows->packing.length;
    return (int64_t)((expected * all + rows->tokens_computed - 1) / rows->tokens_computed);
}

/* ---- links ---- */

int rules_region(const Rules *r, int device) { return r->costs->region_count ? r->costs->devices[device].region : 0; }

static int64_t bounded(double nanoseconds) { return nanoseconds < 1e15 ? (int64_t)nanoseconds : (int64_t)1e15; }

int64_t rules_bytes_over(const Rules *r, int64_t bytes, int from, int to)
{
    if (!r->costs->region_count) return 0;
    return bounded(ceil((double)bytes / r->costs->bandwidth_Bps[from * r->costs->region_count + to] * 1e9));
}

int64_t rules_transfer(const Rules *r, int cut, int direction, Codec codec, int from, int to)
{
    return rules_bytes_over(r, costs_wire_bytes(&r->costs->layers[cut - 1], direction, codec), from, to);
}

int64_t rules_coding(const Rules *r, int cut, int direction, Codec codec, int region, int decodes)
{
    double slowest = 0;
    if (codec == CODEC_NONE) return 0;
    for (int d = 0; d < r->devices; d++) {
        const DeviceCost *device = &r->costs->devices[d];
        double own = device->coding_s[codec][decodes];
        if (r->left_out[d] || rules_region(r, d) != region) continue;
        if (own == 0) own = device->slowdown * r->costs->coding_s[codec][decodes];
        slowest = fmax(slowest, own);
    }
    double bytes = (double)costs_output_bytes(&r->costs->layers[cut - 1], direction);
    return bounded(ceil(slowest * bytes * 1e9));
}

int64_t rules_latency(const Rules *r, int from, int to)
{
    return r->costs->region_count ? rules_ns(r->costs->latency_s[from * r->costs->region_count + to]) : 0;
}

bool rules_half_duplex(const Rules *r, int from, int to)
{
    return r->costs->half_duplex && r->costs->half_duplex[from * r->costs->region_count + to];
}

static int64_t most_of(int64_t a, int64_t b) { return a > b ? a : b; }

/* With these codecs. */
static RulesLink link_with(const Rules *r, int cut, int a, int b, Codec forward, Codec backward)
{
    RulesLink link = {.codecs = {forward, backward}, .sum = rules_latency(r, a, b) + rules_latency(r, b, a)};
    int64_t transfers = 0;
    for (int d = 0; d < 2; d++) {
        int from = d ? b : a, to = d ? a : b;
        int64_t transfer = rules_transfer(r, cut, d, link.codecs[d], from, to);
        int64_t encoding = rules_coding(r, cut, d, link.codecs[d], from, 0);
        int64_t decoding = rules_coding(r, cut, d, link.codecs[d], to, 1);
        link.sum += transfer + encoding + decoding;
        link.period = most_of(link.period, most_of(transfer, most_of(encoding, decoding)));
        transfers += transfer;
    }
    if (rules_half_duplex(r, a, b)) link.period = most_of(link.period, transfers);
    return link;
}

RulesLink rules_link(const Rules *r, int cut, int a, int b)
{
    RulesLink least = {.period = INT64_MAX, .sum = INT64_MAX};
    bool step = r->plan->objective == PLAN_OBJECTIVE_STEP;
    for (int pair = 0; pair < CODEC_COUNT * CODEC_COUNT && r->codecs >> pair / CODEC_COUNT; pair++) {
        int forward = pair / CODEC_COUNT, backward = pair % CODEC_COUNT;
        if (!(r->codecs >> forward & r->codecs >> backward & 1)) continue;
        RulesLink link = link_with(r, cut, a, b, (Codec)forward, (Codec)backward);
        int64_t main[2] = {step ? link.sum : link.period, step ? least.sum : least.period};
        int64_t other[2] = {step ? link.period : link.sum, step ? least.period : least.sum};
        if (main[0] < main[1] || (main[0] == main[1] && other[0] < other[1])) least = link;
    }
    return least;
}

int64_t rules_link_period(const Rules *r, int cut, int a, int b) { return rules_link(r, cut, a, b).period; }

int64_t rules_link_sum(const Rules *r, int cut, int a, int b) { return rules_link(r, cut, a, b).sum; }
