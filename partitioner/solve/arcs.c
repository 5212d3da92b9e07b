#include "partitioner/solve/arcs.h"

#include <stdlib.h>
#include <string.h>

/* ---- the cheapest way from a stage to the last cut ---- */

typedef struct Backward {
    const Relaxation *relaxation;
    const double *price;
    double *from; /* [zone][cut]: cheapest chain that starts at the cut with a stage in the zone */
} Backward;

/* The cheapest chain after a stage in `zone` that ends at `end`, including its link. */
static double following(const Backward *b, int zone, int end)
{
    const Relaxation *r = b->relaxation;
    size_t cuts = (size_t)r->problem->layer_count + 1;
    double least = RELAXATION_INFINITY;
    if (end == r->problem->layer_count) return 0;
    for (int next = 0; next < r->zone_count; next++) {
        double cost = b->from[(size_t)next * cuts + (size_t)end] + relaxation_link(r, end, zone, next);
        if (cost < least) least = cost;
    }
    return least;
}

/* ---- which stages stay ---- */

typedef struct ArcList {
    Arc *items;
    int count, capacity;
} ArcList;

typedef struct Reduction {
    Backward backward;
    double most;
    ArcList kept;
    int64_t seen;
} Reduction;

static void consider(Reduction *x, int c, int start, double cost, double rest)
{
    const Relaxation *r = x->backward.relaxation;
    int zone = r->class_zone[c];
    double onwards = x->backward.price[c] + cost + rest;
    double *from = &x->backward.from[(size_t)zone * (size_t)(r->problem->layer_count + 1) + (size_t)start];
    x->seen++;
    if (relaxation_potential(r, 0, zone)[start] + onwards > x->most) return;
    if (onwards < *from) *from = onwards;
    array_push(x->kept.items, x->kept.count, x->kept.capacity, ((Arc){start, c, cost}));
}

static void consider_window(Reduction *x, int c, int end, double rest)
{
    const Relaxation *r = x->backward.relaxation;
    const Problem *p = r->problem;
    size_t cuts = (size_t)p->layer_count + 1;
    int low = relaxation_low(r, 0, c)[end], high = r->high ? r->high[(size_t)c * cuts + (size_t)end] : end;
    if (r->maximal && low < high) high = low + 1;
    for (int start = low; start < high; start++) {
        if (r->closed && start > 0 && r->closed[start]) continue;
        if (p->holes && !problem_stage_fits(p, r->class_type[c], start, end, 1)) continue;
        consider(x, c, start, r->sums ? (double)problem_work(p, r->class_type[c], start, end) : 0, rest);
    }
}

/* The stages after `end` are done, so every chain from there on is known. */
static void consider_end(Reduction *x, int end, double *rest)
{
    const Relaxation *r = x->backward.relaxation;
    if (r->closed && end < r->problem->layer_count && r->closed[end]) return;
    for (int q = 0; q < r->zone_count; q++) rest[q] = following(&x->backward, q, end);
    if (!r->arcs) {
        for (int c = 0; c < r->class_count; c++)
            if (rest[r->class_zone[c]] < RELAXATION_INFINITY / 2) consider_window(x, c, end, rest[r->class_zone[c]]);
        return;
    }
    for (int k = r->first_arc[end]; k < r->first_arc[end] + r->arc_count[end]; k++) {
        const Arc *arc = &r->arcs[k];
        consider(x, arc->class_index, arc->start, arc->cost, rest[r->class_zone[arc->class_index]]);
    }
}

/* Keeps the solved potentials and turns the choices that lead back along them into arcs. */
static void take_arcs(Relaxation *r, ArcList *kept, const int *first, const int *count)
{
    size_t cuts = (size_t)r->problem->layer_count + 1;
    r->arcs = arena_copy(&r->arena, kept->items, (size_t)kept->count * sizeof(Arc));
    r->first_arc = arena_copy(&r->arena, first, cuts * sizeof *first);
    r->arc_count = arena_copy(&r->arena, count, cuts * sizeof *count);
}

