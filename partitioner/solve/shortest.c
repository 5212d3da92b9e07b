#include "partitioner/solve/shortest.h"

#include <stdlib.h>
#include <string.h>

#include "partitioner/solve/arcs.h"
#include "partitioner/solve/lanes.h"
#include "partitioner/solve/relaxation.h"

/* Classes that others undercut. Devices that are slow at everything are often free of charge and yet never used: a
 * class whose price is not below that of one at least as fast, which can take all its stages, is on no shortest path
 * that needs it, and shortest paths (shortest.c, lanes.c) need not look at it. */

typedef struct TypeSpeed {
    int class_index, zone;
    int64_t work;
} TypeSpeed;

static int by_speed(const void *a, const void *b)
{
    const TypeSpeed *x = a, *y = b;
    if (x->zone != y->zone) return x->zone - y->zone;
    if (x->work != y->work) return x->work < y->work ? -1 : 1;
    return x->class_index - y->class_index;
}

/* Whether `fast` can take every stage that `slow` can, in no more time. */
static bool is_undercut(const Relaxation *r, int slow, int fast)
{
    const Problem *p = r->problem;
    int n = p->layer_count, levels = r->levels > 0 ? r->levels : 1;
    const int64_t *a = p->work + (size_t)r->class_type[slow] * ((size_t)n + 1),
                  *b = p->work + (size_t)r->class_type[fast] * ((size_t)n + 1);
    if (r->class_zone[slow] != r->class_zone[fast]) return false;
    for (int l = 0; l < n; l++)
        if (a[l + 1] - a[l] < b[l + 1] - b[l]) return false;
    for (int level = 1; level <= levels; level++) {
        const int *x = relaxation_low(r, level, slow), *y = relaxation_low(r, level, fast);
        for (int end = 1; end <= n; end++)
            if (x[end] < y[end]) return false;
    }
    return true;
}

/* Fills `order` and `order_row`, in the relaxation's arena. For relaxations with sums, without holes and without splits
 * on devices, whose classes and `low` are settled. */
static void undercut_order(Relaxation *r)
{
    enum { LAST_ROWS = 4 };
    size_t classes = (size_t)r->class_count;
    int rows = 0, *last = arena_new_array(&r->arena, int, classes);
    TypeSpeed *speed = memory_allocate((classes + 1) * sizeof *speed);
    for (int c = 0; c < r->class_count; c++)
        speed[c] =
            (TypeSpeed){c, r->class_zone[c],
                        r->problem->work[((size_t)r->class_type[c] + 1) * ((size_t)r->problem->layer_count + 1) - 1]};
    qsort(speed, classes, sizeof *speed, by_speed);
    r->order = arena_new_array(&r->arena, int, classes);
    r->order_row = arena_new_array(&r->arena, int, classes);
    for (int k = 0; k < r->class_count; k++) {
        int c = speed[k].class_index, row = rows - 1;
        while (row >= 0 && row >= rows - LAST_ROWS && !is_undercut(r, c, last[row])) row--;
        if (row < 0 || row < rows - LAST_ROWS) row = rows++;
        r->order[k] = c;
        r->order_row[k] = row;
        last[row] = c;
    }
    free(speed);
    r->row_price = arena_new_array(&r->arena, double, classes);
}

/* Fills `active`, which has room for every class: those that none undercuts at these prices (one per class); all where
 * there is no order. */
static void undercut_choose(Relaxation *r, const double *price)
{
    r->active_count = 0;
    if (!r->order) {
        while (r->active_count < r->class_count) r->active[r->active_count] = r->active_count, r->active_count++;
        return;
    }
    for (int k = 0; k < r->class_count; k++) r->row_price[k] = RELAXATION_INFINITY;
    for (int k = 0; k < r->class_count; k++) {
        double *least = &r->row_price[r->order_row[k]];
        if (price[r->order[k]] >= *least) continue;
        *least = price[r->order[k]];
        r->active[r->active_count++] = r->order[k];
    }
}

