/* Transfers that share a line: processor sharing, in which none gets more than it can use. */
#include <math.h>
#include <stdlib.h>

#include "base/arena.h"
#include "federation/planning/simulate_rounds.h"

/* Transfers of one start and one cap fare alike. */
typedef struct Kind {
    double start, cap, left, rate, end;
    int count;
} Kind;

typedef struct Transfer {
    double start, cap;
    int number;
} Transfer;

static int by_cap(const void *a, const void *b)
{
    const Transfer *left = a, *right = b;
    if (left->cap != right->cap) return left->cap < right->cap ? -1 : 1;
    return left->start < right->start ? -1 : left->start > right->start;
}

/* Kinds come by rising caps: who cannot use an equal part leaves the rest of it to those behind. */
static void set_rates(Kind *kinds, int count, double now, double line)
{
    double transfers = 0;
    for (int k = 0; k < count; k++)
        if (kinds[k].left > 0 && kinds[k].start <= now) transfers += kinds[k].count;
    for (int k = 0; k < count; k++) {
        Kind *kind = &kinds[k];
        kind->rate = 0;
        if (!(kind->left > 0 && kind->start <= now)) continue;
        kind->rate = fmin(kind->cap, line / transfers);
        if (isfinite(line)) line -= kind->rate * kind->count;
        transfers -= kind->count;
    }
}

static double next_event(const Kind *kinds, int count, double now)
{
    double next = INFINITY;
    for (int k = 0; k < count; k++) {
        if (!(kinds[k].left > 0)) continue;
        next = fmin(next, kinds[k].start > now ? kinds[k].start : now + kinds[k].left / kinds[k].rate);
    }
    return next;
}

static void run(Kind *kinds, int count, double line)
{
    double now = INFINITY;
    for (int k = 0; k < count; k++) now = fmin(now, kinds[k].start);
    for (;;) {
        set_rates(kinds, count, now, line);
        double next = next_event(kinds, count, now);
        if (isinf(next)) return;
        for (int k = 0; k < count; k++) {
            Kind *kind = &kinds[k];
            if (!(kind->rate > 0)) continue;
            double done = now + kind->left / kind->rate;
            kind->left = done <= next ? 0 : kind->left - kind->rate * (next - now);
            if (done <= next) kind->end = done;
        }
        now = next;
    }
}

void share_line(const double *start, const double *cap, int count, double bytes, double line_Bps, double *end)
{
    Transfer *transfers = memory_allocate((size_t)count * sizeof *transfers);
    Kind *kinds = memory_allocate((size_t)count * sizeof *kinds);
    int *kind_of = memory_allocate((size_t)count * sizeof *kind_of), kind_count = 0;
    for (int i = 0; i < count; i++) transfers[i] = (Transfer){start[i], cap[i], i};
    qsort(transfers, (size_t)count, sizeof *transfers, by_cap);
    for (int i = 0; i < count; i++) {
        const Transfer *transfer = &transfers[i];
        Kind *last = kind_count ? &kinds[kind_count - 1] : NULL;
        if (!last || last->start != transfer->start || last->cap != transfer->cap)
            kinds[kind_count++] = (Kind){.start = transfer->start, .cap = transfer->cap, .left = bytes};
        kinds[kind_count - 1].count++;
        kind_of[transfer->number] = kind_count - 1;
    }
    run(kinds, kind_count, line_Bps);
    for (int i = 0; i < count; i++) end[i] = kinds[kind_of[i]].end;
    free(kind_of);
    free(kinds);
    free(transfers);
}
