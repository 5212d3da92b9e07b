#include "partitioner/solve/relaxation.h"

#include <string.h>

#include "base/hash.h"

/* ---- Reach: how far a stage may stretch ---- */

/* For each cut, the lowest start of a stage of `type` that ends there, by time alone. */
static void fill_low_by_time(const Problem *p, int type, int64_t cap, int64_t update_cap, int *low)
{
    size_t base = (size_t)type * (size_t)(p->layer_count + 1);
    const int64_t *work = p->work + base, *update = p->update + base;
    bool updates = p->has_update && update[p->layer_count] > update_cap;
    low[0] = 0;
    for (int end = 1, start = 0; end <= p->layer_count; end++) {
        while (start < end && work[end] - work[start] > cap) start++;
        while (updates && start < end && update[end] - update[start] > update_cap) start++;
        low[end] = start;
    }
}

/* The same by time and by memory, with `to_end` stages to the end, including this one. */
static void fill_low(const Problem *p, int type, int64_t cap, int64_t update_cap, int to_end, int *low)
{
    fill_low_by_time(p, type, cap, update_cap, low);
    if (!p->has_limits && !p->pinned_before) return; /* every stage fits */
    for (int end = 1, start = 0; end <= p->layer_count; end++) {
        if (start < low[end]) start = low[end];
        int first = start;
        if (!p->holes) {
            while (start < end && !problem_stage_fits(p, type, start, end, to_end)) start++;
            first = start;
        } else { /* takes the lowest start that fits; holes, starts above it that do not, are tested later */
            while (first < end && !problem_stage_fits(p, type, first, end, to_end)) first++;
        }
        low[end] = first;
    }
}

static void fill_rows(Relaxation *r, const int *type_of_row, int rows, int *low)
{
    const Problem *p = r->problem;
    size_t cuts = (size_t)p->layer_count + 1;
    int levels = r->levels > 0 ? r->levels : 1;
    for (int level = 0; level < levels; level++)
        for (int k = 0; k < rows && !r->late; k++, r->late = watch_passed(p->watch, 0))
            fill_low(p, type_of_row[k], r->cap, r->update_cap, level + 1,
                     low + ((size_t)level * (size_t)rows + (size_t)k) * cuts);
}

/* Drops levels from the end as long as they reach exactly as far as the level before. */
static void collapse_levels(Relaxation *r, int rows, const int *low)
{
    size_t row = (size_t)rows * (size_t)(r->problem->layer_count + 1);
    while (r->levels > 1 &&
           memcmp(low + (size_t)(r->levels - 1) * row, low + (size_t)(r->levels - 2) * row, row * sizeof *low) == 0)
        r->levels--;
    if (r->levels == 1) r->levels = 0;
}

/* ---- Regions that links join ---- */

void relaxation_components(const Problem *problem, int64_t cap, int *component)
{
    int regions = problem->region_count;
    for (int r = 0; r < regions; r++) component[r] = r;
    for (int cut = 1; cut < problem->layer_count; cut++)
        for (int a = 0; a < regions; a++)
            for (int b = 0; b < regions; b++) {
                int from = component[a], to = component[b];
                if (from == to || problem_link_period(problem, cut, a, b) > cap) continue;
                for (int r = 0; r < regions; r++) /* the smaller number stays */
                    if (component[r] == (from > to ? from : to)) component[r] = from < to ? from : to;
            }
}

/* The regions that the splits allow. */
static bool *open_regions(Relaxation *r, const Split *splits, int split_count)
{
    int regions = r->problem->region_count;
    bool *open = arena_new_array(&r->arena, bool, (size_t)regions);
    int *component = arena_new_array(&r->arena, int, (size_t)regions);
    for (int q = 0; q < regions; q++) open[q] = true;
    if (regions > 1) relaxation_components(r->problem, r->cap, component);
    for (int k = 0; k < split_count; k++)
        for (int q = 0; q < regions && splits[k].kind == SPLIT_REGION; q++)
            if ((component[q] == component[splits[k].region]) != splits[k].yes) open[q] = false;
    return open;
}