typedef struct Window {
    int low, high; /* starts low ... high-1 */
    const double *potential, *work;
} Window;

static inline Window window_of(const Relaxation *r, int c, int end, int own)
{
    size_t cuts = (size_t)r->problem->layer_count + 1;
    Window w = {relaxation_low(r, own, c)[end], end, relaxation_potential(r, own, r->class_zone[c]),
                r->problem->work_f + (size_t)r->class_type[c] * cuts};
    if (r->high) w.high = r->high[(size_t)c * cuts + (size_t)end];
    if (r->maximal && w.low < w.high) w.high = w.low + 1;
    return w;
}

static bool in_hole(const Relaxation *r, int c, int start, int end, int own)
{
    return r->problem->holes && !problem_stage_fits(r->problem, r->class_type[c], start, end, own > 0 ? own : 1);
}

/* The starts in a class's window that could still be the cheapest, by rising start and rising cost. The front is the
 * cheapest; a new start removes all that cost as much or more. Windows only move forward, so each start enters and
 * leaves once however long stages are. */
static inline double cheapest_queued(const Relaxation *r, int c, int end, int own)
{
    Window w = window_of(r, c, end, own);
    size_t row = (size_t)(own > 0 ? own - 1 : 0) * (size_t)r->class_count + (size_t)c;
    StartQueue *queue = &r->queues[row];
    int *starts = r->queued + row * ((size_t)r->problem->layer_count + 1);
    int last = queue->last;
    for (int a = queue->next; a < w.high; a++) {
        double value = w.potential[a] - w.work[a];
        if (w.potential[a] >= RELAXATION_INFINITY / 2) continue;
        while (last > queue->first && w.potential[starts[last - 1]] - w.work[starts[last - 1]] >= value) last--;
        starts[last++] = a;
    }
    if (queue->next < w.high) queue->next = w.high;
    queue->last = last;
    while (queue->first < last && starts[queue->first] < w.low) queue->first++;
    if (queue->first == last) return RELAXATION_INFINITY;
    int best = starts[queue->first];
    return w.potential[best] - w.work[best] + w.work[end];
}

/* The cheapest stage of class c that ends at `end`, without its price. */
static inline double cheapest(Relaxation *r, int c, int end, int own)
{
    if (r->queues) return cheapest_queued(r, c, end, own);
    Window w = window_of(r, c, end, own);
    double least = RELAXATION_INFINITY;
    r->looked_at += w.high - w.low;
    for (int a = w.low; a < w.high; a++) {
        double value = w.potential[a] - (r->sums ? w.work[a] : 0);
        if (value < least && !in_hole(r, c, a, end, own)) least = value;
    }
    return r->sums ? least + w.work[end] : least;
}

/* Only the frozen stage ends at `end`. */
static void solve_frozen_end(Relaxation *r, int end, int own)
{
    const Problem *p = r->problem;
    int start = r->frozen_start[end], type = p->type_of[r->frozen_device[end]], zone = r->zone_of[p->type_region[type]];
    double before = relaxation_potential(r, own, zone)[start];
    if (before >= RELAXATION_INFINITY / 2 || !problem_stage_fits(p, type, start, end, own > 0 ? own : 1)) return;
    r->least[zone] = before + (r->sums ? (double)problem_work(p, type, start, end) : 0);
    r->least_class[zone] = CLASS_FROZEN;
}

/* Fills in per zone the least cost of a stage that ends at `end`, and its class. */
static void solve_end(Relaxation *r, const double *price, int end, int following)
{
    int own = relaxation_level(r, following), zones = r->zone_count;
    for (int q = 0; q < zones; q++) r->least[q] = RELAXATION_INFINITY, r->least_class[q] = CLASS_NONE;
    if (r->frozen_start && r->frozen_start[end] >= 0) {
        solve_frozen_end(r, end, own);
        return;
    }
    if (r->lanes) watch_count(r->problem->watch, WATCH_LANE, lanes_solve(r->lanes, r, end, r->stage));
    r->looked_at += (r->queues ? 4 : 1) * r->active_count + zones * zones;
    for (int k = 0; k < r->active_count; k++) {
        int c = r->active[k];
        double value = (r->lanes ? r->stage[c] : cheapest(r, c, end, own)) + price[c];
        int zone = r->class_zone[c];
        if (value >= r->least[zone]) continue;
        r->least[zone] = value;
        r->least_class[zone] = c;
    }
}

