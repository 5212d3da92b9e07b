#include "partitioner/report/division.h"

#include <math.h>
#include <string.h>

#include "base/integers.h"
#include "partitioner/replicas.h"

enum {
    ONE_BY_ONE = 16,          /* numbers of replicas up to this are looked at one by one, more in classes */
    MOST_CLASSES = 64,        /* of numbers of replicas */
    MOST_MICROBATCHES = 1024, /* of a step */
    MOST_STAGES = 1000000,    /* types x starts x ends */
    MOST_WORK = 150000000,    /* stages that are looked at in all: a fifth of a second */
    PRICES = 40               /* tried for a question */
};

/* Numbers of replicas low ... high: gradients are summed as of `low`, which takes least. */
typedef struct ReplicaClass {
    int low, high;
    double *summed_s; /* [cut]: bytes that a replica's ranks send of the layers before it, as if all were one's */
    int64_t possible; /* below this time there is no plan */
} ReplicaClass;

typedef struct Division {
    const Problem *p;
    Arena arena;
    bool splits;
    double *there, *back,
        *trip;       /* [cut]: the least from the start to it, back from it, and from it to the end and back */
    double *put_off; /* [type][cut]: of the work before it, what backward may put off */
    double *link_s;  /* [type]: a byte over its best link to another replica */
    int *most;       /* [type][start][end]: micro-batches that a device does at most; 0: none */
    double *price;   /* [type] of a device */
    double *cost;    /* [micro-batches]: a pipeline for so many */
    int *used;       /* [type]: devices of such a pipeline */
    double *path;    /* [cut] */
    int *from, *by;  /* [cut]: start and type of the stage that ends there */
    int64_t work;    /* that may still be done */
} Division;

static size_t cuts(const Division *d) { return (size_t)d->p->layer_count + 1; }

static int *most_of(const Division *d, int type, int start, int end)
{
    return d->most + ((size_t)type * cuts(d) + (size_t)start) * cuts(d) + (size_t)end;
}

/* ---- what is least whatever the plan ---- */

/* Of a layer's backward, as schedules count it. */
static double put_off_ns(const Problem *p, int type, int layer)
{
    const LayerCost *cost = &p->costs->layers[layer];
    bool known = false;
    for (int l = 0; l < p->layer_count && !known; l++) known = p->costs->layers[l].weight_gradient_s > 0;
    double backward = (double)(problem_work(p, type, layer, layer + 1) - problem_forward(p, type, layer, layer + 1));
    double share = !known ? 0.5 : cost->backward_s > 0 ? cost->weight_gradient_s / cost->backward_s : 0;
    return ceil(fmin(share, 1) * backward);
}

/* Over the quickest link at a cut, in a direction. */
static double crossing_ns(const Problem *p, int cut, int direction)
{
    double least = INFINITY;
    for (int a = 0; a < p->region_count; a++)
        for (int b = 0; b < p->region_count; b++)
            least = fmin(least, (double)(problem_latency(p, direction ? b : a, direction ? a : b) +
                                         problem_link(p, cut, a, b)->transfer_ns[direction]));
    return p->free_links ? 0 : least;
}

/* The first stage is never split, and has the first layer. */
static void find_least(Division *d)
{
    const Problem *p = d->p;
    int layers = p->layer_count;
    double *forward = arena_new_array(&d->arena, double, cuts(d)),
           *backward = arena_new_array(&d->arena, double, cuts(d));
    d->there = arena_new_array(&d->arena, double, cuts(d));
    d->back = arena_new_array(&d->arena, double, cuts(d));
    d->trip = arena_new_array(&d->arena, double, cuts(d));
    d->put_off = arena_new_array(&d->arena, double, cuts(d) * (size_t)p->type_count);
    for (int l = 0; l < layers; l++) {
        double least_forward = INFINITY, least_backward = INFINITY;
        for (int t = 0; t < p->type_count; t++) {
            double *put_off = d->put_off + (size_t)t * cuts(d), all = (double)problem_work(p, t, l, l + 1);
            double own = (double)problem_forward(p, t, l, l + 1);
            put_off[l + 1] = put_off[l] + (d->splits && l > 0 ? fmin(put_off_ns(p, t, l), all - own) : 0);
            least_forward = fmin(least_forward, own);
            least_backward = fmin(least_backward, all - own - (put_off[l + 1] - put_off[l]));
        }
        forward[l + 1] = forward[l] + least_forward;
        backward[l + 1] = backward[l] + least_backward;
    }
    for (int c = 1; c < layers; c++) {
        d->there[c] = forward[c] + crossing_ns(p, c, 0);
        d->back[c] = backward[c] + crossing_ns(p, c, 1);
        d->trip[c] =
            crossing_ns(p, c, 0) + forward[layers] - forward[c] + backward[layers] - backward[c] + crossing_ns(p, c, 1);
    }
}

