#include "partitioner/solve/search.h"

#include <stdlib.h>
#include <string.h>

#include "partitioner/sizes.h"

/* A partial plan: the stages from `start` to the end. */
typedef struct Label {
    double bound; /* rank; for sums: the least step of a completion; for feasibility: minus the spare prices */
    double sum;
    double spare; /* prices of the devices left */
    int64_t period, update;
    uint64_t key; /* of the devices used */
    int parent, class_index, start, level, region, zone;
} Label;

/* Most bytes for the lists of used devices; a search that needs more is narrowed. */
enum { MEMORY = 1 << 28 };

typedef struct Bucket {
    Label *items;
    int count, capacity;
    double worst; /* bound of the last label kept when the bucket was thinned; else 0 */
    bool thinned;
} Bucket;

typedef struct Option {
    double cost; /* to cover everything before a stage of the class, and its price */
    int class_index;
} Option;

typedef struct Search {
    const Relaxation *relaxation;
    const Problem *problem;
    const double *price;
    SearchLimits limits;
    double update_low;
    uint64_t *random; /* [class] */
    Bucket *buckets;  /* [cut]: candidates */
    Label *kept;
    int kept_count, kept_capacity;
    uint16_t *used; /* [kept label][class] */
    size_t used_capacity;
    Option *options; /* scratch [class]: for stretched stages that end at the cut at hand, cheapest first */
    int option_count;
    int stride; /* stages start at its multiples, and as early as they can; 1: anywhere */
    int *table; /* hash table over the kept labels of one cut: index + 1 */
    int *chain; /* [kept]: next of the same slot, + 1 */
    int chain_capacity;
    int table_size;
    int64_t extended; /* labels since the last count */
    int goal;         /* kept label that covers everything, or -1 */
    Label goal_label;
    bool overflow;
} Search;

static int compare_labels(const void *a, const void *b)
{
    const Label *x = a, *y = b;
    if (x->bound != y->bound) return x->bound < y->bound ? -1 : 1;
    if (x->sum != y->sum) return x->sum < y->sum ? -1 : 1;
    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    if (x->parent != y->parent) return x->parent < y->parent ? -1 : 1;
    return x->class_index - y->class_index;
}

/* Keeps the best labels of an overfull bucket, more than `width` because duplicates are only found later. */
static void push(Search *s, Label label)
{
    Bucket *bucket = &s->buckets[label.start];
    if (bucket->thinned && label.bound >= bucket->worst) return;
    array_push(bucket->items, bucket->count, bucket->capacity, label);
    if (bucket->count < 8 * s->limits.width) return;
    qsort(bucket->items, (size_t)bucket->count, sizeof *bucket->items, compare_labels);
    bucket->count = 4 * s->limits.width;
    bucket->worst = bucket->items[bucket->count - 1].bound;
    bucket->thinned = s->overflow = true;
}

static void finish(Search *s, const Label *label)
{
    s->goal = 1;
    s->goal_label = *label;
    if (s->relaxation->sums) s->limits.best = label->bound;
}

/* The label with one more stage (start, end) of a device of `type` in front. */
static void extend(Search *s, const Label *from, int from_index, int c, int type, int start, int end, double link)
{
    const Relaxation *r = s->relaxation;
    const Problem *p = s->problem;
    s->extended++;
    int region = p->type_region[type], zone = r->zone_of[region], own = relaxation_level(r, from->level);
    double rest = relaxation_potential(r, own, zone)[start], spare = from->spare - (c >= 0 ? s->price[c] : 0);
    double bound = rest - spare, sum = 0;
    int64_t period = 0, update = 0;
    if (!r->sums) {
        if (bound > 0) return;
    } else {
        int64_t work = problem_work(p, type, start, end);
        sum = from->sum + (double)work + link;
        period = work > from->period ? work : from->period;
        if (from_index >= 0 && !p->free_links) {
            int64_t busy = problem_link_period(p, end, region, from->region);
            if (busy > period) period = busy;
        }
        if (p->has_update) {
            update = problem_update(p, type, start, end);
            if (from->update > update) update = from->update;
        }
        int64_t least_period = period > s->limits.period_low ? period : s->limits.period_low;
        double least_update = (double)update > s->update_low ? (double)update : s->update_low;
        double open = start > 0 && bound > 0 ? bound : 0; /* a complete plan's value is exact */
        if (start == 0) least_period = period, least_update = (double)update;
        bound = sum + open + problem_rounds(p, (double)least_period) + least_update;
        if (bound >= s->limits.best) return;
    }
    Label label = {.bound = bound,
                   .sum = sum,
                   .spare = spare,
                   .period = period,
                   .update = update,
                   .key = from->key + (c >= 0 ? s->random[c] : 0),
                   .parent = from_index,
                   .class_index = c,
                   .start = start,
                   .level = own,
                   .region = region,
                   .zone = zone};
    if (start == 0)
        finish(s, &label);
    else
        push(s, label);
}