/* The common case without zones, levels or holes: every stage stretches as far as it can. */
static void solve_stretched(Relaxation *r, const double *price)
{
    size_t classes = (size_t)r->class_count;
    for (int end = 1; end <= r->problem->layer_count; end++) {
        r->potential[end] = RELAXATION_INFINITY;
        r->choice[end] = CLASS_NONE;
        if ((r->closed && r->closed[end]) || (r->inside_frozen && r->inside_frozen[end])) continue;
        if (r->frozen_start && r->frozen_start[end] >= 0) {
            r->potential[end] = r->potential[r->frozen_start[end]];
            r->choice[end] = CLASS_FROZEN;
            continue;
        }
        const int *low = r->low_by_cut + (size_t)end * classes;
        double least = RELAXATION_INFINITY;
        int best = CLASS_NONE;
        for (size_t c = 0; c < classes; c++) {
            double value = r->potential[low[c]] + price[c];
            if (value < least) least = value, best = (int)c;
        }
        r->potential[end] = best == CLASS_NONE || least >= RELAXATION_INFINITY / 2 ? RELAXATION_INFINITY : least;
        r->choice[end] = best;
    }
}

static void solve_cut(Relaxation *r, const double *price, int end, int following)
{
    const Problem *p = r->problem;
    int zones = r->zone_count;
    size_t cuts = (size_t)p->layer_count + 1, row = (size_t)following * (size_t)zones * cuts + (size_t)end;
    bool closed = (r->closed && r->closed[end]) || (r->inside_frozen && r->inside_frozen[end]);
    if (!closed) solve_end(r, price, end, following);
    for (int to = 0; to < zones; to++, row += cuts) {
        double least = RELAXATION_INFINITY;
        int best = CLASS_NONE;
        for (int from = 0; from < zones && !closed; from++) {
            double link = end < p->layer_count ? relaxation_link(r, end, from, to) : 0;
            double value = r->least[from] + link;
            if (value < least) least = value, best = r->least_class[from];
        }
        r->potential[row] = best == CLASS_NONE || least >= RELAXATION_INFINITY / 2 ? RELAXATION_INFINITY : least;
        r->choice[row] = best;
    }
}

/* ---- Data that the first question makes for all ---- */

static void prepare(Relaxation *r)
{
    const Problem *problem = r->problem;
    r->active = arena_new_array(&r->arena, int, (size_t)r->class_count);
    if (!r->sums || problem->holes) return;
    if (!r->high) undercut_order(r);
    r->lanes = lanes_create(r, &r->arena);
    r->stage = arena_new_array(&r->arena, double, (size_t)r->class_count);
    if (r->lanes) return;
    size_t rows = (size_t)(r->levels > 0 ? r->levels : 1) * (size_t)r->class_count;
    size_t entries = rows * ((size_t)problem->layer_count + 1);
    r->queues = arena_new_array(&r->arena, StartQueue, rows);
    r->queued = arena_new_array(&r->arena, int, entries);
}

/* ---- The shortest path ---- */

