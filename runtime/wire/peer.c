#include "runtime/wire/peer.h"

#include <stdlib.h>
#include <string.h>

#include "base/diagnostics.h"

const char *wire_drop_name(WireDrop reason)
{
    static const char *const names[WIRE_DROP_COUNT] = {
        "malformed", "of another run", "of another incarnation", "replayed",       "out of order",
        "too large", "misdirected",    "of an old connection",   "from strangers",
    };
    return names[reason];
}

void wire_chunk_release(WireChunk *chunk)
{
    if (atomic_fetch_sub(&chunk->users, 1) == 1) free(chunk);
}

WireChunk *wire_chunk_make(const WireFrame *frame)
{
    WireChunk *chunk = memory_allocate(sizeof *chunk + WIRE_HEADER + frame->size);
    atomic_init(&chunk->users, 1);
    chunk->size = WIRE_HEADER + frame->size;
    wire_frame_write(frame, chunk->bytes);
    if (frame->size) memcpy(chunk->bytes + WIRE_HEADER, frame->payload, frame->size);
    return chunk;
}

void wire_peer_open(WirePeer *peer, const WirePeerPlace *place) { *peer = (WirePeer){.place = *place}; }

static WireChunk **kept_at(WirePeer *peer, uint64_t sequence)
{
    return &peer->kept[(peer->kept_first + (size_t)(sequence - peer->acknowledged)) % peer->kept_capacity];
}

/* Forgets what the peer has. */
static void forget_until(WirePeer *peer, uint64_t sequence)
{
    while (peer->acknowledged < sequence) {
        WireChunk *chunk = *kept_at(peer, peer->acknowledged);
        peer->counters.kept_bytes -= chunk->size;
        wire_chunk_release(chunk);
        peer->kept_first = (peer->kept_first + 1) % peer->kept_capacity;
        peer->acknowledged++;
    }
}

void wire_peer_close(WirePeer *peer)
{
    forget_until(peer, peer->next);
    free(peer->kept);
    buffer_free(&peer->arrived);
    peer->kept = NULL;
}

static void keep(WirePeer *peer, WireChunk *chunk)
{
    size_t count = (size_t)(peer->next - peer->acknowledged);
    if (count == peer->kept_capacity) {
        size_t capacity = count ? 2 * count : 64;
        WireChunk **kept = memory_allocate(capacity * sizeof(WireChunk *));
        for (size_t i = 0; i < count; i++) kept[i] = *kept_at(peer, peer->acknowledged + i);
        free(peer->kept);
        peer->kept = kept;
        peer->kept_capacity = capacity;
        peer->kept_first = 0;
    }
    peer->next++;
    *kept_at(peer, peer->next - 1) = chunk;
    WireCounters *counters = &peer->counters;
    counters->kept_bytes += chunk->size;
    if (counters->kept_bytes > counters->most_kept_bytes) counters->most_kept_bytes = counters->kept_bytes;
}

static void hand_out(WirePeer *peer, uint64_t sequence)
{
    WireChunk *chunk = *kept_at(peer, sequence);
    if (!peer->up) return;
    atomic_fetch_add(&chunk->users, 1);
    peer->up = peer->place.send(peer->place.context, peer->place.site, chunk);
    if (!peer->up) return;
    if (sequence < peer->handed)
        peer->counters.frames_resent++;
    else
        peer->handed = sequence + 1;
}

/* A frame that is not kept. */
static bool hand_out_once(WirePeer *peer, const WireFrame *frame)
{
    return peer->place.send(peer->place.context, peer->place.site, wire_chunk_make(frame));
}

static WireFrame frame_of(const WirePeer *peer, WireKind kind)
{
    return (WireFrame){.kind = kind, .run = peer->place.run, .incarnation = peer->place.incarnation};
}

void wire_peer_send(WirePeer *peer, int from, int to, int tag, const void *bytes, size_t size)
{
    if (size > peer->place.largest_message) bug("message of %zu bytes", size);
    if (peer->returned) return;
    size_t done = 0;
    do {
        WireFrame frame = frame_of(peer, WIRE_DATA);
        frame.sequence = peer->next;
        frame.from = from;
        frame.to = to;
        frame.tag = tag;
        frame.total = size;
        frame.offset = done;
        frame.payload = size ? (const uint8_t *)bytes + done : NULL;
        frame.size = size - done < WIRE_CHUNK ? size - done : WIRE_CHUNK;
        keep(peer, wire_chunk_make(&frame));
        hand_out(peer, frame.sequence);
        done += frame.size;
    } while (done < size);
    peer->counters.messages_sent++;
    peer->counters.bytes_sent += size;
}

void wire_peer_greet(WirePeer *peer)
{
    WireFrame frame = frame_of(peer, WIRE_HELLO);
    frame.bound = peer->bound;
    frame.sequence = peer->expected;
    hand_out_once(peer, &frame);
}

void wire_peer_lost(WirePeer *peer) { peer->up = false; }

void wire_peer_acknowledge(WirePeer *peer, bool always)
{
    if (!peer->up || (!always && peer->told == peer->expected)) return;
    WireFrame frame = frame_of(peer, WIRE_ACKNOWLEDGE);
    frame.sequence = peer->told = peer->expected;
    peer->up = hand_out_once(peer, &frame);
}