static int used_count(const Search *s, int kept, int c)
{
    return kept < 0 ? 0 : s->used[(size_t)kept * (size_t)s->relaxation->class_count + (size_t)c];
}

/* The link from a stage of `zone` that ends where the label starts; infinite where it is too slow. */
static double link_from(const Search *s, const Label *from, int from_index, int zone)
{
    return from_index >= 0 ? relaxation_link(s->relaxation, from->start, zone, from->zone) : 0;
}

static void extend_frozen(Search *s, const Label *from, int index)
{
    const Relaxation *r = s->relaxation;
    const Problem *p = s->problem;
    int end = from->start, start = r->frozen_start[end], type = p->type_of[r->frozen_device[end]];
    int own = relaxation_level(r, from->level);
    double link = link_from(s, from, index, r->zone_of[p->type_region[type]]);
    if (link < RELAXATION_INFINITY / 2 && problem_stage_fits(p, type, start, end, own > 0 ? own : 1))
        extend(s, from, index, CLASS_FROZEN, type, start, end, link);
}

static void extend_class(Search *s, const Label *from, int index, int c)
{
    const Relaxation *r = s->relaxation;
    const Problem *p = s->problem;
    int end = from->start, own = relaxation_level(r, from->level), low = relaxation_low(r, own, c)[end], high = end;
    double link = link_from(s, from, index, r->class_zone[c]);
    if (link >= RELAXATION_INFINITY / 2) return;
    if (r->high) high = r->high[(size_t)c * (size_t)(p->layer_count + 1) + (size_t)end];
    if (r->maximal && low < high) high = low + 1;
    for (int start = low; start < high && !(s->goal >= 0 && !r->sums); start += s->stride - start % s->stride) {
        if (r->closed && start > 0 && r->closed[start]) continue;
        if (p->holes && !problem_stage_fits(p, r->class_type[c], start, end, own > 0 ? own : 1)) continue;
        extend(s, from, index, c, r->class_type[c], start, end, link);
    }
}

static void extend_arcs(Search *s, const Label *from, int index)
{
    const Relaxation *r = s->relaxation;
    int end = from->start;
    for (int k = r->first_arc[end]; k < r->first_arc[end] + r->arc_count[end]; k++) {
        const Arc *arc = &r->arcs[k];
        int c = arc->class_index;
        double link = link_from(s, from, index, r->class_zone[c]);
        if (used_count(s, index, c) < r->class_size[c] && link < RELAXATION_INFINITY / 2)
            extend(s, from, index, c, r->class_type[c], arc->start, end, link);
        if (s->goal >= 0 && !r->sums) return;
    }
}

static int compare_options(const void *a, const void *b)
{
    const Option *x = a, *y = b;
    if (x->cost != y->cost) return x->cost < y->cost ? -1 : 1;
    return x->class_index - y->class_index;
}

/* Sorts the stretched stages, which differ only by class, so that labels can skip those that they cannot afford. */
static void sort_options(Search *s, int end)
{
    const Relaxation *r = s->relaxation;
    s->option_count = 0;
    for (int c = 0; c < r->class_count; c++) {
        int low = r->low_by_cut[(size_t)end * (size_t)r->class_count + (size_t)c];
        double cost = relaxation_potential(r, 0, 0)[low] + s->price[c];
        if (low < end && cost < RELAXATION_INFINITY / 2) s->options[s->option_count++] = (Option){cost, c};
    }
    qsort(s->options, (size_t)s->option_count, sizeof *s->options, compare_options);
}

static void extend_options(Search *s, const Label *from, int index)
{
    const Relaxation *r = s->relaxation;
    int end = from->start;
    for (int k = 0; k < s->option_count && s->options[k].cost <= from->spare && s->goal < 0; k++) {
        int c = s->options[k].class_index, low = r->low_by_cut[(size_t)end * (size_t)r->class_count + (size_t)c];
        if (used_count(s, index, c) < r->class_size[c]) extend(s, from, index, c, r->class_type[c], low, end, 0);
    }
}