/* ---- links ---- */

static double link_cost(const Relaxation *r, int width, int from, int to)
{
    const LinkCharge *link = problem_width_link(r->problem, width, from, to);
    if (link->period > r->cap) return RELAXATION_INFINITY;
    return r->sums ? (double)link->sum : 0;
}

/* Of the cuts that there are. */
static int width_count(const Problem *p) { return p->layer_count > 1 ? p->width_count : 0; }

/* Whether all links from and to both regions cost the same, and links between them cost nothing. */
static bool same_links(const Relaxation *r, int a, int b)
{
    for (int w = 0; w < width_count(r->problem); w++) {
        if (link_cost(r, w, a, b) != 0 || link_cost(r, w, b, a) != 0 || link_cost(r, w, a, a) != 0) return false;
        for (int q = 0; q < r->problem->region_count; q++)
            if (link_cost(r, w, a, q) != link_cost(r, w, b, q) || link_cost(r, w, q, a) != link_cost(r, w, q, b))
                return false;
    }
    return true;
}

/* Zones are regions whose links cannot be told apart under the cap; links between zones get their costs. */
static void make_zones(Relaxation *r, const bool *open)
{
    const Problem *p = r->problem;
    int regions = p->region_count, *first = arena_new_array(&r->arena, int, (size_t)regions);
    r->zone_of = arena_new_array(&r->arena, int, (size_t)regions);
    for (int q = 0; q < regions; q++) {
        int zone = 0;
        if (!open[q]) continue;
        while (zone < r->zone_count && !same_links(r, first[zone], q)) zone++;
        if (zone == r->zone_count) first[r->zone_count++] = q;
        r->zone_of[q] = zone;
    }
    size_t zones = (size_t)r->zone_count, entries = (size_t)p->width_count * zones * zones;
    bool all_open = true;
    r->link = arena_new_array(&r->arena, double, entries);
    for (int w = 0; w < width_count(p); w++)
        for (size_t a = 0; a < zones; a++)
            for (size_t b = 0; b < zones; b++) {
                double cost = link_cost(r, w, first[a], first[b]);
                all_open &= cost < RELAXATION_INFINITY;
                r->link[((size_t)w * zones + a) * zones + b] = cost;
            }
    /* Without link costs, the shorter rest of a chain is never harder to cover, so every stage may stretch. */
    r->maximal = !r->sums && all_open && !p->holes;
}

/* ---- classes ---- */

typedef struct Grouping {
    int *type_of_row;   /* each device of a split has its own row, after the types */
    int *device_of_row; /* -1: all devices of the type without their own row */
    int *size;
    int rows;
    int *row_of; /* [device] */
} Grouping;

static void freeze_device(const Problem *p, Grouping *g, int device)
{
    g->size[p->type_of[device]]--;
    g->row_of[device] = CLASS_FROZEN;
}

/* Drops the rows without devices, which are most rows in a neighbourhood. */
static void drop_empty_rows(const Problem *p, Grouping *g)
{
    int kept = 0;
    for (int k = 0; k < g->rows; k++) {
        int row = kept;
        if (g->size[k] == 0) continue;
        g->type_of_row[row] = g->type_of_row[k];
        g->device_of_row[row] = g->device_of_row[k];
        g->size[row] = g->size[k];
        for (int d = 0; row != k && d < p->device_count; d++)
            if (g->row_of[d] == k) g->row_of[d] = row;
        kept++;
    }
    g->rows = kept;
}