bool arcs_reduce(Relaxation *r, const double *price, double most)
{
    if (r->levels > 0 || r->frozen_start) return false;
    FREED_WITH(arena_free) Arena scratch = {0};
    int n = r->problem->layer_count, zones = r->zone_count;
    size_t cuts = (size_t)n + 1, entries = (size_t)zones * cuts;
    Reduction x = {.backward = {r, price, arena_new_array(&scratch, double, entries)}, .most = most};
    int *first = arena_new_array(&scratch, int, cuts), *count = arena_new_array(&scratch, int, cuts);
    double *rest = arena_new_array(&scratch, double, (size_t)zones);
    for (size_t k = 0; k < entries; k++) x.backward.from[k] = RELAXATION_INFINITY;
    for (int end = n; end > 0; end--) {
        first[end] = x.kept.count;
        consider_end(&x, end, rest);
        count[end] = x.kept.count - first[end];
    }
    watch_count(r->problem->watch, WATCH_STAGE, x.seen);
    bool worth = x.kept.count < x.seen * 3 / 4;
    if (worth) take_arcs(r, &x.kept, first, count);
    free(x.kept.items);
    return worth;
}

void arcs_rebase(Relaxation *r, const double *price)
{
    int all = 0;
    for (int end = 1; end <= r->problem->layer_count; end++) all += r->arc_count[end];
    Arc *arcs = arena_copy(&r->arena, r->arcs, (size_t)all * sizeof *arcs);
    for (int k = 0; k < all; k++) arcs[k].cost += price[arcs[k].class_index];
    r->arcs = arcs;
    r->base = arena_copy(&r->arena, price, (size_t)r->class_count * sizeof *price);
    r->costed = true;
    r->allowance = 0;
    for (int c = 0; c < r->class_count; c++) r->allowance += price[c] * r->class_size[c];
}

/* ---- splits ---- */

static bool respects(const Relaxation *r, const Split *split, const Arc *arc, int end)
{
    int last = r->problem->layer_count;
    if (split->kind == SPLIT_DEVICE)
        return arc->class_index != r->class_of[split->device] || (arc->start < split->cut) == split->yes;
    if (split->yes) return split->cut <= arc->start || end <= split->cut;
    return (arc->start != split->cut || split->cut == 0) && (end != split->cut || split->cut == last);
}

/* Moves the device to a new last class with the same reach. Returns the class that it leaves. */
static int isolate(Relaxation *child, int device)
{
    int old = child->class_of[device], fresh = child->class_count++;
    size_t classes = (size_t)fresh + 1, devices = (size_t)child->problem->device_count;
    size_t cuts = (size_t)child->problem->layer_count + 1, entries = classes * cuts;
    int *low = arena_new_array(&child->arena, int, entries); /* a relaxation with arcs has no levels */
    memcpy(low, child->low, (size_t)fresh * cuts * sizeof *low);
    memcpy(low + (size_t)fresh * cuts, child->low + (size_t)old * cuts, cuts * sizeof *low);
    child->low = low;
    int **by_class[] = {&child->class_size, &child->class_type, &child->class_zone};
    for (size_t k = 0; k < 3; k++) {
        int *grown = arena_new_array(&child->arena, int, classes);
        memcpy(grown, *by_class[k], (size_t)fresh * sizeof *grown);
        grown[fresh] = grown[old];
        *by_class[k] = grown;
    }
    child->class_size[old]--;
    child->class_size[fresh] = 1;
    child->class_type[fresh] = child->problem->type_of[device];
    child->class_of = arena_copy(&child->arena, child->class_of, devices * sizeof *child->class_of);
    child->class_of[device] = fresh;
    if (!child->base) return old;
    double *base = arena_new_array(&child->arena, double, classes);
    memcpy(base, child->base, (size_t)fresh * sizeof *base);
    base[fresh] = base[old];
    child->base = base;
    return old;
}