/* `index` of a kept label; -1: the empty plan. */
static void extend_all(Search *s, int index)
{
    const Relaxation *r = s->relaxation;
    Label from = {.parent = -1, .class_index = CLASS_NONE, .start = s->problem->layer_count};
    if (index >= 0) from = s->kept[index];
    for (int c = 0; c < r->class_count && index < 0; c++) from.spare += s->price[c] * r->class_size[c];
    if (r->frozen_start && r->frozen_start[from.start] >= 0) {
        extend_frozen(s, &from, index);
        return;
    }
    if (r->arcs) {
        extend_arcs(s, &from, index);
        return;
    }
    if (r->low_by_cut) {
        if (index < 0) sort_options(s, from.start);
        extend_options(s, &from, index);
        return;
    }
    for (int c = 0; c < r->class_count; c++)
        if (used_count(s, index, c) < r->class_size[c]) extend_class(s, &from, index, c);
}

/* Compares exactly, because a proof may not rely on equal keys. */
static bool used_the_same(const Search *s, const Label *label, int kept)
{
    for (int c = 0; c < s->relaxation->class_count; c++)
        if (used_count(s, label->parent, c) + (c == label->class_index) != used_count(s, kept, c)) return false;
    return true;
}

/* Whether a kept label of this cut uses the same devices and is at least as good in everything. */
static bool is_dominated(const Search *s, const Label *label, int slot)
{
    for (int i = s->table[slot] - 1; i >= 0; i = s->chain[i] - 1) {
        const Label *other = &s->kept[i];
        if (other->key != label->key || other->zone != label->zone) continue;
        if (!s->relaxation->sums ||
            (other->sum <= label->sum && other->period <= label->period && other->update <= label->update))
            if (used_the_same(s, label, i)) return true;
    }
    return false;
}

static void keep(Search *s, const Label *label, int slot)
{
    size_t classes = (size_t)s->relaxation->class_count;
    int index = s->kept_count;
    array_push(s->kept, s->kept_count, s->kept_capacity, *label);
    if ((size_t)s->kept_count > s->used_capacity) {
        s->used_capacity = (size_t)s->kept_capacity;
        s->used = memory_resize(s->used, s->used_capacity * classes, sizeof *s->used);
        s->chain = memory_resize(s->chain, s->used_capacity, sizeof *s->chain);
    }
    uint16_t *used = s->used + (size_t)index * classes;
    if (label->parent >= 0)
        memcpy(used, s->used + (size_t)label->parent * classes, classes * sizeof *used);
    else
        memset(used, 0, classes * sizeof *used);
    if (label->class_index >= 0) used[label->class_index]++;
    s->chain[index] = s->table[slot];
    s->table[slot] = index + 1;
}

/* Sorts and thins the candidates of a cut and extends those that stay. */
static void process(Search *s, int cut)
{
    Bucket *bucket = &s->buckets[cut];
    int first = s->kept_count, kept = 0;
    if (bucket->count == 0) return;
    watch_count(s->problem->watch, WATCH_KEPT, bucket->count);
    qsort(bucket->items, (size_t)bucket->count, sizeof *bucket->items, compare_labels);
    memset(s->table, 0, (size_t)s->table_size * sizeof *s->table);
    for (int i = 0; i < bucket->count; i++) {
        const Label *label = &bucket->items[i];
        int slot = (int)(label->key % (uint64_t)s->table_size);
        if (s->relaxation->sums && label->bound >= s->limits.best) break;
        if (is_dominated(s, label, slot)) continue;
        if (kept++ == s->limits.width) {
            s->overflow = true;
            break;
        }
        keep(s, label, slot);
    }
    free(bucket->items);
    *bucket = (Bucket){0};
    if (s->relaxation->low_by_cut && !s->relaxation->arcs) sort_options(s, cut);
    for (int i = first, last = s->kept_count; i < last && !(s->goal >= 0 && !s->relaxation->sums); i++)
        extend_all(s, i);
}

