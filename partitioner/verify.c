#include "partitioner/verify.h"

#include <math.h>
#include <string.h>

#include "partitioner/certificate.h"
#include "partitioner/schedule.h"

/* No chain at all; sums of anything smaller do not overflow. */
static const int64_t UNREACHABLE = INT64_MAX / 4;

typedef struct Verifier {
    const Plan *plan;
    const Costs *costs;
    Diagnostics *diagnostics;
    Arena arena;
    int layers, devices, regions, levels; /* levels: in-flight counts that matter, at least 1 */
    bool *left_out;                       /* [device] */
    int *pinned;                          /* [layer]: the only device, or -1 */
    int64_t **work, **update;             /* [device][cut] prefix sums */
    int64_t *path;                        /* [level][region][cut] */
    const CertificateNode *trail[1024];   /* splits above the current leaf, and their answers */
    bool answer[1024];
    int *part; /* [region]: lowest region that links within the interval's cap join it to */
    int leaves;
} Verifier;

static bool refuse(Verifier *v, const char *object, const char *format, ...) __attribute__((format(printf, 3, 4)));
static bool refuse(Verifier *v, const char *object, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const char *reason = arena_format_va(&v->arena, format, arguments);
    va_end(arguments);
    return diagnostics_error(v->diagnostics, EXIT_BAD_INPUT, (Place){.object = object}, NULL, "%s", reason);
}

static int64_t up(double seconds) { return (int64_t)ceil(seconds * 1e9); }

/* ---- what stages and links cost ---- */

static int in_flight(const Verifier *v, int to_end)
{
    return v->plan->schedule == PLAN_GPIPE || to_end > v->plan->microbatches ? v->plan->microbatches : to_end;
}

/* What a stage whose backward is split puts off, and keeps per micro-batch until then. */
static int64_t split_off(const Verifier *v, int device, int start, int end, int64_t *kept)
{
    const LayerCost *layers = v->costs->layers;
    bool known = false;
    double time = 0;
    for (int l = 0; l < v->layers && !known; l++) known = layers[l].weight_gradient_s > 0;
    for (int l = start; l < end; l++) {
        double share = !known ? 0.5 : layers[l].backward_s > 0 ? layers[l].weight_gradient_s / layers[l].backward_s : 0;
        time += floor(share * (double)up(costs_backward_s(v->costs, device, l)));
        *kept += layers[l].split_bytes;
    }
    return (int64_t)time;
}

/* With recomputation there is one stash, and each micro-batch in flight keeps what crosses the boundaries, both ways.
 */
static int64_t stage_bytes(const Verifier *v, int start, int end, int flights, bool recompute)
{
    const LayerCost *layers = v->costs->layers;
    __int128 bytes = 0, boundary = 0;
    int64_t scratch = 0;
    for (int l = start; l < end; l++) {
        bytes += (__int128)layers[l].memory_bytes + layers[l].state_bytes;
        bytes += (__int128)(recompute ? 1 : flights) * layers[l].stash_bytes;
        if (recompute) bytes += (__int128)flights * layers[l].kept_bytes;
        if (layers[l].scratch_bytes > scratch) scratch = layers[l].scratch_bytes;
    }
    if (start > 0 && !layers[start].resident) boundary += layers[start - 1].output_bytes;
    if (end < v->layers && !layers[end - 1].resident) boundary += layers[end - 1].output_bytes;
    bytes += scratch + (4 + (recompute ? 2 * (__int128)flights : 0)) * boundary;
    return bytes < COSTS_NO_LIMIT - 1 ? (int64_t)bytes : COSTS_NO_LIMIT - 1;
}

static int region_of(const Verifier *v, int device)
{
    return v->costs->region_count ? v->costs->devices[device].region : 0;
}

static int64_t transfer(const Verifier *v, int cut, int from, int to)
{
    if (!v->costs->region_count) return 0;
    double busy = ceil((double)v->costs->layers[cut - 1].output_bytes /
                       v->costs->bandwidth_Bps[from * v->costs->region_count + to] * 1e9);
    return busy < 1e15 ? (int64_t)busy : (int64_t)1e15;
}

