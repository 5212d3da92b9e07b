#include "partitioner/schedule/host_load.h"

#include <math.h>
#include <stdlib.h>

void host_load_add(HostLoad *load, int64_t start, int64_t duration, const PlanRank *rank)
{
    array_push(load->changes, load->count, load->capacity, ((HostLoadChange){start, rank->host, rank->cores}));
    array_push(load->changes, load->count, load->capacity,
               ((HostLoadChange){start + duration, rank->host, -rank->cores}));
}

static int by_time(const void *a, const void *b)
{
    const HostLoadChange *x = a, *y = b;
    if (x->at != y->at) return x->at < y->at ? -1 : 1;
    if (x->host != y->host) return x->host - y->host;
    return (x->cores > y->cores) - (x->cores < y->cores);
}

int64_t host_stretch_moment(const HostStretch *s, int64_t at)
{
    int low = 0, high = s->count;
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        *(s->from[middle] <= at ? &low : &high) = middle;
    }
    if (low + 1 == s->count || s->from[low] == at) return s->to[low] + (at - s->from[low]);
    double share = (double)(at - s->from[low]) / (double)(s->from[low + 1] - s->from[low]);
    return s->to[low] + (int64_t)floor(share * (double)(s->to[low + 1] - s->to[low]));
}

HostStretch host_load_stretch(HostLoad *load, const Plan *plan, Arena *arena)
{
    HostStretch s = {.from = arena_new_array(arena, int64_t, (size_t)load->count + 1),
                     .to = arena_new_array(arena, int64_t, (size_t)load->count + 1),
                     .count = 1};
    int hosts = 0;
    for (int r = 0; r < plan->rank_count; r++) hosts = plan->ranks[r].host >= hosts ? plan->ranks[r].host + 1 : hosts;
    double *busy = arena_new_array(arena, double, (size_t)hosts);
    if (load->count) qsort(load->changes, (size_t)load->count, sizeof *load->changes, by_time);
    for (int i = 0; i < load->count;) {
        double factor = 1;
        int64_t at = load->changes[i].at, length = at - s.from[s.count - 1];
        for (int h = 0; h < hosts; h++) factor = fmax(factor, busy[h] / plan->processors);
        s.to[s.count] = s.to[s.count - 1] + (factor > 1 ? (int64_t)ceil(factor * (double)length) : length);
        s.from[s.count++] = at;
        for (; i < load->count && load->changes[i].at == at; i++) busy[load->changes[i].host] += load->changes[i].cores;
    }
    return s;
}

void host_load_free(HostLoad *load)
{
    free(load->changes);
    *load = (HostLoad){0};
}
