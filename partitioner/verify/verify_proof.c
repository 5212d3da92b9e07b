/* The proof of a bound, checked: prices per device, splits, and one exact dynamic program per leaf. certificate.h says
 * what is proven and why that suffices; nothing is pruned that would have to be trusted. */
#include <string.h>

#include "partitioner/certificate.h"
#include "partitioner/verify/verify_rules.h"

/* Whether a certificate covers every plan: the second half of checking a proof; the first is its leaves. */

/* ---- intervals ---- */

static void find_longest(const Rules *r, int64_t *period, int64_t *update)
{
    *period = *update = 0;
    for (int d = 0; d < r->devices; d++) {
        if (r->left_out[d]) continue;
        if (r->work[d][r->layers] > *period) *period = r->work[d][r->layers];
        if (r->update[d][r->layers] > *update) *update = r->update[d][r->layers];
    }
    for (int cut = 1; cut < r->layers; cut++)
        for (int i = 0; i < r->regions * r->regions; i++) {
            int64_t busy = rules_link_period(r, cut, i / r->regions, i % r->regions);
            if (busy > *period) *period = busy;
        }
}

/* Whether every plan that could be better than the bound falls into one of `count` intervals from `first` on. `step`:
 * the certificate bounds steps. */
static bool covers_plans(const Rules *r, const Certificate *proof, int first, int count, bool step)
{
    const CertificateInterval *last = NULL;
    int64_t period, update;
    find_longest(r, &period, &update);
    if (!step && count != 1) return false;
    for (int i = first; i < first + count; i++) {
        const CertificateInterval *now = &proof->intervals[i];
        if (last && last->low > 0) { /* the same updates, the next periods */
            if (now->high != last->low || now->update_low != last->update_low || now->update_high != last->update_high)
                return false;
        } else { /* the next updates, all periods */
            if (last ? now->update_high != last->update_low : now->update_high < update) return false;
            if (now->high < (step || r->plan->infeasible ? period : proof->bound_ns - 1)) return false;
        }
        last = now;
    }
    return last && last->low == 0 && last->update_low == -1;
}

/* ---- one device with the first stage and the last ---- */

/* All layers in one stage of the device, which no branch is about. */
static bool check_alone(Rules *r, const Certificate *proof, int keeper)
{
    StageMemory memory = {0};
    for (int l = 0; l < r->layers; l++) {
        if (!rules_allow(r, l, keeper)) return true;
        rules_add_layer(r, &memory, l);
    }
    int64_t limit = r->costs->devices[keeper].memory_bytes, work = r->work[keeper][r->layers];
    if (r->left_out[keeper] || rules_least_bytes(r, &memory, 0, r->layers, rules_in_flight(r, 1)) > limit) return true;
    int64_t step = work + rules_rounds(r, work) + r->update[keeper][r->layers];
    if (r->plan->infeasible || (r->plan->objective == PLAN_OBJECTIVE_STEP ? step : work) < proof->bound_ns)
        return rules_refuse(r, "certificate", "'%s' alone is a better plan", r->costs->devices[keeper].name);
    return true;
}

/* Cut by cut, and for each range of them count by count. */
static bool covers_keepers(Rules *r, const Certificate *proof, int keeper)
{
    int least = rules_in_flight(r, 2), most = rules_in_flight(r, r->usable + 1), cut = 1, flights = least;
    if (!check_alone(r, proof, keeper)) return false;
    for (int i = 0; i < proof->branch_count; i++) {
        const CertificateBranch *now = &proof->branches[i];
        bool follows = now->end_low == cut && now->end_high >= cut && now->flights_low == flights;
        if (!follows || (flights > least && now->end_high != now[-1].end_high) || now->end_high >= r->layers ||
            now->flights_high < flights || now->flights_high > most)
            return rules_refuse(r, "certificate.branches", "leave plans out, or overlap");
        flights = now->flights_high + 1;
        if (flights <= most) continue;
        cut = now->end_high + 1;
        flights = least;
    }
    return (cut >= r->layers && flights == least) || rules_refuse(r, "certificate.branches", "leave plans out");
}

/* The least memory of a first stage of the branch. */
static int64_t least_held(const Rules *r, const CertificateBranch *branch)
{
    StageMemory memory = {0};
    int64_t least = COSTS_NO_LIMIT;
    for (int end = 1; end <= branch->end_high; end++) {
        rules_add_layer(r, &memory, end - 1);
        int64_t bytes = rules_least_bytes(r, &memory, 0, end, branch->flights_low);
        if (end >= branch->end_low && bytes < least) least = bytes;
    }
    return least;
}