double shortest_solve(Relaxation *r, const double *price)
{
    const Problem *p = r->problem;
    int n = p->layer_count, zones = r->zone_count;
    size_t cuts = (size_t)n + 1;
    enum { OFTEN = 64 }; /* ends between two checks of the clock */
    if (r->late) return RELAXATION_INFINITY;
    if (r->arcs) return arcs_solve(r, price);
    for (int row = 0; row < (r->levels + 1) * zones; row++) r->potential[(size_t)row * cuts] = 0;
    if (r->low_by_cut) {
        watch_count(p->watch, WATCH_ARC, (int64_t)n * r->class_count);
        solve_stretched(r, price);
        return r->potential[n];
    }
    if (!r->active) prepare(r);
    r->looked_at = 0;
    undercut_choose(r, price);
    if (r->lanes) lanes_choose(r->lanes, r);
    if (r->queues)
        memset(r->queues, 0, (size_t)(r->levels > 0 ? r->levels : 1) * (size_t)r->class_count * sizeof *r->queues);
    for (int end = 1; end < n; end++) {
        if (end % OFTEN == 0 && (r->late = watch_passed(p->watch, 0))) return RELAXATION_INFINITY;
        for (int following = r->levels > 0; following <= r->levels; following++) solve_cut(r, price, end, following);
    }
    solve_cut(r, price, n, 0);
    watch_count(p->watch, WATCH_STAGE, r->looked_at);
    return r->potential[n]; /* no link after the last cut, so all zones have the same entry */
}

/* The start of the best stage of class c that ends at `end`. */
static int best_start(const Relaxation *r, int c, int end, int own)
{
    Window w = window_of(r, c, end, own);
    double least = RELAXATION_INFINITY;
    int best = -1;
    for (int a = w.low; a < w.high; a++) {
        double value = w.potential[a] - (r->sums ? w.work[a] : 0);
        if (value < least && !in_hole(r, c, a, end, own)) least = value, best = a;
    }
    return best;
}

void shortest_path(const Relaxation *r, Path *path)
{
    const Problem *p = r->problem;
    size_t cuts = (size_t)p->layer_count + 1;
    int count = 0, following = 0, next_zone = 0;
    path->cost = 0;
    for (int end = p->layer_count; end > 0;) {
        int c = r->choice[((size_t)following * (size_t)r->zone_count + (size_t)next_zone) * cuts + (size_t)end];
        if (c == CLASS_NONE) bug("no path back from cut %d", end);
        const Arc *arc = r->arcs ? &r->arcs[c] : NULL;
        if (arc) c = arc->class_index;
        bool frozen = c == CLASS_FROZEN;
        int own = relaxation_level(r, following);
        int start = arc ? arc->start : frozen ? r->frozen_start[end] : best_start(r, c, end, own);
        int type = frozen ? p->type_of[r->frozen_device[end]] : r->class_type[c],
            zone = r->zone_of[p->type_region[type]];
        if (arc) path->cost += arc->cost;
        if (r->sums) {
            if (!arc) path->cost += (double)problem_work(p, type, start, end);
            if (end < p->layer_count) path->cost += relaxation_link(r, end, zone, next_zone);
        }
        if (!frozen) {
            path->class_used[count] = c;
            path->end[count++] = end;
        }
        next_zone = zone;
        following = own;
        end = start;
    }
    path->stage_count = count;
    for (int k = 0; k < count / 2; k++) {
        int c = path->class_used[k], e = path->end[k];
        path->class_used[k] = path->class_used[count - 1 - k];
        path->end[k] = path->end[count - 1 - k];
        path->class_used[count - 1 - k] = c;
        path->end[count - 1 - k] = e;
    }
}

bool shortest_allocation(const Relaxation *r, const Path *path, Allocation *allocation)
{
    int devices = r->problem->device_count, *next = memory_allocate((size_t)(r->class_count + 1) * sizeof *next);
    bool enough = path->stage_count <= devices;
    for (int k = 0; k < path->stage_count && enough; k++) {
        int c = path->class_used[k];
        while (next[c] < devices && r->class_of[next[c]] != c) next[c]++;
        enough = next[c] < devices;
        allocation->device[k] = next[c]++;
        allocation->end[k] = path->end[k];
    }
    allocation->stage_count = path->stage_count;
    free(next);
    return enough;
}