static int64_t latency(const Verifier *v, int from, int to)
{
    return v->costs->region_count ? up(v->costs->latency_s[from * v->costs->region_count + to]) : 0;
}

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

static int64_t link_period(const Verifier *v, int cut, int a, int b)
{
    return larger(transfer(v, cut, a, b), transfer(v, cut, b, a));
}

static int64_t link_sum(const Verifier *v, int cut, int a, int b)
{
    return latency(v, a, b) + latency(v, b, a) + transfer(v, cut, a, b) + transfer(v, cut, b, a);
}

/* ---- the plan's own numbers ---- */

static bool prepare(Verifier *v)
{
    const Plan *plan = v->plan;
    char hash[33];
    if (strcmp(plan->costs_hash, hash_format(costs_hash(v->costs), hash)) != 0)
        return refuse(v, "costs_hash", "the plan was made for other costs (%s, these are %s)", plan->costs_hash, hash);
    if (plan->layer_count != v->layers) return refuse(v, "layers", "the costs have %d layers", v->layers);
    v->left_out = arena_new_array(&v->arena, bool, (size_t)v->devices);
    v->pinned = arena_new_array(&v->arena, int, (size_t)v->layers);
    for (int l = 0; l < v->layers; l++) v->pinned[l] = -1;
    for (int i = 0; i < plan->without_count; i++) {
        int d = costs_find_device(v->costs, plan->without[i]);
        if (d < 0) return refuse(v, "without", "no device is named '%s'", plan->without[i]);
        v->left_out[d] = true;
    }
    for (int i = 0; i < plan->pin_count; i++) {
        int d = costs_find_device(v->costs, plan->pins[i].device);
        if (d < 0) return refuse(v, "pins", "no device is named '%s'", plan->pins[i].device);
        for (int l = plan->pins[i].first_layer; l <= plan->pins[i].last_layer; l++) v->pinned[l] = d;
    }
    int rounds = plan->recompute == PLAN_RECOMPUTE_ALWAYS ? 2 : 1; /* of forward */
    v->work = arena_new_array(&v->arena, int64_t *, (size_t)v->devices);
    v->update = arena_new_array(&v->arena, int64_t *, (size_t)v->devices);
    for (int d = 0; d < v->devices; d++) {
        v->work[d] = arena_new_array(&v->arena, int64_t, (size_t)v->layers + 1);
        v->update[d] = arena_new_array(&v->arena, int64_t, (size_t)v->layers + 1);
        for (int l = 0; l < v->layers; l++) {
            v->work[d][l + 1] =
                v->work[d][l] + rounds * up(costs_forward_s(v->costs, d, l)) + up(costs_backward_s(v->costs, d, l));
            v->update[d][l + 1] = v->update[d][l] + up(costs_update_s(v->costs, d, l));
        }
    }
    return true;
}

