#include "partitioner/solve/undercut.h"

#include <stdlib.h>

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

void undercut_order(Relaxation *r)
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

void undercut_choose(Relaxation *r, const double *price)
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