static Grouping group_by_type(Relaxation *r, const Split *splits, int split_count, const Freeze *freeze)
{
    const Problem *p = r->problem;
    size_t room = (size_t)p->type_count + (size_t)p->device_count;
    Grouping g = {arena_new_array(&r->arena, int, room), arena_new_array(&r->arena, int, room),
                  arena_new_array(&r->arena, int, room), p->type_count,
                  arena_new_array(&r->arena, int, (size_t)p->device_count)};
    for (int t = 0; t < p->type_count; t++) g.type_of_row[t] = t, g.device_of_row[t] = -1, g.size[t] = p->type_size[t];
    for (int d = 0; d < p->device_count; d++) g.row_of[d] = p->type_of[d];
    for (int k = 0; freeze && k < freeze->allocation->stage_count; k++)
        if (freeze->frozen[k]) freeze_device(p, &g, freeze->allocation->device[k]);
    for (int d = 0; freeze && d < p->device_count; d++)
        if (freeze->left_out[d]) freeze_device(p, &g, d);
    for (int k = 0; k < split_count; k++) {
        int device = splits[k].device;
        if (splits[k].kind != SPLIT_DEVICE || g.row_of[device] >= p->type_count || g.size[g.row_of[device]] == 1)
            continue;
        g.size[g.row_of[device]]--;
        g.type_of_row[g.rows] = p->type_of[device];
        g.device_of_row[g.rows] = device;
        g.size[g.rows] = 1;
        g.row_of[device] = g.rows++;
    }
    drop_empty_rows(p, &g);
    return g;
}

/* Whether a split names the row; such rows stay apart whatever their reach. */
static bool is_split_row(const Grouping *g, int row, const Split *splits, int split_count)
{
    for (int k = 0; k < split_count; k++)
        if (splits[k].kind == SPLIT_DEVICE && g->row_of[splits[k].device] == row) return true;
    return false;
}

static bool same_reach(const Relaxation *r, int rows, const int *low, int a, int b)
{
    size_t cuts = (size_t)r->problem->layer_count + 1;
    for (int level = 0; level < (r->levels > 0 ? r->levels : 1); level++) {
        const int *base = low + (size_t)level * (size_t)rows * cuts;
        if (memcmp(base + (size_t)a * cuts, base + (size_t)b * cuts, cuts * sizeof *low) != 0) return false;
    }
    return true;
}

static void make_classes(Relaxation *r, const bool *open, const Split *splits, int split_count, const Freeze *freeze)
{
    const Problem *p = r->problem;
    size_t cuts = (size_t)p->layer_count + 1;
    Grouping g = group_by_type(r, splits, split_count, freeze);
    r->late = watch_passed(p->watch, 0);
    r->levels = r->late ? 0 : p->level_limit;
    size_t rows = (size_t)g.rows, levels = (size_t)(r->levels > 0 ? r->levels : 1);
    FREED_WITH(arena_free) Arena scratch = {0};
    size_t entries = levels * rows * cuts;
    int *low = arena_new_array(&scratch, int, entries), *class_of_row = arena_new_array(&scratch, int, rows);
    Hash *hash = arena_new_array(&scratch, Hash, rows);
    int *first_row = arena_new_array(&scratch, int, rows);
    fill_rows(r, g.type_of_row, g.rows, low);
    if (r->late) r->levels = 0;
    if (!p->holes) collapse_levels(r, g.rows, low);
    r->class_size = arena_new_array(&r->arena, int, rows);
    r->class_type = arena_new_array(&r->arena, int, rows);
    r->class_zone = arena_new_array(&r->arena, int, rows);
    for (int k = 0; k < g.rows; k++) {
        int c = r->class_count, region = p->type_region[g.type_of_row[k]], zone = r->zone_of[region];
        class_of_row[k] = CLASS_NONE;
        if (!open[region]) continue;
        if (!r->sums) hash[k] = hash_bytes(low + (size_t)k * cuts, cuts * sizeof *low);
        if (!r->sums && !p->holes && !is_split_row(&g, k, splits, split_count))
            for (c = 0; c < r->class_count; c++)
                if (r->class_zone[c] == zone && hash[first_row[c]].low == hash[k].low &&
                    !is_split_row(&g, first_row[c], splits, split_count) && same_reach(r, g.rows, low, first_row[c], k))
                    break;
        class_of_row[k] = c;
        if (c == r->class_count) {
            first_row[c] = k;
            r->class_type[c] = g.type_of_row[k];
            r->class_zone[c] = zone;
            r->class_count++;
        }
        r->class_size[c] += g.size[k];
    }
    r->class_of = arena_new_array(&r->arena, int, (size_t)p->device_count);
    for (int d = 0; d < p->device_count; d++)
        r->class_of[d] = g.row_of[d] == CLASS_FROZEN ? CLASS_FROZEN : class_of_row[g.row_of[d]];
    size_t kept = (size_t)(r->levels > 0 ? r->levels : 1), classes = (size_t)r->class_count;
    entries = kept * classes * cuts;
    r->low = arena_new_array(&r->arena, int, entries);
    for (size_t level = 0; level < kept; level++)
        for (size_t c = 0; c < classes; c++)
            memcpy(r->low + (level * classes + c) * cuts, low + (level * rows + (size_t)first_row[c]) * cuts,
                   cuts * sizeof *low);
}