/* No chain at all; sums of anything smaller do not overflow. */
static const int64_t UNREACHABLE = INT64_MAX / 4;

typedef struct Checker {
    Rules *rules;
    const Certificate *certificate;
    const CertificateBranch *branch;     /* at hand; NULL: every device has one stage at most */
    const CertificateInterval *interval; /* at hand */
    int keeper;                          /* has the first stage and the last; -1: none */
    int64_t held;                        /* bytes that the keeper's first stage takes at least */
    bool step;                           /* stages and links cost their time; else only their prices */
    int levels;                          /* how many numbers of following stages memory depends on, at least 1 */
    int64_t *path;                       /* [level][region][cut]: cheapest chain up to there */
    int64_t *least;                      /* [region]: cheapest chain whose last stage is in the region */
    int *part; /* [region]: the lowest region that links within the interval's periods join it to */
    const CertificateNode *trail[1024]; /* splits above the leaf at hand, and their answers */
    bool answer[1024];
    int depth, leaves;
    /* What they leave: */
    bool *closed;       /* [cut]: no stage starts or ends there */
    int *barrier;       /* [end]: no stage that ends there starts before */
    int *first, *after; /* [device]: its stages start from `first` on and before `after` */
    /* Stages to the cut at hand, by their start, down to `weighed`: the least memory they may take. */
    int64_t *bytes;
    StageMemory memory;
    int weighed;
} Checker;

/* ---- what the splits leave ---- */

static void apply_split(Checker *c, const CertificateNode *split, bool yes)
{
    Rules *r = c->rules;
    int d = split->kind == CERTIFICATE_DEVICE ? costs_find_device(r->costs, split->device) : 0;
    if (split->kind == CERTIFICATE_REGION) {
        for (d = 0; d < r->devices; d++)
            if ((c->part[rules_region(r, d)] == c->part[split->region]) != yes) c->after[d] = 0;
    } else if (split->kind == CERTIFICATE_DEVICE) {
        if (yes && c->after[d] > split->cut) c->after[d] = split->cut;
        if (!yes && c->first[d] < split->cut) c->first[d] = split->cut;
    } else if (!yes) {
        c->closed[split->cut] = true;
    } else {
        for (int end = split->cut + 1; end <= r->layers; end++)
            if (c->barrier[end] < split->cut) c->barrier[end] = split->cut;
    }
}

static void apply_splits(Checker *c)
{
    size_t cuts = (size_t)c->rules->layers + 1;
    memset(c->closed, 0, cuts * sizeof *c->closed);
    memset(c->barrier, 0, cuts * sizeof *c->barrier);
    for (int d = 0; d < c->rules->devices; d++) {
        c->first[d] = 0;
        c->after[d] = c->rules->left_out[d] ? 0 : c->rules->layers;
    }
    for (int k = 0; k < c->depth; k++) apply_split(c, c->trail[k], c->answer[k]);
}

/* ---- the shortest chain ---- */

static int64_t least_bytes(Checker *c, int start, int end, int flights)
{
    while (c->weighed > start) {
        rules_add_layer(c->rules, &c->memory, --c->weighed);
        c->bytes[c->weighed] = rules_least_bytes(c->rules, &c->memory, c->weighed, end, flights);
    }
    return c->bytes[start];
}

/* Where stages of the device that end at `end` start: from *lowest on and before *after. */
static void find_starts(const Checker *c, int d, int end, int *lowest, int *after)
{
    bool last = end == c->rules->layers;
    *lowest = c->first[d] > c->barrier[end] ? c->first[d] : c->barrier[end];
    *after = c->after[d];
    if (!c->branch) return;
    if (d != c->keeper) {
        if (last) *after = 0;
        if (*lowest < 1) *lowest = 1;
    } else if (last) {
        if (*lowest < c->branch->end_low) *lowest = c->branch->end_low;
    } else { /* the first stage; another device follows it */
        bool ends = end >= c->branch->end_low && end <= c->branch->end_high && c->rules->pinned[end] != d;
        *lowest = c->barrier[end];
        *after = ends && c->after[d] > 0 ? 1 : 0;
    }
}

