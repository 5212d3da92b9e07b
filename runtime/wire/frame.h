/* Frames: what stands in one message of ZeroMQ, between gateways, and between a gateway and the ranks of its site. All
 * have the same header of WIRE_HEADER bytes, little-endian; fields that a kind does not use are 0. */
#ifndef RUNTIME_WIRE_FRAME_H
#define RUNTIME_WIRE_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"

enum {
    WIRE_HEADER = 80,
    WIRE_CHUNK = 1 << 16, /* payload of a DATA frame at most: heartbeats go between frames, and must not wait long */
    WIRE_GATEWAY = -1,    /* as `to`: the message is for the gateway itself. `tag`: the exit code with which a rank
                             ended the run, for the reason in the payload, or */
    WIRE_FINISHED = -1,   /* all ranks of the site are done, or */
    WIRE_BROKEN = -2      /* they have ended before they were, for the reason in the payload; they may begin anew */
};

/* What ranks tell their gateway of their work, for its audit. */
typedef enum WireNote { WIRE_NOTE_STEP, WIRE_NOTE_EVALUATION } WireNote;

typedef enum WireKind {
    /* Between gateways. `run` and `incarnation` are the sender's in each. */
    WIRE_HELLO = 1,   /* `bound`: the incarnation of the other that the sender is in a run with, 0: none yet;
                         `sequence`: of the DATA that it expects next */
    WIRE_DATA,        /* `sequence`, from 0 on; a chunk of a message: `offset` of `total` bytes */
    WIRE_ACKNOWLEDGE, /* `sequence`: of the DATA that it expects next */
    WIRE_TWICE,       /* `bound`: the incarnation of the other, which another start of its site was earlier than */
    /* Between a gateway and a rank. */
    WIRE_JOIN,    /* rank `from` is there; `tag`: ranks of the run, `to`: its site, for a check */
    WIRE_MESSAGE, /* either way, whole: `from`, `to`, `tag`, payload; `total` is its size */
    WIRE_LEAVE,   /* rank `from` is done */
    WIRE_FAIL,    /* rank `from` ends the run, with exit code `tag`, for the reason in the payload */
    WIRE_STATE,   /* site `from` is now in WireState `tag`; payload: why */
    WIRE_NOTE,    /* rank `from` begins WireNote `tag`: `sequence`: the number of the step, or how many batches are
                     evaluated; `total`: micro-batches */
    WIRE_KIND_COUNT
} WireKind;

/* Of another site, as its link is seen from here. */
typedef enum WireState {
    WIRE_NEVER_MET, /* its gateway has not been heard of yet */
    WIRE_UP,
    WIRE_DOWN,     /* was up; messages wait */
    WIRE_RETURNED, /* with a new incarnation: its ranks began anew, so must these */
    WIRE_GIVEN_UP, /* it was away for longer than --site-timeout */
    WIRE_ENDED     /* a rank of it ended the run: `total` is the exit code */
} WireState;

typedef struct WireFrame {
    WireKind kind;
    Hash run;
    uint64_t incarnation, bound, sequence;
    int32_t from, to; /* ranks, or as the kind says */
    int32_t tag;
    uint64_t total, offset;
    const void *payload; /* not owned */
    size_t size;         /* of the payload */
} WireFrame;

/* Writes the header; the payload follows it. */
void wire_frame_write(const WireFrame *frame, uint8_t header[WIRE_HEADER]);
/* False if these bytes are no frame. The payload points into them. */
bool wire_frame_read(WireFrame *frame, const void *bytes, size_t size);

#endif