/* ---- splits ---- */

static void split_cut(Relaxation *r, const Split *split)
{
    int cuts = r->problem->layer_count + 1, rows = (r->levels > 0 ? r->levels : 1) * r->class_count;
    if (!split->yes) {
        if (!r->closed) r->closed = arena_new_array(&r->arena, bool, (size_t)cuts);
        r->closed[split->cut] = true;
        return;
    }
    for (int row = 0; row < rows; row++) /* no stage crosses the cut */
        for (int end = split->cut + 1; end < cuts; end++) {
            int *low = &r->low[(size_t)row * (size_t)cuts + (size_t)end];
            if (*low < split->cut) *low = split->cut;
        }
}

static void split_device(Relaxation *r, const Split *split)
{
    int cuts = r->problem->layer_count + 1, c = r->class_of[split->device];
    if (!r->high) {
        size_t entries = (size_t)r->class_count * (size_t)cuts;
        r->high = arena_new_array(&r->arena, int, entries);
        for (int row = 0; row < r->class_count; row++)
            for (int end = 0; end < cuts; end++) r->high[row * cuts + end] = end;
    }
    for (int end = 1; end < cuts; end++) {
        int *high = &r->high[c * cuts + end];
        if (split->yes && *high > split->cut) *high = split->cut;
        for (int level = 0; !split->yes && level < (r->levels > 0 ? r->levels : 1); level++) {
            int *low = &r->low[((size_t)level * (size_t)r->class_count + (size_t)c) * (size_t)cuts + (size_t)end];
            if (*low < split->cut) *low = split->cut < end ? split->cut : end;
        }
    }
}

/* ---- frozen stages ---- */

static void clip_to_gaps(Relaxation *r, const Freeze *freeze)
{
    int cuts = r->problem->layer_count + 1, rows = (r->levels > 0 ? r->levels : 1) * r->class_count;
    const Allocation *a = freeze->allocation;
    /* The lowest start of a free stage that ends at the cut. */
    int *gap_start = arena_new_array(&r->arena, int, (size_t)cuts);
    r->frozen_start = arena_new_array(&r->arena, int, (size_t)cuts);
    r->frozen_device = arena_new_array(&r->arena, int, (size_t)cuts);
    r->inside_frozen = arena_new_array(&r->arena, bool, (size_t)cuts);
    for (int cut = 0; cut < cuts; cut++) r->frozen_start[cut] = -1;
    for (int k = 0, start = 0, gap = 0; k < a->stage_count; start = a->end[k++]) {
        for (int end = start + 1; end <= a->end[k]; end++) gap_start[end] = freeze->frozen[k] ? end : gap;
        if (!freeze->frozen[k]) continue;
        for (int end = start + 1; end < a->end[k]; end++) r->inside_frozen[end] = true;
        r->frozen_start[a->end[k]] = start;
        r->frozen_device[a->end[k]] = a->device[k];
        gap = a->end[k];
    }
    for (int row = 0; row < rows; row++)
        for (int end = 1; end < cuts; end++) {
            int *low = &r->low[(size_t)row * (size_t)cuts + (size_t)end];
            if (*low < gap_start[end]) *low = gap_start[end];
        }
}

