/* First plans of large problems. Prices tell which devices are worth using, and a plan with stages of about equal
 * length on just those is close to the best step. */
#include <stdlib.h>
#include <string.h>

#include "partitioner/solve/prices.h"
#include "partitioner/solve/search.h"
#include "partitioner/solve/shortest.h"
#include "partitioner/solve/solver.h"

enum { ITERATIONS = 300, WIDTH = 64, TRIES = 12 };

typedef struct Worth {
    double price;
    int device;
} Worth;

static int by_worth(const void *a, const void *b)
{
    const Worth *x = a, *y = b;
    if (x->price != y->price) return x->price > y->price ? -1 : 1;
    return x->device - y->device;
}

typedef enum Outcome { REFUTED, NOT_FOUND, FOUND } Outcome;

/* Whether there is a plan of this period without the devices left out. */
static Outcome try_period(Solver *s, int64_t cap, const bool *left_out)
{
    Relaxation r;
    Allocation empty = {0};
    Freeze freeze = {&empty, NULL, left_out};
    relaxation_create_around(&r, s->problem, cap, false, &freeze);
    Prices prices = {.price = arena_new_array(&r.arena, double, (size_t)r.class_count), .deadline = s->deadline};
    prices_solve(&prices, &r, 0, ITERATIONS);
    Outcome outcome = REFUTED;
    if (prices.bound <= 0) {
        shortest_solve(&r, prices.price);
        SearchLimits limits = {.width = WIDTH, .deadline = s->deadline};
        outcome = search_plans(&r, prices.price, limits, &s->trial).found ? FOUND : NOT_FOUND;
    }
    relaxation_free(&r);
    return outcome;
}

/* Finds roughly the shortest period; periods that are too short are refuted at once. */
static bool try_count(Solver *s, int64_t cap, const Worth *worth, int count, bool *left_out)
{
    double factor = 0.96, step = 0.004;
    for (int d = 0; d < s->problem->device_count; d++) left_out[worth[d].device] = d >= count;
    for (int k = 0; k < TRIES && !solver_out_of_time(s); k++, factor += step, step *= 1.25)
        if (try_period(s, (int64_t)((double)cap * factor), left_out) == FOUND)
            return incumbent_offer(&s->best, &s->trial);
    return false;
}

bool solver_try_devices(Solver *s, int64_t cap, const double *price)
{
    const Problem *p = s->problem;
    size_t devices = (size_t)p->device_count;
    FREED Worth *worth = memory_allocate(devices * sizeof *worth);
    bool *left_out = memory_allocate(devices * sizeof *left_out), better = false;
    for (int d = 0; d < p->device_count; d++) worth[d] = (Worth){price[p->type_of[d]], d};
    qsort(worth, devices, sizeof *worth, by_worth);
    int count = 0;
    while (count < p->device_count && worth[count].price > 0.01 * worth[0].price) count++;
    better |= try_count(s, cap, worth, count, left_out);
    int more = count + count / 16 + 1;
    if (more <= p->device_count) better |= try_count(s, cap, worth, more, left_out);
    free(left_out);
    return better;
}