/* All stages of a device that end at `end`; `own` is how many stages there are from this one to the last. */
static void stages_of(Checker *c, const CertificateNode *leaf, int d, int end, int own)
{
    const Rules *r = c->rules;
    const int64_t *work = r->work[d], *update = r->update[d];
    bool second = c->branch && end == r->layers; /* stage of the keeper */
    int64_t limit = r->costs->devices[d].memory_bytes, best = UNREACHABLE, held = second ? c->held : 0;
    int region = rules_region(r, d), flights = rules_in_flight(r, own + (c->levels == 1)), lowest, after;
    find_starts(c, d, end, &lowest, &after);
    const int64_t *before = c->path + ((size_t)own * (size_t)r->regions + (size_t)region) * (size_t)(r->layers + 1);
    /* Longer stages take longer. */
    int64_t least_work = work[end] - c->interval->high, least_update = update[end] - c->interval->update_high;
    if (second) {
        least_work += work[c->branch->end_low];
        least_update += update[c->branch->end_low];
    }
    for (int start = end - 1; start >= lowest && work[start] >= least_work && update[start] >= least_update; start--) {
        if (!rules_allow(r, start, d)) break;
        if (start >= after || before[start] >= UNREACHABLE) continue;
        int64_t cost = before[start] + (c->step ? work[end] - work[start] : 0);
        if (cost >= best || (limit != COSTS_NO_LIMIT && least_bytes(c, start, end, flights) > limit - held)) continue;
        best = cost;
    }
    if (best < UNREACHABLE && best + leaf->price[d] < c->least[region]) c->least[region] = best + leaf->price[d];
}

static void stages_to(Checker *c, const CertificateNode *leaf, int end, int following)
{
    int own = following + 1 < c->levels ? following + 1 : c->levels - 1;
    bool closed = end < c->rules->layers && c->closed[end];
    for (int q = 0; q < c->rules->regions; q++) c->least[q] = UNREACHABLE;
    c->weighed = end;
    c->memory = (StageMemory){0};
    for (int d = 0; d < c->rules->devices && !closed; d++) stages_of(c, leaf, d, end, own);
}

/* The cheapest way on from what ends at a cut to a next stage in region `to`. */
static int64_t over_link(const Checker *c, int cut, int to)
{
    int64_t best = UNREACHABLE;
    for (int from = 0; from < c->rules->regions; from++) {
        if (c->least[from] >= UNREACHABLE || rules_link_period(c->rules, cut, from, to) > c->interval->high) continue;
        int64_t cost = c->least[from] + (c->step ? rules_link_sum(c->rules, cut, from, to) : 0);
        if (cost < best) best = cost;
    }
    return best;
}

/* Whether a first stage may have so many stages after its start. */
static bool may_start(const Checker *c, int following)
{
    int flights = rules_in_flight(c->rules, following);
    return !c->branch || c->levels == 1 || (flights >= c->branch->flights_low && flights <= c->branch->flights_high);
}

/* Under the leaf's prices and splits; -1 if there is none. */
static int64_t shortest(Checker *c, const CertificateNode *leaf)
{
    const Rules *r = c->rules;
    size_t cuts = (size_t)r->layers + 1;
    apply_splits(c);
    for (int end = 0; end < r->layers; end++)
        for (int following = c->levels > 1; following < c->levels; following++) {
            if (end > 0) stages_to(c, leaf, end, following);
            for (int to = 0; to < r->regions; to++)
                c->path[((size_t)following * (size_t)r->regions + (size_t)to) * cuts + (size_t)end] =
                    end > 0                   ? over_link(c, end, to)
                    : may_start(c, following) ? 0
                                              : UNREACHABLE;
        }
    stages_to(c, leaf, r->layers, 0);
    int64_t best = UNREACHABLE;
    for (int q = 0; q < r->regions; q++)
        if (c->least[q] < best) best = c->least[q];
    return best < UNREACHABLE ? best : -1;
}

/* ---- the tree ---- */

static bool check_leaf(Checker *c, int index)
{
    Rules *r = c->rules;
    const CertificateNode *leaf = &c->certificate->nodes[index];
    const char *object = arena_format(&r->arena, "certificate.nodes[%d]", index);
    int64_t total = 0;
    for (int d = 0; d < r->devices; d++) {
        if (leaf->price[d] > UNREACHABLE / 4 / (r->layers + r->devices))
            return rules_refuse(r, object, "a price is too large");
        if (!r->left_out[d]) total += (d == c->keeper ? 2 : 1) * leaf->price[d];
    }
    int64_t path = shortest(c, leaf);
    if (leaf->total != total)
        return rules_refuse(r, object, "the prices sum to %lld, not %lld", (long long)total, (long long)leaf->total);
    if (leaf->path != path && !(c->branch && leaf->path >= 0 && (path < 0 || leaf->path < path)))
        return rules_refuse(r, object, "the shortest chain costs %lld, not %lld", (long long)path,
                            (long long)leaf->path);
    c->leaves++;
    if (path < 0) return true; /* no chain at all */
    int64_t least = path - total + rules_rounds(r, c->interval->low + 1) + c->interval->update_low + 1;
    return (c->step ? least >= c->certificate->bound_ns : path > total) ||
           rules_refuse(r, object, "proves less than the bound");
}