void arcs_restrict(Relaxation *child, const Relaxation *parent, const Split *split)
{
    *child = *parent;
    child->arena = (Arena){0};
    int n = parent->problem->layer_count, zones = parent->zone_count, all = 0, shared = CLASS_NONE;
    size_t cuts = (size_t)n + 1, entries = (size_t)zones * cuts;
    if (split->kind == SPLIT_DEVICE && parent->class_size[parent->class_of[split->device]] > 1)
        shared = isolate(child, split->device);
    int *first = arena_new_array(&child->arena, int, cuts), *count = arena_new_array(&child->arena, int, cuts);
    for (int end = 1; end <= n; end++) all += parent->arc_count[end];
    Arc *arcs = arena_new_array(&child->arena, Arc, (size_t)(shared >= 0 ? 2 * all : all));
    for (int end = n, kept = 0; end > 0; end--) {
        first[end] = kept;
        for (int k = 0; k < parent->arc_count[end]; k++) {
            Arc arc = parent->arcs[parent->first_arc[end] + k];
            if (respects(child, split, &arc, end)) arcs[kept++] = arc;
            if (arc.class_index != shared) continue;
            arc.class_index = child->class_count - 1;
            if (respects(child, split, &arc, end)) arcs[kept++] = arc;
        }
        count[end] = kept - first[end];
    }
    watch_count(child->problem->watch, WATCH_STAGE, all);
    child->arcs = arcs;
    child->first_arc = first;
    child->arc_count = count;
    child->potential = arena_new_array(&child->arena, double, entries);
    child->choice = arena_new_array(&child->arena, int, entries);
    child->least = arena_new_array(&child->arena, double, (size_t)zones);
    child->least_class = arena_new_array(&child->arena, int, (size_t)zones);
}

bool arcs_contain(const Relaxation *r, int class_index, int start, int end)
{
    for (int k = r->first_arc[end]; k < r->first_arc[end] + r->arc_count[end]; k++)
        if (r->arcs[k].class_index == class_index && r->arcs[k].start == start) return true;
    return false;
}

/* ---- shortest paths ---- */

/* Without zones: a stage that ends at the last cut or before a link that costs nothing. */
static double solve_alone(Relaxation *r, const double *price)
{
    int n = r->problem->layer_count;
    double *potential = r->potential;
    potential[0] = 0;
    for (int end = 1; end <= n; end++) {
        double least = RELAXATION_INFINITY;
        int best = CLASS_NONE;
        for (int k = r->first_arc[end], last = k + r->arc_count[end]; k < last; k++) {
            const Arc *arc = &r->arcs[k];
            double value = potential[arc->start] + (price[arc->class_index] + arc->cost);
            if (value < least) least = value, best = k;
        }
        potential[end] = least < RELAXATION_INFINITY / 2 ? least : RELAXATION_INFINITY;
        r->choice[end] = best;
    }
    return potential[n];
}

static void solve_end(Relaxation *r, const double *price, int end)
{
    int n = r->problem->layer_count, zones = r->zone_count;
    size_t cuts = (size_t)n + 1;
    for (int q = 0; q < zones; q++) r->least[q] = RELAXATION_INFINITY, r->least_class[q] = CLASS_NONE;
    for (int k = r->first_arc[end], last = k + r->arc_count[end]; k < last; k++) {
        const Arc *arc = &r->arcs[k];
        int zone = r->class_zone[arc->class_index];
        double value = r->potential[(size_t)zone * cuts + (size_t)arc->start] + (price[arc->class_index] + arc->cost);
        if (value < r->least[zone]) r->least[zone] = value, r->least_class[zone] = k;
    }
    for (int to = 0; to < zones; to++) {
        double least = RELAXATION_INFINITY;
        int best = CLASS_NONE;
        for (int from = 0; from < zones; from++) {
            double value = r->least[from] + (end < n ? relaxation_link(r, end, from, to) : 0);
            if (value < least) least = value, best = r->least_class[from];
        }
        r->potential[(size_t)to * cuts + (size_t)end] = least < RELAXATION_INFINITY / 2 ? least : RELAXATION_INFINITY;
        r->choice[(size_t)to * cuts + (size_t)end] = best;
    }
}

double arcs_solve(Relaxation *r, const double *price)
{
    int n = r->problem->layer_count, zones = r->zone_count;
    int64_t arcs = 0;
    for (int end = 1; end <= n; end++) arcs += r->arc_count[end] + zones * zones;
    watch_count(r->problem->watch, WATCH_ARC, arcs);
    if (zones == 1) return solve_alone(r, price);
    for (int q = 0; q < zones; q++) r->potential[(size_t)q * ((size_t)n + 1)] = 0;
    for (int end = 1; end <= n; end++) solve_end(r, price, end);
    return r->potential[n];
}
