#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "runtime/wire/gateway_parts.h"
#include "runtime/wire/zap.h"

/* At the place, or at the first free port of tcp://HOST:FIRST-LAST. */
static bool bind_ranks(WireGateway *gateway, const char *place)
{
    int first, last;
    const char *colon = strrchr(place, ':');
    char end;
    if (strncmp(place, "tcp://", 6) != 0 || sscanf(colon, ":%d-%d%c", &first, &last, &end) != 2)
        return zmq_bind(gateway->ranks, place) == 0;
    for (int port = first; port <= last && port <= UINT16_MAX; port++) {
        char one[WIRE_PLACE];
        snprintf(one, sizeof one, "%.*s:%d", (int)(colon - place), place, port);
        if (zmq_bind(gateway->ranks, one) == 0) return true;
        if (zmq_errno() != EADDRINUSE) break;
    }
    return false;
}

bool wire_ranks_open(WireGateway *gateway, Diagnostics *diagnostics)
{
    const char *place = gateway->options.local;
    gateway->local = memory_allocate((size_t)gateway->file->rank_count * sizeof *gateway->local);
    for (int r = 0; r < gateway->file->rank_count; r++)
        gateway->local_count += gateway->file->rank_sites[r] == gateway->file->site;
    gateway->ranks = wire_socket(gateway->context, ZMQ_ROUTER);
    wire_socket_option(gateway->ranks, ZMQ_ROUTER_MANDATORY, 1);
    if (strncmp(place, "ipc://", 6) != 0) {
        wire_socket_guard(gateway->ranks, gateway->options.keys, WIRE_ZAP_RANKS);
        wire_socket_mind_silence(gateway->ranks);
    }
    size_t size = sizeof gateway->ranks_place;
    if (bind_ranks(gateway, place) &&
        zmq_getsockopt(gateway->ranks, ZMQ_LAST_ENDPOINT, gateway->ranks_place, &size) == 0)
        return true;
    return run_error(diagnostics, NULL, "cannot listen for ranks at %s: %s", place, zmq_strerror(zmq_errno()));
}

static void forget_waiting(LocalRank *rank)
{
    for (size_t i = 0; i < rank->waiting_count; i++) wire_chunk_release(rank->waiting[i]);
    free(rank->waiting);
    rank->waiting = NULL;
    rank->waiting_count = rank->waiting_capacity = 0;
}

void wire_ranks_close(WireGateway *gateway)
{
    for (int r = 0; gateway->local && r < gateway->file->rank_count; r++) forget_waiting(&gateway->local[r]);
    free(gateway->local);
    if (gateway->ranks) zmq_close(gateway->ranks);
}

void wire_ranks_deliver(WireGateway *gateway, int rank, WireChunk *chunk)
{
    LocalRank *to = &gateway->local[rank];
    if (to->joined)
        wire_socket_send(gateway->ranks, to->route.bytes, to->route.size, chunk);
    else
        array_push(to->waiting, to->waiting_count, to->waiting_capacity, chunk);
}

static void tell(WireGateway *gateway, int rank, const Link *link)
{
    const WireFrame frame = {.kind = WIRE_STATE,
                             .from = (int)(link->site - gateway->file->sites),
                             .to = rank,
                             .tag = (int)link->state,
                             .total = (uint64_t)link->end_code,
                             .payload = link->why,
                             .size = strlen(link->why)};
    wire_ranks_deliver(gateway, rank, wire_chunk_make(&frame));
}

void wire_ranks_tell(WireGateway *gateway, const Link *link)
{
    for (int r = 0; r < gateway->file->rank_count; r++)
        if (gateway->local[r].joined) tell(gateway, r, link);
}

static void join(WireGateway *gateway, int number, const WireFrame *frame, const Route *route)
{
    LocalRank *rank = &gateway->local[number];
    if (rank->joined || frame->tag != gateway->file->rank_count || frame->to != gateway->file->site) {
        gateway->odd++;
        return;
    }
    rank->joined = true;
    rank->route = *route;
    for (int s = 0; s < gateway->file->site_count; s++)
        if (s != gateway->file->site) tell(gateway, number, &gateway->links[s]);
    for (size_t i = 0; i < rank->waiting_count; i++)
        wire_socket_send(gateway->ranks, rank->route.bytes, rank->route.size, rank->waiting[i]);
    rank->waiting_count = 0;
}

/* To a rank of that site, or to its gateway. */
static void send_to_site(WireGateway *gateway, int site, const WireFrame *message)
{
    WirePeer *peer = &gateway->links[site].peer;
    if (!peer->returned) wire_gateway_audit_message(gateway, gateway->file->site, site, message);
    wire_peer_send(peer, message->from, message->to, message->tag, message->payload, message->size);
}

