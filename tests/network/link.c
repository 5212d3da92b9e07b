#include "tests/network/link.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/random.h"

Frame *frame_take(FramePool *pool)
{
    Frame *frame = pool->first;
    if (frame) {
        pool->first = frame->next;
        return frame;
    }
    frame = malloc(sizeof *frame);
    if (!frame) {
        fprintf(stderr, "network_switch: out of memory\n");
        exit(1);
    }
    return frame;
}

void frame_give_back(FramePool *pool, Frame *frame)
{
    frame->next = pool->first;
    pool->first = frame;
}

void frame_pool_free(FramePool *pool)
{
    while (pool->first) {
        Frame *frame = pool->first;
        pool->first = frame->next;
        free(frame);
    }
}

void link_initialize(Link *link, LinkSettings settings, uint64_t seed)
{
    *link = (Link){.settings = settings, .random = seed};
    link->is_free_at = &link->free_at;
}

static void count(Traffic *traffic, const Frame *frame)
{
    traffic->frames += frame->segments;
    traffic->bytes += frame->link_bytes;
}

/* Counts it among what did not arrive. */
static void drop(Traffic *traffic, FramePool *pool, Frame *frame)
{
    count(traffic, frame);
    frame_give_back(pool, frame);
}

static bool is_lost(Link *link)
{
    uint64_t million = 1000000;
    return (double)random_draw_below(&link->random, million) < link->settings.loss * (double)million;
}

void link_send(Link *link, FramePool *pool, Frame *frame, int64_t now)
{
    if (link->cut) {
        drop(&link->severed, pool, frame);
        return;
    }
    int64_t start = *link->is_free_at > now ? *link->is_free_at : now;
    double waiting = (double)(start - now) * link->settings.bandwidth / 1e9;
    if (waiting + frame->link_bytes > (double)link->settings.queue_bytes) {
        drop(&link->full, pool, frame);
        return;
    }
    *link->is_free_at = start + (int64_t)(frame->link_bytes * 1e9 / link->settings.bandwidth);
    if (is_lost(link)) {
        drop(&link->lost, pool, frame);
        return;
    }
    frame->due = *link->is_free_at + link->settings.latency_ns;
    /* A latency that became shorter lets nothing overtake what was sent before. */
    if (link->last && link->last->due > frame->due) frame->due = link->last->due;
    frame->next = NULL;
    if (link->last)
        link->last->next = frame;
    else
        link->first = frame;
    link->last = frame;
}

static Frame *take_first(Link *link)
{
    Frame *frame = link->first;
    link->first = frame->next;
    if (!link->first) link->last = NULL;
    return frame;
}

Frame *link_arrived(Link *link, int64_t now)
{
    if (!link->first || link->first->due > now) return NULL;
    Frame *frame = take_first(link);
    count(&link->carried, frame);
    return frame;
}

int64_t link_next_due(const Link *link) { return link->first ? link->first->due : INT64_MAX; }

void link_cut(Link *link, FramePool *pool)
{
    link->cut = true;
    while (link->first) drop(&link->severed, pool, take_first(link));
}