static bool check_stage(Verifier *v, int k, int device)
{
    const PlanStage *stage = &v->plan->stages[k];
    const char *object = arena_format(&v->arena, "stages[%d]", k);
    int start = stage->first_layer, end = stage->last_layer + 1, flights = in_flight(v, v->plan->stage_count - k);
    if (v->plan->schedule > PLAN_1F1B) flights = stage->in_flight; /* check_schedule sees whether they are enough */
    int64_t forward = 0, bytes = stage_bytes(v, start, end, flights, stage->recompute),
            limit = v->costs->devices[device].memory_bytes;
    for (int l = start; l < end; l++) {
        forward += up(costs_forward_s(v->costs, device, l));
        if (v->pinned[l] >= 0 && v->pinned[l] != device)
            return refuse(v, object, "layer %d is pinned to another device", l);
    }
    if (stage->recompute ? v->plan->recompute == PLAN_RECOMPUTE_NEVER : v->plan->recompute == PLAN_RECOMPUTE_ALWAYS)
        return refuse(v, object, "recomputes %s", plan_recompute_name(v->plan->recompute));
    int64_t again = stage->recompute && v->plan->recompute == PLAN_RECOMPUTE_AUTO ? forward : 0;
    int64_t work = v->work[device][end] - v->work[device][start] + again,
            update = v->update[device][end] - v->update[device][start];
    if (stage->forward_ns != forward || stage->backward_ns != work - forward || stage->update_ns != update)
        return refuse(v, object, "forward, backward and update take %lld, %lld and %lld ns", (long long)forward,
                      (long long)(work - forward), (long long)update);
    if (stage->weight_gradient_ns > 0) {
        int64_t kept = 0, later = split_off(v, device, start, end, &kept);
        if (k == 0 || v->plan->schedule != PLAN_ZB || stage->weight_gradient_ns != later)
            return refuse(v, object, "%lld ns of backward can be put off", k > 0 ? (long long)later : 0);
        if (__builtin_mul_overflow(kept, flights, &kept) || __builtin_add_overflow(bytes, kept, &bytes))
            bytes = COSTS_NO_LIMIT - 1;
    }
    if (stage->in_flight != flights) return refuse(v, object, "%d micro-batches are in flight", flights);
    if (stage->memory_bytes != bytes) return refuse(v, object, "needs %lld bytes of memory", (long long)bytes);
    if (stage->memory_limit_bytes != limit)
        return refuse(v, object, "the device's memory is %lld bytes", (long long)limit);
    if (bytes > limit)
        return refuse(v, object, "needs %lld bytes, '%s' has %lld", (long long)bytes, stage->device, (long long)limit);
    return true;
}

static bool check_link(Verifier *v, int k, int from, int to)
{
    const PlanLink *link = &v->plan->links[k];
    int cut = v->plan->stages[k].last_layer + 1;
    if (link->logical_bytes != v->costs->layers[cut - 1].output_bytes || link->latency_ns[0] != latency(v, from, to) ||
        link->latency_ns[1] != latency(v, to, from) || link->transfer_ns[0] != transfer(v, cut, from, to) ||
        link->transfer_ns[1] != transfer(v, cut, to, from))
        return refuse(v, arena_format(&v->arena, "links[%d]", k),
                      "bytes, latency or transfer time are not those of the costs");
    return true;
}

/* One device has one stage; but where it keeps inputs and labels it has the first and the last, and fits both. */
static bool check_use(Verifier *v, int k, int device, const bool *used)
{
    const PlanStage *first = &v->plan->stages[0], *stage = &v->plan->stages[k];
    const char *object = arena_format(&v->arena, "stages[%d]", k), *keeper = v->costs->keep_inputs;
    bool loop = keeper && v->costs->keep_labels && strcmp(keeper, v->costs->keep_labels) == 0 &&
                strcmp(keeper, stage->device) == 0 && strcmp(keeper, first->device) == 0;
    if (v->left_out[device] || (used[device] && !(loop && k + 1 == v->plan->stage_count)))
        return refuse(v, object, "'%s' may not be used, or is already", stage->device);
    if (used[device] && stage->memory_bytes > stage->memory_limit_bytes - first->memory_bytes)
        return refuse(v, object, "the first stage and the last do not fit together on '%s'", stage->device);
    return true;
}

