#include "runtime/program/norm_round.h"

#include "base/integers.h"

#include <stdbool.h>
#include <string.h>

static int64_t message(const SkyNormRound *round, uint32_t from, uint32_t to)
{
    return round->message_ns[round->zones[from] * round->zone_count + round->zones[to]];
}

/* Between two ranks that both send before they receive. */
static void swap(const SkyNormRound *round, int64_t *times, uint32_t a, uint32_t b)
{
    int64_t there = times[a] + message(round, a, b), back = times[b] + message(round, b, a);
    times[a] = larger(times[a], back);
    times[b] = larger(times[b], there);
}

static void hand_over(const SkyNormRound *round, int64_t *times, uint32_t from, uint32_t to)
{
    times[to] = larger(times[to], times[from] + message(round, from, to));
}

/* The rank with number `i` among the power of two that take part. */
static uint32_t partner(const uint32_t *ranks, uint32_t rest, uint32_t i)
{
    return ranks[i < rest ? 2 * i + 1 : i + rest];
}

static void reduce_all(const SkyNormRound *round, int64_t *times, const uint32_t *ranks, uint32_t count)
{
    uint32_t power = 1;
    while (2 * power <= count) power *= 2;
    uint32_t rest = count - power;
    for (uint32_t i = 0; i < rest; i++) hand_over(round, times, ranks[2 * i], ranks[2 * i + 1]);
    for (uint32_t distance = 1; distance < power; distance *= 2)
        for (uint32_t i = 0; i < power; i++)
            if (i < (i ^ distance)) swap(round, times, partner(ranks, rest, i), partner(ranks, rest, i ^ distance));
    for (uint32_t i = 0; i < rest; i++) hand_over(round, times, ranks[2 * i + 1], ranks[2 * i]);
}

/* A broadcast from the first rank: rank i receives from rank i without its lowest bit. */
static void hand_out(const SkyNormRound *round, int64_t *times, const uint32_t *ranks, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) hand_over(round, times, ranks[i & (i - 1)], ranks[i]);
}

static uint32_t site_of(const SkyNormRound *round, uint32_t rank) { return round->sites ? round->sites[rank] : 0; }

/* A leader finishes when the messages that all leaders sent on their arrival have reached it. */
static void exchange(const SkyNormRound *round, int64_t *times, const uint32_t *leaders, uint32_t count,
                     int64_t *before)
{
    memcpy(before, times, round->rank_count * sizeof *before);
    for (uint32_t a = 0; a < count; a++)
        for (uint32_t b = 0; b < count; b++)
            if (a != b)
                times[leaders[b]] =
                    larger(times[leaders[b]], before[leaders[a]] + message(round, leaders[a], leaders[b]));
}

void norm_round(const SkyNormRound *round, const int64_t *begin, int64_t *end, int64_t *scratch)
{
    /* Ranks in the order of their sites, and the index of each site's first rank. */
    uint32_t *ranks = (uint32_t *)(scratch + round->rank_count + 1), sites = 0, placed = 0;
    uint32_t *first = ranks + round->rank_count + 1, *leaders = first + round->rank_count + 1;
    memcpy(end, begin, round->rank_count * sizeof *end);
    for (uint32_t r = 0; r < round->rank_count; r++) {
        bool known = false;
        for (uint32_t q = 0; q < r; q++) known |= site_of(round, q) == site_of(round, r);
        if (known) continue;
        leaders[sites] = r;
        first[sites++] = placed;
        for (uint32_t q = r; q < round->rank_count; q++)
            if (site_of(round, q) == site_of(round, r)) ranks[placed++] = q;
    }
    first[sites] = placed;
    for (uint32_t s = 0; s < sites; s++) reduce_all(round, end, ranks + first[s], first[s + 1] - first[s]);
    if (sites > 1) {
        exchange(round, end, leaders, sites, scratch);
        for (uint32_t s = 0; s < sites; s++) hand_out(round, end, ranks + first[s], first[s + 1] - first[s]);
    }
}