static void find_links(Division *d)
{
    const Problem *p = d->p;
    const Costs *costs = p->costs;
    d->link_s = arena_new_array(&d->arena, double, (size_t)p->type_count);
    for (int t = 0; t < p->type_count; t++)
        for (int q = 0, n = costs->region_count, own = p->type_region[t]; q < n; q++) {
            double seconds = 1 / fmin(costs->bandwidth_Bps[own * n + q], costs->bandwidth_Bps[q * n + own]);
            if (q == 0 || seconds < d->link_s[t]) d->link_s[t] = seconds;
        }
}

/* ---- what a device does in a time ---- */

static double room_for(double room, double each) { return each > 0 ? room / each : room >= 0 ? 1e9 : -1; }

/* Micro-batches that pass the link at a cut. */
static double pass_link(const Division *d, int cut, int type, double time)
{
    const Problem *p = d->p;
    double best = INFINITY;
    if (cut == 0 || cut == p->layer_count || p->free_links) return 1e9;
    for (int q = 0; q < p->region_count; q++)
        for (int way = 0; way < 2; way++) { /* the other stage before it, or after it */
            int own = p->type_region[type], n = p->costs->region_count, from = way ? own : q, to = way ? q : own;
            const LinkCharge *link = problem_link(p, cut, from, to);
            int64_t there = link->transfer_ns[0], back = link->transfer_ns[1];
            bool shared = n > 0 && p->costs->half_duplex && p->costs->half_duplex[from * n + to];
            best = fmin(best, (double)(shared ? there + back : larger(there, back)));
        }
    return room_for(time - d->there[cut], best);
}

/* Halves of a split backward take a sixteenth longer, also the one that ends last. */
static double stage_most(const Division *d, const ReplicaClass *c, int type, int start, int end, double time)
{
    const Problem *p = d->p;
    const double *put_off = d->put_off + (size_t)type * cuts(d);
    double work = (double)problem_work(p, type, start, end), forward = (double)problem_forward(p, type, start, end);
    double later = put_off[end] - put_off[start], backward = work - forward;
    double room = time - d->there[start] - (double)problem_update(p, type, start, end);
    double most = room_for(room, work);
    if (c->low > 1 && p->costs->region_count > 0) {
        double sums = 1e9 * d->link_s[type] * (c->summed_s[end] - c->summed_s[start]);
        double last = backward * (d->splits ? 17.0 / 16 : 1);
        if (sums > last) most = fmin(most, room_for(room + last - sums, work));
    }
    most = fmin(most, room_for(time - d->there[start] - d->back[start], work - later));
    if (end < p->layer_count) {
        most = fmin(most, room_for(room - forward - d->trip[end], backward));
        double last = d->trip[end] + d->back[start] + backward - later;
        most = fmin(most, room_for(time - d->there[start] - last, forward));
    }
    return fmin(most, fmin(pass_link(d, start, type, time), pass_link(d, end, type, time)));
}

static void find_most(Division *d, const ReplicaClass *c, double time)
{
    const Problem *p = d->p;
    bool holds_all = p->schedule != PLAN_AUTO && plan_schedule_traits(p->schedule).holds_all;
    for (int t = 0; t < p->type_count; t++)
        for (int start = 0; start < p->layer_count; start++)
            for (int end = start + 1; end <= p->layer_count; end++) {
                bool fits = (holds_all && c->low > 1) || problem_stage_fits(p, t, start, end, 1);
                double most = fits ? stage_most(d, c, t, start, end, time) + 1e-6 : 0;
                *most_of(d, t, start, end) = most < 1 ? 0 : most > p->microbatches ? p->microbatches : (int)most;
            }
}

/* ---- pipelines under prices ---- */

/* The cheapest for n micro-batches; INFINITY: there is none. */
static double pipeline_cost(Division *d, int n)
{
    const Problem *p = d->p;
    d->work -= (int64_t)p->type_count * p->layer_count * p->layer_count / 2;
    for (int end = 1; end <= p->layer_count; end++) {
        d->path[end] = INFINITY;
        for (int t = 0; t < p->type_count; t++)
            for (int start = end - 1; start >= 0; start--) {
                if (*most_of(d, t, start, end) < n || d->path[start] + d->price[t] >= d->path[end]) continue;
                d->path[end] = d->path[start] + d->price[t];
                d->from[end] = start;
                d->by[end] = t;
            }
    }
    return d->path[p->layer_count];
}

/* Adds `share` of the devices that the cheapest for n has. */
static void add_used(Division *d, int n, double share, double *used)
{
    if (share <= 0) return;
    pipeline_cost(d, n);
    for (int end = d->p->layer_count; end > 0; end = d->from[end]) used[d->by[end]] += share;
}

/* What pipelines for all micro-batches cost at least, and which devices they have, on average over the two sizes of
 * pipelines that are cheapest then. */