static bool check_stages(Verifier *v)
{
    const Plan *plan = v->plan;
    int64_t period = 0, sum = 0, update = 0;
    bool *used = arena_new_array(&v->arena, bool, (size_t)v->devices);
    for (int k = 0, before = -1; k < plan->stage_count; k++) {
        const char *object = arena_format(&v->arena, "stages[%d]", k);
        int device = costs_find_device(v->costs, plan->stages[k].device);
        if (device < 0) return refuse(v, object, "no device is named '%s'", plan->stages[k].device);
        if (!check_use(v, k, device, used) || !check_stage(v, k, device)) return false;
        int64_t work = plan->stages[k].forward_ns + plan->stages[k].backward_ns;
        int64_t before_ns = used[device] ? plan->stages[0].forward_ns + plan->stages[0].backward_ns : 0;
        period = larger(period, work + before_ns);
        update = larger(update, plan->stages[k].update_ns + (used[device] ? plan->stages[0].update_ns : 0));
        used[device] = true;
        sum += work;
        int to = region_of(v, device), cut = plan->stages[k].first_layer;
        if (k > 0) {
            if (!check_link(v, k - 1, before, to)) return false;
            period = larger(period, link_period(v, cut, before, to));
            sum += link_sum(v, cut, before, to);
        }
        before = to;
    }
    int64_t step = sum + (plan->microbatches - 1) * period + update;
    if (plan->period_ns != period) return refuse(v, "period_s", "the period is %lld ns", (long long)period);
    if (plan->step_ns != step) return refuse(v, "step_s", "the step is %lld ns", (long long)step);
    return true;
}

static bool check_schedule(Verifier *v)
{
    Simulation simulation;
    if (!plan_simulate(&simulation, v->plan, v->diagnostics)) return false;
    int64_t step = simulation.step_ns;
    bool bubble = fabs(simulation.bubble - v->plan->bubble) < 1e-9;
    simulation_free(&simulation);
    if (v->plan->simulated_step_ns != step)
        return refuse(v, "simulated_step_s", "the schedule takes %lld ns", (long long)step);
    return bubble || refuse(v, "bubble", "is not what the schedule leaves idle");
}

/* ---- the certificate ---- */

static bool allowed(const Verifier *v, int depth, int device, int start, int end)
{
    for (int l = start; l < end; l++)
        if (v->pinned[l] >= 0 && v->pinned[l] != device) return false;
    for (int k = 0; k < depth; k++) {
        const CertificateNode *split = v->trail[k];
        if (split->kind == CERTIFICATE_REGION) {
            bool inside = v->part[region_of(v, device)] == v->part[split->region];
            if (inside != v->answer[k]) return false;
        } else if (split->kind == CERTIFICATE_DEVICE) {
            if (costs_find_device(v->costs, split->device) == device && (start < split->cut) != v->answer[k])
                return false;
        } else if (v->answer[k] ? start < split->cut && split->cut < end : start == split->cut || end == split->cut) {
            return false;
        }
    }
    return true;
}

/* Whether a plan may have the stage: where recomputation is free to choose, its time is left out. */
static bool fits(const Verifier *v, int device, int start, int end, int flights)
{
    int64_t limit = v->costs->devices[device].memory_bytes;
    PlanRecompute recompute = v->plan->recompute;
    if (limit == COSTS_NO_LIMIT) return true;
    return (recompute != PLAN_RECOMPUTE_ALWAYS && stage_bytes(v, start, end, flights, false) <= limit) ||
           (recompute != PLAN_RECOMPUTE_NEVER && stage_bytes(v, start, end, flights, true) <= limit);
}

/* Cheapest way to cover the layers before `end` with a stage on each device that ends there; by region of that device.
 */
static void stages_to(const Verifier *v, const CertificateNode *leaf, int depth, int64_t cap, int end, int behind,
                      int64_t *least)
{
    bool step = v->plan->objective == PLAN_OBJECTIVE_STEP;
    int own = behind + 1 < v->levels ? behind + 1 : v->levels - 1;
    for (int r = 0; r < v->regions; r++) least[r] = UNREACHABLE;
    for (int d = 0; d < v->devices; d++) {
        int region = region_of(v, d);
        const int64_t *before = v->path + ((size_t)own * (size_t)v->regions + (size_t)region) * (size_t)(v->layers + 1);
        for (int start = end - 1; start >= 0 && !v->left_out[d]; start--) {
            int64_t work = v->work[d][end] - v->work[d][start];
            if (work > cap) break; /* longer stages take longer */
            if (before[start] >= UNREACHABLE || !allowed(v, depth, d, start, end)) continue;
            if (!fits(v, d, start, end, in_flight(v, own + (v->levels == 1)))) continue;
            int64_t cost = before[start] + leaf->price[d] + (step ? work : 0);
            if (cost < least[region]) least[region] = cost;
        }
    }
}