/* Gives the devices of each class to its stages in ascending order. */
static void read_goal(const Search *s, Allocation *allocation)
{
    const Relaxation *r = s->relaxation;
    const Problem *p = s->problem;
    int *next = memory_allocate((size_t)(r->class_count + 1) * sizeof *next), count = 0;
    for (const Label *label = &s->goal_label; label; label = label->parent >= 0 ? &s->kept[label->parent] : NULL) {
        int c = label->class_index;
        if (c == CLASS_FROZEN) {
            allocation->device[count] =
                r->frozen_device[label->parent >= 0 ? s->kept[label->parent].start : p->layer_count];
        } else {
            while (r->class_of[next[c]] != c) next[c]++;
            allocation->device[count] = next[c]++;
        }
        if (count > 0) allocation->end[count - 1] = label->start;
        allocation->end[count++] = p->layer_count;
    }
    allocation->stage_count = count;
    free(next);
}

/* The largest update is at least the average with every layer on its fastest device. */
static double least_update(const Relaxation *r)
{
    const Problem *p = r->problem;
    double total = 0, largest = 0;
    for (int l = 0; p->has_update && l < p->layer_count; l++) {
        double least = RELAXATION_INFINITY;
        for (int t = 0; t < p->type_count; t++) {
            double update = (double)problem_update(p, t, l, l + 1);
            if (update < least) least = update;
        }
        total += least;
        if (least > largest) largest = least;
    }
    double mean = total / p->device_count;
    return mean > largest ? mean : largest;
}

/* Stages of few devices and many layers have many starts, so that all pairs of a start and an end are ever more for
 * every layer more: starts that lie close together stand for each other. */
static int choose_stride(const Relaxation *r, bool rough)
{
    const int *low = relaxation_low(r, r->levels, 0);
    int cuts = r->problem->layer_count + 1, stride = 1;
    int64_t starts = 0, stages = (int64_t)cuts * r->class_count, most = rough ? SIZE_ROUGH_STARTS : SIZE_SEARCH_STARTS;
    bool all = r->arcs || r->maximal || size_is_small(r->problem);
    for (int64_t i = 0; i < stages && !all; i++) starts += i % cuts - low[i];
    while (starts / stride / stride > most && starts / stages >= (int64_t)SIZE_SEARCH_WINDOW * 2 * stride) stride *= 2;
    return stride;
}

SearchResult search_plans(const Relaxation *relaxation, const double *price, SearchLimits limits,
                          Allocation *allocation)
{
    FREED_WITH(arena_free) Arena arena = {0};
    const Problem *p = relaxation->problem;
    Search s = {.relaxation = relaxation, .problem = p, .price = price, .limits = limits, .goal = -1};
    int64_t room = MEMORY / (2 * ((int64_t)p->layer_count + 1) * (relaxation->class_count + 1));
    if (s.limits.width > room) s.limits.width = room > 16 ? (int)room : 16;
    s.update_low = least_update(relaxation);
    s.random = arena_new_array(&arena, uint64_t, (size_t)relaxation->class_count);
    uint64_t state = 0x243f6a8885a308d3u;
    for (int c = 0; c < relaxation->class_count; c++) {
        state += 0x9e3779b97f4a7c15u; /* splitmix64 */
        uint64_t z = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        s.random[c] = z ^ (z >> 31);
    }
    s.buckets = arena_new_array(&arena, Bucket, (size_t)p->layer_count + 1);
    s.table_size = 2 * (s.limits.width < 100000 ? s.limits.width : 100000) + 1;
    s.table = arena_new_array(&arena, int, (size_t)s.table_size);
    s.options = arena_new_array(&arena, Option, (size_t)relaxation->class_count);
    s.stride = choose_stride(relaxation, limits.rough);
    s.overflow = relaxation->late || s.stride > 1;
    if (!relaxation->late) extend_all(&s, -1);
    for (int cut = p->layer_count - 1; cut > 0 && !(s.goal >= 0 && !relaxation->sums); cut--) {
        process(&s, cut);
        watch_count(p->watch, WATCH_LABEL, s.extended);
        s.extended = 0;
        if (watch_passed(p->watch, limits.deadline)) {
            s.overflow = true;
            break;
        }
    }
    SearchResult result = {s.goal >= 0, !s.overflow};
    if (result.found) read_goal(&s, allocation);
    for (int cut = 0; cut <= p->layer_count; cut++) free(s.buckets[cut].items);
    free(s.kept);
    free(s.used);
    free(s.chain);
    return result;
}
