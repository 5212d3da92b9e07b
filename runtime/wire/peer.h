/* What a gateway keeps of one other site: numbers, what is not acknowledged yet, what has arrived in part. No sockets:
 * frames go out through a function and are handed in, so that every loss can be tested.
 *
 * A connection may break and lose what was handed to it; whichever connection is newest begins with a HELLO either way,
 * which says what has arrived, and all else is sent again, in order (go-back-N: Bertsekas and Gallager, Data Networks,
 * 2.4.2). Who listens answers a HELLO with one; who connects sends it first.
 *
 * Incarnations: a gateway's every start has a random number. With the first HELLO two gateways are bound to each other:
 * neither takes part in a run with another incarnation of the other. One that meets a new incarnation of whom it is
 * bound to has RETURNED to tell its ranks, which then begin anew themselves, with a new gateway. One that is new waits
 * until the other is not bound any more to what it was before: so each site starts again once for each that is lost. */
#ifndef RUNTIME_WIRE_PEER_H
#define RUNTIME_WIRE_PEER_H

#include <stdatomic.h>

#include "base/buffer.h"
#include "runtime/wire/frame.h"

/* A frame to be sent, perhaps several times and by several threads: freed with its last user. */
typedef struct WireChunk {
    atomic_int users;
    size_t size;
    uint8_t bytes[];
} WireChunk;

/* With one user, the caller. */
WireChunk *wire_chunk_make(const WireFrame *frame);
void wire_chunk_release(WireChunk *chunk);

typedef enum WireDrop {
    WIRE_DROP_MALFORMED,   /* no frame, or one that contradicts itself or the one before */
    WIRE_DROP_RUN,         /* of another compilation */
    WIRE_DROP_INCARNATION, /* of a site's earlier or later life */
    WIRE_DROP_REPLAYED,    /* has arrived before */
    WIRE_DROP_EARLY,       /* something before it is missing, and will be sent again */
    WIRE_DROP_LARGE,       /* larger than any message of the run */
    WIRE_DROP_MISDIRECTED, /* from a rank that is not of that site, or to one that is not of this */
    WIRE_DROP_STALE,       /* from a connection that a newer one has replaced */
    WIRE_DROP_STRANGER,    /* handshakes that failed: an unknown key, or none */
    WIRE_DROP_COUNT
} WireDrop;

const char *wire_drop_name(WireDrop reason);

typedef struct WireCounters {
    uint64_t messages_sent, messages_received, bytes_sent, bytes_received; /* payloads; each counted once */
    uint64_t frames_resent;
    uint64_t kept_bytes, most_kept_bytes; /* not acknowledged: now, and at most so far */
    uint64_t connections;                 /* how often the link came up */
    uint64_t dropped[WIRE_DROP_COUNT];
} WireCounters;

typedef struct WirePeer WirePeer;

/* What a peer needs of the gateway. */
typedef struct WirePeerPlace {
    void *context;
    int site; /* the peer's */
    Hash run;
    uint64_t incarnation;     /* of this gateway */
    uint64_t largest_message; /* bytes */
    int rank_count;           /* of the run */
    const int *rank_sites;    /* per rank */
    int own_site;
    /* Takes over one use of the chunk. False: the connection is gone. */
    bool (*send)(void *context, int site, WireChunk *chunk);
    /* A whole message, for a rank of this site or, with to == WIRE_GATEWAY, for the gateway. */
    void (*deliver)(void *context, int site, const WireFrame *message);
} WirePeerPlace;

struct WirePeer {
    WirePeerPlace place;
    uint64_t bound;              /* the peer's incarnation; 0: none yet */
    bool up;                     /* greeted on the connection that is there */
    bool returned;               /* a new incarnation was met: nothing more is sent or taken */
    uint64_t next, acknowledged; /* sequence numbers of DATA: given next; what is below it, the peer has */
    uint64_t handed;             /* up to which they were sent at least once */
    uint64_t expected, told;     /* of the peer's: to come next; as the peer was told last */
    WireChunk **kept;            /* acknowledged ... next - 1, in a ring */
    size_t kept_capacity, kept_first;
    Buffer arrived; /* of the message that is arriving */
    WireFrame arriving;
    WireCounters counters;
};

void wire_peer_open(WirePeer *peer, const WirePeerPlace *place);
void wire_peer_close(WirePeer *peer);

/* Keeps a copy of the message until it is acknowledged, and sends it if the link is up. `to` WIRE_GATEWAY: for the
 * other gateway. At most largest_message bytes. */
void wire_peer_send(WirePeer *peer, int from, int to, int tag, const void *bytes, size_t size);
/* Greets on a new connection. */
void wire_peer_greet(WirePeer *peer);
/* The connection is gone: what is sent from now on waits. */
void wire_peer_lost(WirePeer *peer);
/* Tells the peer what has arrived; also if nothing did since, where `always`: then it is a sign of life. */
void wire_peer_acknowledge(WirePeer *peer, bool always);

typedef enum WireEvent { WIRE_NOTHING, WIRE_GREETED, WIRE_NEW_INCARNATION, WIRE_TURNED_AWAY } WireEvent;

/* Takes what came in over the newest connection (a HELLO: over any). GREETED: the link is up, with the connection that
 * it came over. TURNED_AWAY: the peer is in a run with another start of this site. `answers`: whether a HELLO is
 * answered with one. */
WireEvent wire_peer_take(WirePeer *peer, const void *bytes, size_t size, bool answers);

#endif