/* A stage cannot start at a closed cut, so its lowest start is the next open one. */
static void skip_closed(Relaxation *r)
{
    int cuts = r->problem->layer_count + 1, rows = (r->levels > 0 ? r->levels : 1) * r->class_count;
    for (int row = 0; row < rows; row++)
        for (int end = 1; end < cuts; end++) {
            int *low = &r->low[(size_t)row * (size_t)cuts + (size_t)end];
            while (*low < end && r->closed[*low]) ++*low;
        }
}

static void transpose_low(Relaxation *r)
{
    int cuts = r->problem->layer_count + 1;
    size_t entries = (size_t)cuts * (size_t)r->class_count;
    r->low_by_cut = arena_new_array(&r->arena, int, entries);
    /* An impossible stage starts where it ends, where the potential is still infinite. */
    for (int c = 0; c < r->class_count; c++)
        for (int end = 0; end < cuts; end++) {
            int low = r->low[c * cuts + end];
            if (r->high && low >= r->high[c * cuts + end]) low = end;
            r->low_by_cut[end * r->class_count + c] = low;
        }
}

static void create(Relaxation *relaxation, const Problem *problem, int64_t cap, int64_t update_cap, bool sums,
                   const Split *splits, int split_count, const Freeze *freeze)
{
    memset(relaxation, 0, sizeof *relaxation);
    relaxation->problem = problem;
    relaxation->cap = cap;
    relaxation->update_cap = update_cap;
    relaxation->sums = relaxation->costed = sums;
    const bool *open = open_regions(relaxation, splits, split_count);
    make_zones(relaxation, open);
    make_classes(relaxation, open, splits, split_count, freeze);
    for (int k = 0; k < split_count; k++) {
        if (splits[k].kind == SPLIT_CUT) split_cut(relaxation, &splits[k]);
        if (splits[k].kind == SPLIT_DEVICE && relaxation->class_of[splits[k].device] >= 0)
            split_device(relaxation, &splits[k]);
    }
    if (freeze) clip_to_gaps(relaxation, freeze);
    if (relaxation->closed) skip_closed(relaxation);
    size_t entries =
        (size_t)(relaxation->levels + 1) * (size_t)relaxation->zone_count * (size_t)(problem->layer_count + 1);
    relaxation->potential = arena_new_array(&relaxation->arena, double, entries);
    relaxation->choice = arena_new_array(&relaxation->arena, int, entries);
    relaxation->least = arena_new_array(&relaxation->arena, double, (size_t)relaxation->zone_count);
    relaxation->least_class = arena_new_array(&relaxation->arena, int, (size_t)relaxation->zone_count);
    if (relaxation->maximal && relaxation->levels == 0 && relaxation->zone_count == 1) transpose_low(relaxation);
    int64_t rows = (int64_t)(relaxation->levels + 1) * (problem->type_count + relaxation->class_count);
    watch_count(problem->watch, WATCH_REACH, rows * problem->layer_count);
}

void relaxation_create(Relaxation *relaxation, const Problem *problem, int64_t cap, bool sums)
{
    create(relaxation, problem, cap, INT64_MAX, sums, NULL, 0, NULL);
}

void relaxation_create_capped(Relaxation *relaxation, const Problem *problem, int64_t cap, int64_t update_cap,
                              bool sums, const Split *splits, int split_count)
{
    create(relaxation, problem, cap, update_cap, sums, splits, split_count, NULL);
}

void relaxation_create_around(Relaxation *relaxation, const Problem *problem, int64_t cap, bool sums,
                              const Freeze *freeze)
{
    create(relaxation, problem, cap, INT64_MAX, sums, NULL, 0, freeze);
}

void relaxation_free(Relaxation *relaxation)
{
    arena_free(&relaxation->arena);
    memset(relaxation, 0, sizeof *relaxation);
}