static double step_cost(Division *d, const ReplicaClass *c, double *used)
{
    int all = d->p->microbatches, most = all - c->low + 1, before = 0, after = 0;
    double mean = (double)all / c->low, best = INFINITY;
    bool one = c->low == c->high;
    for (int n = 1; n <= most; n++) d->cost[n] = pipeline_cost(d, n);
    for (int n = 1; n <= most && !one; n++)
        if (d->cost[n] * all / n < best) best = d->cost[n] * all / n, before = after = n;
    for (int a = 1; a <= most && a <= mean && one; a++)
        for (int b = (int)ceil(mean); b <= most; b++) {
            double share = a == b ? 1 : (b - mean) / (b - a);
            double cost = c->low * (share * d->cost[a] + (share < 1 ? (1 - share) * d->cost[b] : 0));
            if (cost < best) best = cost, before = a, after = b;
        }
    for (int t = 0; t < d->p->type_count; t++) used[t] = 0;
    if (best == INFINITY) return best;
    double share = before == after ? 1 : (after - mean) / (after - before), times = one ? c->low : (double)all / before;
    add_used(d, before, times * share, used);
    add_used(d, after, times * (1 - share), used);
    return best;
}

/* Whether it is certain that no plan with such a number of replicas takes `time`. All devices together cost 1. */
static bool is_impossible(Division *d, const ReplicaClass *c, double time)
{
    const Problem *p = d->p;
    double nothing = 1e-9;
    double *used = arena_new_array(&d->arena, double, (size_t)p->type_count);
    find_most(d, c, time);
    for (int i = 1; i <= PRICES && d->work > 0; i++) {
        double all = 0;
        if (step_cost(d, c, used) > 1 + nothing) return true;
        if (p->type_count == 1) return false;
        for (int t = 0; t < p->type_count; t++) {
            d->price[t] = fmax(d->price[t], nothing) * exp((used[t] / p->type_size[t] - 1) / sqrt(i));
            all += d->price[t] * p->type_size[t];
        }
        for (int t = 0; t < p->type_count; t++) d->price[t] /= all;
    }
    return false;
}

/* ---- the bound ---- */

static int find_classes(Division *d, ReplicaClass *classes)
{
    const Problem *p = d->p;
    int most = p->device_count < p->microbatches ? p->device_count : p->microbatches, count = 0;
    if (p->pin_count > 0) most = 1;
    for (int low = 1, high; low <= most; low = high + 1) {
        high = low <= ONE_BY_ONE ? low : low + low / 4 < most ? low + low / 4 : most;
        ReplicaClass *c = &classes[count++];
        *c = (ReplicaClass){.low = low, .high = high, .summed_s = arena_new_array(&d->arena, double, cuts(d))};
        double share = codecs_sum_share(p->costs->codecs) * 2 * (low - 1) / low;
        const LayerCost *layers = replica_layers(p->costs, low, p->microbatches, (p->microbatches + high - 1) / high,
                                                 p->costs->codecs, &d->arena);
        for (int l = 0; l < p->layer_count; l++)
            c->summed_s[l + 1] = c->summed_s[l] + share * (double)layers[l].summed_bytes;
    }
    return count;
}

/* Dear where it works fast. */
static void start_prices(Division *d)
{
    const Problem *p = d->p;
    double all = 0;
    for (int t = 0; t < p->type_count; t++) {
        d->price[t] = 1 / (double)larger(1, problem_work(p, t, 0, p->layer_count));
        all += d->price[t] * p->type_size[t];
    }
    for (int t = 0; t < p->type_count; t++) d->price[t] /= all;
}

static bool all_impossible(Division *d, ReplicaClass *classes, int count, int64_t time)
{
    for (int i = 0; i < count; i++) {
        if (classes[i].possible >= time) continue;
        start_prices(d);
        if (!is_impossible(d, &classes[i], (double)time)) {
            ReplicaClass first = classes[i];
            memmove(classes + 1, classes, (size_t)i * sizeof *classes);
            classes[0] = first; /* likely to be possible in less time, too */
            return false;
        }
        classes[i].possible = time;
    }
    return true;
}

static void create(Division *d, const Problem *p, bool splits)
{
    size_t types = (size_t)p->type_count;
    *d = (Division){.p = p, .splits = splits, .work = MOST_WORK};
    d->most = arena_new_array(&d->arena, int, types *cuts(d) * cuts(d));
    d->price = arena_new_array(&d->arena, double, types);
    d->cost = arena_new_array(&d->arena, double, (size_t)p->microbatches + 1);
    d->path = arena_new_array(&d->arena, double, cuts(d));
    d->from = arena_new_array(&d->arena, int, cuts(d));
    d->by = arena_new_array(&d->arena, int, cuts(d));
    find_least(d);
    find_links(d);
}

int64_t division_bound(const Problem *p, bool splits, int64_t low, int64_t high)
{
    enum { PART = 500 };
    double stages = (double)p->type_count * p->layer_count * p->layer_count / 2;
    ReplicaClass classes[MOST_CLASSES];
    Division d;
    if (p->costs->rows.microbatch_kinds || costs_keeper(p->costs) || p->microbatches > MOST_MICROBATCHES ||
        stages > MOST_STAGES)
        return low;
    create(&d, p, splits);
    int count = find_classes(&d, classes);
    while (high - low > low / PART + 1) {
        int64_t middle = low + (high - low) / 2;
        if (all_impossible(&d, classes, count, middle))
            low = middle;
        else
            high = middle;
    }
    arena_free(&d.arena);
    return low;
}