/* The shortest chain under the leaf's prices and splits: -1 if there is none. */
static int64_t shortest(Verifier *v, const CertificateNode *leaf, int depth, int64_t cap)
{
    bool step = v->plan->objective == PLAN_OBJECTIVE_STEP;
    size_t cuts = (size_t)v->layers + 1;
    int64_t *least = arena_new_array(&v->arena, int64_t, (size_t)v->regions);
    for (int end = 0; end < v->layers; end++)
        for (int behind = v->levels > 1; behind < v->levels; behind++) {
            if (end > 0) stages_to(v, leaf, depth, cap, end, behind, least);
            for (int to = 0; to < v->regions; to++) {
                int64_t best = end > 0 ? UNREACHABLE : 0;
                for (int from = 0; from < v->regions && end > 0; from++) {
                    if (least[from] >= UNREACHABLE || link_period(v, end, from, to) > cap) continue;
                    int64_t cost = least[from] + (step ? link_sum(v, end, from, to) : 0);
                    if (cost < best) best = cost;
                }
                v->path[((size_t)behind * (size_t)v->regions + (size_t)to) * cuts + (size_t)end] = best;
            }
        }
    stages_to(v, leaf, depth, cap, v->layers, 0, least);
    int64_t best = UNREACHABLE;
    for (int r = 0; r < v->regions; r++)
        if (least[r] < best) best = least[r];
    return best < UNREACHABLE ? best : -1;
}

static bool check_leaf(Verifier *v, const CertificateInterval *interval, int index, int depth)
{
    const Certificate *c = v->plan->certificate;
    const CertificateNode *leaf = &c->nodes[index];
    const char *object = arena_format(&v->arena, "certificate.nodes[%d]", index);
    int64_t total = 0, rounds = v->plan->microbatches - 1;
    for (int d = 0; d < v->devices; d++) {
        if (leaf->price[d] > UNREACHABLE / 4 / (v->layers + v->devices))
            return refuse(v, object, "a price is too large");
        if (!v->left_out[d]) total += leaf->price[d];
    }
    int64_t path = shortest(v, leaf, depth, interval->high);
    if (leaf->total != total)
        return refuse(v, object, "the prices sum to %lld, not %lld", (long long)total, (long long)leaf->total);
    if (leaf->path != path)
        return refuse(v, object, "the shortest chain costs %lld, not %lld", (long long)path, (long long)leaf->path);
    v->leaves++;
    if (path < 0) return true; /* no chain at all */
    bool enough = v->plan->objective == PLAN_OBJECTIVE_PERIOD
                      ? path > total
                      : path - total + rounds * (interval->low + 1) >= c->bound_ns;
    return enough || refuse(v, object, "proves less than the bound");
}

static bool check_node(Verifier *v, const CertificateInterval *interval, int index, int depth)
{
    const CertificateNode *node = &v->plan->certificate->nodes[index];
    if (node->leaf) return check_leaf(v, interval, index, depth);
    if (depth == sizeof v->trail / sizeof *v->trail) return refuse(v, "certificate", "splits too often");
    if (node->kind == CERTIFICATE_REGION && node->region >= v->regions)
        return refuse(v, "certificate", "there is no region %d", node->region);
    if (node->device && costs_find_device(v->costs, node->device) < 0)
        return refuse(v, "certificate", "no device is named '%s'", node->device);
    for (int answer = 0; answer < 2; answer++) {
        v->trail[depth] = node;
        v->answer[depth] = answer;
        if (!check_node(v, interval, answer ? node->yes : node->no, depth + 1)) return false;
    }
    return true;
}