static bool check_node(Checker *c, int index)
{
    Rules *r = c->rules;
    const CertificateNode *node = &c->certificate->nodes[index];
    if (node->leaf) return check_leaf(c, index);
    if (c->depth == sizeof c->trail / sizeof *c->trail) return rules_refuse(r, "certificate", "splits too often");
    if (node->cut > r->layers) return rules_refuse(r, "certificate", "there is no cut %d", node->cut);
    if (node->kind == CERTIFICATE_REGION && node->region >= r->regions)
        return rules_refuse(r, "certificate", "there is no region %d", node->region);
    if (node->kind == CERTIFICATE_DEVICE && costs_find_device(r->costs, node->device) < 0)
        return rules_refuse(r, "certificate", "no device is named '%s'", node->device);
    bool ok = true;
    for (int yes = 0; yes < 2 && ok; yes++) {
        c->trail[c->depth] = node;
        c->answer[c->depth++] = yes;
        ok = check_node(c, yes ? node->yes : node->no);
        c->depth--;
    }
    return ok;
}

static void find_parts(Checker *c)
{
    const Rules *r = c->rules;
    for (int q = 0; q < r->regions; q++) c->part[q] = q;
    for (bool changed = true; changed;) {
        changed = false;
        for (int i = 0; i < r->regions * r->regions; i++) {
            int *a = &c->part[i / r->regions], *b = &c->part[i % r->regions];
            for (int cut = 1; cut < r->layers && *a != *b; cut++)
                if (rules_link_period(r, cut, i / r->regions, i % r->regions) <= c->interval->high) {
                    *a = *b = *a < *b ? *a : *b;
                    changed = true;
                }
        }
    }
}

/* ---- all of it ---- */

static bool check_intervals(Checker *c, int first, int count)
{
    if (!covers_plans(c->rules, c->certificate, first, count, c->step))
        return rules_refuse(c->rules, "certificate", "the intervals leave plans out");
    for (int i = first; i < first + count; i++) {
        c->interval = &c->certificate->intervals[i];
        find_parts(c);
        if (!check_node(c, c->interval->root)) return false;
    }
    return true;
}

static bool check_branches(Checker *c)
{
    const Certificate *proof = c->certificate;
    int first = 0;
    if (!covers_keepers(c->rules, proof, c->keeper)) return false;
    for (int i = 0; i < proof->branch_count; first += proof->branches[i++].interval_count) {
        c->branch = &proof->branches[i];
        c->held = least_held(c->rules, c->branch);
        if (!check_intervals(c, first, c->branch->interval_count)) return false;
    }
    return true;
}

bool verify_proof(Rules *r, int *leaves)
{
    size_t cuts = (size_t)r->layers + 1, devices = (size_t)r->devices;
    const Certificate *proof = r->plan->certificate;
    /* Memory depends on the number of following stages where each micro-batch in flight takes some. */
    bool stash = r->plan->recompute == PLAN_RECOMPUTE_ALWAYS || r->codecs != CODECS_LOSSLESS;
    if (proof->price_count != r->devices && proof->node_count > 0)
        return rules_refuse(r, "certificate", "must price %d devices", r->devices);
    for (int l = 0; l < r->layers; l++) stash |= r->costs->layers[l].stash_bytes > 0;
    Checker *c = arena_new(&r->arena, Checker);
    c->keeper = rules_keeper(r);
    int stages = c->keeper < 0 ? r->usable : r->usable + 1;
    int most = r->plan->microbatches < stages ? r->plan->microbatches : stages;
    c->rules = r;
    c->certificate = proof;
    c->step = r->plan->objective == PLAN_OBJECTIVE_STEP && !r->plan->infeasible;
    c->levels = !plan_schedule_traits(r->plan->schedule).holds_all && stash && most > 1 ? most + 1 : 1;
    c->path = arena_new_array(&r->arena, int64_t, (size_t)c->levels * (size_t)r->regions * cuts);
    c->least = arena_new_array(&r->arena, int64_t, (size_t)r->regions);
    c->part = arena_new_array(&r->arena, int, (size_t)r->regions);
    c->closed = arena_new_array(&r->arena, bool, cuts);
    c->barrier = arena_new_array(&r->arena, int, cuts);
    c->bytes = arena_new_array(&r->arena, int64_t, cuts);
    c->first = arena_new_array(&r->arena, int, devices);
    c->after = arena_new_array(&r->arena, int, devices);
    bool ok = c->keeper >= 0 ? check_branches(c) : check_intervals(c, 0, proof->interval_count);
    *leaves = c->leaves;
    return ok;
}