static void send_to_all(WireGateway *gateway, const WireFrame *message)
{
    for (int s = 0; s < gateway->file->site_count; s++)
        if (s != gateway->file->site) send_to_site(gateway, s, message);
}

static void leave(WireGateway *gateway, int number)
{
    LocalRank *rank = &gateway->local[number];
    if (rank->left) return;
    rank->left = true;
    if (++gateway->left_count < gateway->local_count) return;
    send_to_all(gateway, &(WireFrame){.from = number, .to = WIRE_GATEWAY, .tag = WIRE_FINISHED});
}

void wire_ranks_tell_broken(WireGateway *gateway)
{
    char why[sizeof gateway->links->why];
    FREED_WITH(stream_close) FILE *file = gateway->options.why ? fopen(gateway->options.why, "re") : NULL;
    size_t size = file ? fread(why, 1, sizeof why - 1, file) : 0;
    while (size && why[size - 1] == '\n') size--;
    int from = 0; /* any of this site */
    while (gateway->file->rank_sites[from] != gateway->file->site) from++;
    if (size && !gateway->failed && gateway->left_count < gateway->local_count)
        send_to_all(gateway,
                    &(WireFrame){.from = from, .to = WIRE_GATEWAY, .tag = WIRE_BROKEN, .payload = why, .size = size});
}

/* A rank has ended the run: all sites are told. */
static void fail(WireGateway *gateway, int number, const WireFrame *frame)
{
    gateway->failed = true;
    size_t size = frame->size < sizeof gateway->links->why ? frame->size : sizeof gateway->links->why - 1;
    send_to_all(
        gateway,
        &(WireFrame){.from = number, .to = WIRE_GATEWAY, .tag = frame->tag, .payload = frame->payload, .size = size});
}

static void pass_on(WireGateway *gateway, const WireFrame *frame)
{
    const WireSiteFile *file = gateway->file;
    bool known = frame->to >= 0 && frame->to < file->rank_count && file->rank_sites[frame->to] != file->site;
    if (!known || frame->total != frame->size || frame->size > (uint64_t)file->largest_message_bytes) {
        gateway->odd++;
        return;
    }
    send_to_site(gateway, file->rank_sites[frame->to], frame);
}

/* Whether libzmq let the sender in as one of this site; paths are guarded by their folder. */
static bool is_own(const WireGateway *gateway, WireMessage *message)
{
    if (strncmp(gateway->options.local, "ipc://", 6) == 0) return true;
    const char *user = zmq_msg_gets(&message->body, "User-Id");
    return user && *user && atoi(user) == gateway->file->site;
}

static void take(WireGateway *gateway, WireMessage *message)
{
    WireFrame frame;
    Route route = {.size = zmq_msg_size(&message->route)};
    bool ok = route.size <= sizeof route.bytes && is_own(gateway, message) &&
              wire_frame_read(&frame, zmq_msg_data(&message->body), zmq_msg_size(&message->body)) && frame.from >= 0 &&
              frame.from < gateway->file->rank_count && gateway->file->rank_sites[frame.from] == gateway->file->site;
    if (ok) memcpy(route.bytes, zmq_msg_data(&message->route), route.size);
    if (ok && frame.kind == WIRE_JOIN) {
        join(gateway, frame.from, &frame, &route);
        return;
    }
    const LocalRank *rank = ok ? &gateway->local[frame.from] : NULL;
    if (!rank || !rank->joined || route.size != rank->route.size ||
        memcmp(route.bytes, rank->route.bytes, route.size) != 0)
        gateway->odd++;
    else if (frame.kind == WIRE_MESSAGE)
        pass_on(gateway, &frame);
    else if (frame.kind == WIRE_NOTE)
        wire_gateway_audit_note(gateway, &frame);
    else if (frame.kind == WIRE_LEAVE)
        leave(gateway, frame.from);
    else if (frame.kind == WIRE_FAIL)
        fail(gateway, frame.from, &frame);
    else
        gateway->odd++;
}

void wire_ranks_work(WireGateway *gateway)
{
    enum { AT_ONCE = 64 }; /* then the links have their turn */
    WireMessage message;
    bool odd;
    for (int i = 0; i < AT_ONCE && wire_socket_receive(gateway->ranks, true, &message, &odd); i++) {
        if (odd)
            gateway->odd++;
        else
            take(gateway, &message);
        wire_message_close(&message);
    }
}
