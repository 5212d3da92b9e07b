/* One direction of a link between two hosts of an emulated network: what is sent waits until the link is free, takes
 * bytes / bandwidth to be put on it and arrives after the latency; what finds no room in the queue is dropped, and so
 * is a share of the rest, and everything while the link is cut. */
#ifndef TESTS_NETWORK_LINK_H
#define TESTS_NETWORK_LINK_H

#include <linux/virtio_net.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    FRAME_BYTES = 9216,            /* the longest on a link: Ethernet's jumbo frames */
    LARGE_FRAME_BYTES = 14 + 65535 /* the longest that a host hands over: a card would make several of it */
};

typedef struct Frame {
    struct Frame *next;
    int64_t due; /* nanoseconds of the monotonic clock */
    uint32_t bytes;
    uint32_t segments, link_bytes; /* as what it crosses the link: 1 and `bytes`, of a large frame more of both */
    struct virtio_net_hdr card;    /* what a network card is told with it */
    uint8_t data[LARGE_FRAME_BYTES];
} Frame;

/* Frames that are not in use, to be used again. Starts as zeros. */
typedef struct FramePool {
    Frame *first;
} FramePool;

Frame *frame_take(FramePool *pool); /* its content is undefined */
void frame_give_back(FramePool *pool, Frame *frame);
void frame_pool_free(FramePool *pool);

typedef struct LinkSettings {
    int64_t latency_ns;
    double bandwidth;    /* bytes a second, Ethernet's header of 14 bytes included */
    int64_t queue_bytes; /* room for what waits for the link to become free */
    double loss;         /* the share of frames that is lost, 0 ... 1 */
} LinkSettings;

/* Frames and their bytes. */
typedef struct Traffic {
    uint64_t frames, bytes;
} Traffic;

typedef struct Link {
    LinkSettings settings;
    bool cut;
    Traffic carried;              /* arrived */
    Traffic lost;                 /* by chance */
    Traffic full;                 /* the queue had no room */
    Traffic severed;              /* the link was cut */
    int64_t free_at, *is_free_at; /* when what waits has been put on it; *is_free_at is another link's if they share */
    uint64_t random;
    Frame *first, *last; /* on their way, by due */
} Link;

void link_initialize(Link *link, LinkSettings settings, uint64_t seed);

/* Sends it at `now`; the frame is the link's, or given back to the pool. */
void link_send(Link *link, FramePool *pool, Frame *frame, int64_t now);

/* The first frame that is due by `now`, which is the caller's; NULL: none. */
Frame *link_arrived(Link *link, int64_t now);

/* When the next frame is due; INT64_MAX: none is on its way. */
int64_t link_next_due(const Link *link);

/* A cut link loses what is on its way, too. */
void link_cut(Link *link, FramePool *pool);

#endif