static void find_parts(Verifier *v, int64_t cap)
{
    for (int r = 0; r < v->regions; r++) v->part[r] = r;
    for (bool changed = true; changed;) {
        changed = false;
        for (int i = 0; i < v->regions * v->regions; i++) {
            int *a = &v->part[i / v->regions], *b = &v->part[i % v->regions];
            for (int cut = 1; cut < v->layers && *a != *b; cut++)
                if (link_period(v, cut, i / v->regions, i % v->regions) <= cap) {
                    *a = *b = *a < *b ? *a : *b;
                    changed = true;
                }
        }
    }
}

/* The intervals cover every period that a better plan could have. */
static bool check_cover(Verifier *v)
{
    const Certificate *c = v->plan->certificate;
    if (v->plan->objective == PLAN_OBJECTIVE_PERIOD)
        return (c->interval_count == 1 && c->intervals[0].low == 0 && c->intervals[0].high == c->bound_ns - 1) ||
               refuse(v, "certificate", "must refute every period below the bound");
    int64_t most = 0;
    for (int d = 0; d < v->devices; d++) most = larger(most, v->work[d][v->layers]);
    for (int cut = 1; cut < v->layers; cut++)
        for (int i = 0; i < v->regions * v->regions; i++)
            most = larger(most, link_period(v, cut, i / v->regions, i % v->regions));
    for (int i = 0; i < c->interval_count; i++) {
        if (i == 0 ? c->intervals[0].high < most : c->intervals[i].high != c->intervals[i - 1].low)
            return refuse(v, "certificate", "the intervals leave periods out");
    }
    return (c->interval_count > 0 && c->intervals[c->interval_count - 1].low == 0) ||
           refuse(v, "certificate", "the intervals leave periods out");
}

static bool check_certificate(Verifier *v)
{
    const Certificate *c = v->plan->certificate;
    if (!c) return true;
    if (c->price_count != v->devices) return refuse(v, "certificate", "must price %d devices", v->devices);
    if (c->bound_ns < 0 || c->bound_ns > plan_value_ns(v->plan))
        return refuse(v, "certificate", "its bound is above the plan's value");
    bool stash = v->plan->recompute == PLAN_RECOMPUTE_ALWAYS;
    for (int l = 0; l < v->layers; l++) stash |= v->costs->layers[l].stash_bytes > 0;
    int most = v->plan->microbatches < v->devices ? v->plan->microbatches : v->devices;
    v->levels = v->plan->schedule != PLAN_GPIPE && stash && most > 1 ? most + 1 : 1;
    v->path = arena_new_array(&v->arena, int64_t, (size_t)v->levels * (size_t)v->regions * (size_t)(v->layers + 1));
    if (!check_cover(v)) return false;
    v->part = arena_new_array(&v->arena, int, (size_t)v->regions);
    for (int i = 0; i < c->interval_count; i++) {
        find_parts(v, c->intervals[i].high);
        if (!check_node(v, &c->intervals[i], c->intervals[i].root, 0)) return false;
    }
    return true;
}

static bool check_bound(Verifier *v)
{
    const Plan *plan = v->plan;
    int64_t value = plan_value_ns(plan), bound = plan->lower_bound_ns;
    double gap = value > 0 ? (double)(value - bound) / (double)value : 0;
    if (bound > value) return refuse(v, "lower_bound_s", "is above the plan's own value");
    if (plan->proven_optimal != (bound == value)) return refuse(v, "proven_optimal", "does not agree with the bound");
    if (plan->gap != gap) return refuse(v, "gap", "is %.17g", gap);
    return true;
}

bool plan_verify(Verified *verified, const Plan *plan, const Costs *costs, Diagnostics *diagnostics)
{
    Verifier v = {.plan = plan,
                  .costs = costs,
                  .diagnostics = diagnostics,
                  .layers = costs->layer_count,
                  .devices = costs->device_count,
                  .regions = costs->region_count ? costs->region_count : 1};
    bool ok = prepare(&v) && check_stages(&v) && check_schedule(&v) && check_bound(&v) && check_certificate(&v);
    *verified = (Verified){ok && plan->certificate ? plan->certificate->bound_ns : 0, v.leaves};
    arena_free(&v.arena);
    return ok;
}