static WireEvent drop(WirePeer *peer, WireDrop reason)
{
    peer->counters.dropped[reason]++;
    return WIRE_NOTHING;
}

/* A number that the peer may claim to expect. */
static bool is_owed(const WirePeer *peer, uint64_t sequence)
{
    return sequence >= peer->acknowledged && sequence <= peer->next;
}

static WireEvent take_hello(WirePeer *peer, const WireFrame *hello, bool answers)
{
    bool is_stale = hello->bound && hello->bound != peer->place.incarnation;
    if (!hello->incarnation) return drop(peer, WIRE_DROP_MALFORMED);
    if (peer->bound && hello->incarnation != peer->bound) {
        if (answers) wire_peer_greet(peer); /* so that the other knows what it waits for */
        bool known = peer->returned;
        peer->returned = true;
        peer->up = false;
        return known ? drop(peer, WIRE_DROP_INCARNATION) : WIRE_NEW_INCARNATION;
    }
    if (is_stale || peer->returned) { /* it is about to begin anew, once it has heard of this incarnation */
        if (answers) wire_peer_greet(peer);
        return drop(peer, WIRE_DROP_INCARNATION);
    }
    if (!is_owed(peer, hello->sequence)) return drop(peer, WIRE_DROP_MALFORMED);
    peer->bound = hello->incarnation;
    peer->up = true;
    peer->counters.connections++;
    forget_until(peer, hello->sequence);
    if (answers) wire_peer_greet(peer);
    for (uint64_t sequence = peer->acknowledged; sequence < peer->next && peer->up; sequence++)
        hand_out(peer, sequence);
    return WIRE_GREETED;
}

/* Why a chunk that is in its turn cannot be used; WIRE_DROP_COUNT: it can. */
static WireDrop chunk_fault(const WirePeer *peer, const WireFrame *chunk)
{
    const WirePeerPlace *place = &peer->place;
    const WireFrame *first = &peer->arriving;
    if (chunk->total > place->largest_message) return WIRE_DROP_LARGE;
    uint64_t left = chunk->offset <= chunk->total ? chunk->total - chunk->offset : 0;
    if (chunk->offset != peer->arrived.size || chunk->size != (left < WIRE_CHUNK ? left : WIRE_CHUNK))
        return WIRE_DROP_MALFORMED;
    if (chunk->offset && (chunk->from != first->from || chunk->to != first->to || chunk->tag != first->tag ||
                          chunk->total != first->total))
        return WIRE_DROP_MALFORMED;
    if (chunk->offset) return WIRE_DROP_COUNT;
    bool known = chunk->from >= 0 && chunk->from < place->rank_count && place->rank_sites[chunk->from] == place->site;
    bool here = chunk->to == WIRE_GATEWAY ||
                (chunk->to >= 0 && chunk->to < place->rank_count && place->rank_sites[chunk->to] == place->own_site);
    return known && here ? WIRE_DROP_COUNT : WIRE_DROP_MISDIRECTED;
}

static WireEvent take_data(WirePeer *peer, const WireFrame *chunk)
{
    if (chunk->sequence < peer->expected) {
        peer->told = UINT64_MAX; /* it does not know: told again */
        return drop(peer, WIRE_DROP_REPLAYED);
    }
    if (chunk->sequence > peer->expected) return drop(peer, WIRE_DROP_EARLY);
    peer->expected++;
    WireDrop fault = chunk_fault(peer, chunk);
    if (fault != WIRE_DROP_COUNT) { /* never sent by a gateway that is as it should be: the message is left out */
        peer->arrived.size = 0;
        return drop(peer, fault);
    }
    if (!chunk->offset) peer->arriving = *chunk;
    WireFrame message = *chunk;
    if (chunk->size < chunk->total) {
        buffer_append(&peer->arrived, chunk->payload, chunk->size);
        if (peer->arrived.size < chunk->total) return WIRE_NOTHING;
        message.payload = peer->arrived.bytes;
        message.size = peer->arrived.size;
    }
    peer->counters.messages_received++;
    peer->counters.bytes_received += chunk->total;
    peer->place.deliver(peer->place.context, peer->place.site, &message);
    peer->arrived.size = 0;
    return WIRE_NOTHING;
}

WireEvent wire_peer_take(WirePeer *peer, const void *bytes, size_t size, bool answers)
{
    WireFrame frame;
    if (!wire_frame_read(&frame, bytes, size) || frame.kind > WIRE_TWICE) return drop(peer, WIRE_DROP_MALFORMED);
    if (!hash_equal(frame.run, peer->place.run)) return drop(peer, WIRE_DROP_RUN);
    if (frame.kind == WIRE_HELLO) return take_hello(peer, &frame, answers);
    if (frame.kind == WIRE_TWICE)
        return !peer->up && frame.bound == peer->place.incarnation ? WIRE_TURNED_AWAY
                                                                   : drop(peer, WIRE_DROP_INCARNATION);
    if (!peer->bound || frame.incarnation != peer->bound || peer->returned) return drop(peer, WIRE_DROP_INCARNATION);
    if (frame.kind == WIRE_DATA) return take_data(peer, &frame);
    if (!is_owed(peer, frame.sequence)) return drop(peer, WIRE_DROP_REPLAYED);
    forget_until(peer, frame.sequence);
    return WIRE_NOTHING;
}
