#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "runtime/wire/address.h"
#include "runtime/wire/gateway_parts.h"
#include "runtime/wire/zap.h"

enum {
    FAILURES =
        ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH
};
static const double refusal_pause = 1; /* seconds; until the other site may know this one */
static const double heard_since = 1;   /* seconds between a second start's greeting and a sign of the first */
static const double life_sign_period = 2, greeting_period = 3, silence_limit = 10; /* seconds */

static void change_state(Link *link, WireState state)
{
    if (link->state == state) return;
    link->state = state;
    link->since = monotonic_seconds();
    wire_ranks_tell(link->gateway, link);
}

static void lose(Link *link, const char *how)
{
    wire_peer_lost(&link->peer);
    link->route.size = 0;
    link->rival_said = false;
    if (link->state != WIRE_UP) return;
    change_state(link, WIRE_DOWN);
    if (!link->finished) wire_gateway_say(link->gateway, "lost site %s (%s); waiting for it", link->site->name, how);
}

/* ---- What peers ask of the gateway ---- */

static bool send_to_site(void *context, int site, WireChunk *chunk)
{
    WireGateway *gateway = context;
    Link *link = &gateway->links[site];
    wire_gateway_audit_frame(gateway, gateway->file->site, site, chunk->bytes, chunk->size);
    if (link->connects) return wire_socket_send(link->socket, NULL, 0, chunk);
    if (link->route.size) return wire_socket_send(gateway->listener, link->route.bytes, link->route.size, chunk);
    wire_chunk_release(chunk);
    return false;
}

static void deliver(void *context, int site, const WireFrame *message)
{
    WireGateway *gateway = context;
    Link *link = &gateway->links[site];
    wire_gateway_audit_message(gateway, site, gateway->file->site, message);
    if (message->to != WIRE_GATEWAY) {
        WireFrame frame = {.kind = WIRE_MESSAGE,
                           .from = message->from,
                           .to = message->to,
                           .tag = message->tag,
                           .total = message->size,
                           .payload = message->payload,
                           .size = message->size};
        wire_ranks_deliver(gateway, message->to, wire_chunk_make(&frame));
    } else if (message->tag == WIRE_FINISHED) {
        link->finished = true;
    } else if (link->state != WIRE_ENDED) {
        size_t size = message->size < sizeof link->why ? message->size : sizeof link->why - 1;
        memcpy(link->why, message->payload, size); /* escaped where it is printed */
        link->why[size] = '\0';
        if (message->tag == WIRE_BROKEN) {
            wire_gateway_say(gateway, "site %s stopped: %s; waiting for it to start again", link->site->name,
                             link->why);
            return;
        }
        link->end_code = message->tag;
        wire_gateway_say(gateway, "site %s ended the run: %s", link->site->name, link->why);
        change_state(link, WIRE_ENDED);
    }
}

/* ---- Opening ---- */

static void open_link(WireGateway *gateway, int site)
{
    const WireSiteFile *file = gateway->file;
    Link *link = &gateway->links[site];
    const WirePeerPlace place = {.context = gateway,
                                 .site = site,
                                 .run = file->run,
                                 .incarnation = gateway->incarnation,
                                 .largest_message = (uint64_t)file->largest_message_bytes,
                                 .rank_count = file->rank_count,
                                 .rank_sites = file->rank_sites,
                                 .own_site = file->site,
                                 .send = send_to_site,
                                 .deliver = deliver};
    link->gateway = gateway;
    link->site = &file->sites[site];
    link->connects = !wire_listens(file, file->site, site);
    link->since = monotonic_seconds();
    wire_peer_open(&link->peer, &place);
}

static bool connect_link(WireGateway *gateway, Link *link, Diagnostics *diagnostics)
{
    int other_address = wire_address_is_name(link->site->address) ? ZMQ_EVENT_CONNECT_RETRIED : 0;
    link->socket = wire_socket_try(gateway->context, ZMQ_DEALER);
    link->watch = NULL;
    if (!link->socket)
        return run_error(diagnostics, NULL, "cannot connect to site %s: %s", link->site->name,
                         zmq_strerror(zmq_errno()));
    wire_socket_between_sites(link->socket);
    wire_socket_option(link->socket, ZMQ_IMMEDIATE, 1); /* what waits, waits in WirePeer */
    wire_socket_pin(link->socket, gateway->options.keys, link->site->key);
    link->watch = wire_socket_watch(gateway->context, link->socket,
                                    ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_DISCONNECTED | FAILURES | other_address,
                                    gateway->watches++);
    link->refused = 0;
    if (wire_socket_connect(link->socket, link->site->address, link->attempts++)) return true;
    return diagnostics_error(diagnostics, EXIT_BAD_INPUT, PLACE_NONE, NULL, "cannot connect to site %s at %s: %s",
                             link->site->name, link->site->address, zmq_strerror(zmq_errno()));
}

/* Where other sites are let in: at every address of this host, because the site's own may be its router's; on this host
 * alone where the address says so. */
static const char *listening_place(const WireGateway *gateway, Arena *arena)
{
    if (gateway->options.bind) return gateway->options.bind;
    const char *address = gateway->file->sites[gateway->file->site].address;
    return wire_address_is_loopback(address) ? address : arena_format(arena, "*%s", strrchr(address, ':'));
}

static bool listen_for_sites(WireGateway *gateway, Diagnostics *diagnostics)
{
    FREED_WITH(arena_free) Arena arena = {0};
    const char *place = listening_place(gateway, &arena);
    gateway->listener = wire_socket(gateway->context, ZMQ_ROUTER);
    wire_socket_between_sites(gateway->listener);
    wire_socket_option(gateway->listener, ZMQ_ROUTER_MANDATORY, 1);
    wire_socket_guard(gateway->listener, gateway->options.keys, WIRE_ZAP_SITES);
    gateway->listener_watch = wire_socket_watch(gateway->context, gateway->listener, FAILURES, gateway->watches++);
    bool ok = wire_socket_listen(gateway->listener, place);
    size_t size = sizeof gateway->place;
    if (ok && zmq_getsockopt(gateway->listener, ZMQ_LAST_ENDPOINT, gateway->place, &size) == 0)
        wire_gateway_say(gateway, "listens on %s", gateway->place);
    if (!ok)
        run_error(diagnostics,
                  "end what listens there, or give the site another port in the cluster file and compile again",
                  "cannot listen for other sites at %s: %s", place, zmq_strerror(zmq_errno()));
    return ok;
}

bool wire_links_open(WireGateway *gateway, Diagnostics *diagnostics)
{
    const WireSiteFile *file = gateway->file;
    gateway->links = memory_allocate((size_t)file->site_count * sizeof *gateway->links);
    for (int s = 0; s < file->site_count; s++)
        if (s != file->site) open_link(gateway, s);
    if (wire_is_connected_to(file, file->site) && !listen_for_sites(gateway, diagnostics)) return false;
    for (int s = 0; s < file->site_count; s++)
        if (s != file->site && gateway->links[s].connects && !connect_link(gateway, &gateway->links[s], diagnostics))
            return false;
    return true;
}

static void close_socket(void *socket, void *watch)
{
    if (socket) zmq_socket_monitor(socket, NULL, 0);
    if (watch) zmq_close(watch);
    if (!socket) return;
    wire_socket_option(socket, ZMQ_LINGER, 1000); /* the last acknowledgements */
    zmq_close(socket);
}

void wire_links_close(WireGateway *gateway)
{
    for (int s = 0; gateway->links && s < gateway->file->site_count; s++) {
        close_socket(gateway->links[s].socket, gateway->links[s].watch);
        if (gateway->links[s].gateway) wire_peer_close(&gateway->links[s].peer);
    }
    free(gateway->links);
    close_socket(gateway->listener, gateway->listener_watch);
}

/* ---- Working ---- */

static void react(Link *link, WireEvent event)
{
    const char *name = link->site->name;
    if (event == WIRE_GREETED && link->state != WIRE_UP && link->state != WIRE_ENDED) {
        bool is_back = link->state != WIRE_NEVER_MET;
        change_state(link, WIRE_UP);
        wire_gateway_say(link->gateway, is_back ? "site %s is back" : "site %s is connected", name);
    }
    if (event == WIRE_NEW_INCARNATION && link->state != WIRE_ENDED) {
        wire_gateway_say(link->gateway, "site %s has started again: so must this one", name);
        change_state(link, WIRE_RETURNED);
    }
    if (event == WIRE_TURNED_AWAY && link->state != WIRE_ENDED) {
        const char *own = link->gateway->file->sites[link->gateway->file->site].name;
        snprintf(link->why, sizeof link->why,
                 "site %s runs in two places, and the one that came first stays: end this one", own);
        link->end_code = EXIT_RUN_FAILED;
        wire_gateway_say(link->gateway, "%s", link->why);
        change_state(link, WIRE_ENDED);
    }
    bool other_run = link->peer.counters.dropped[WIRE_DROP_RUN] > 0 && link->state == WIRE_NEVER_MET;
    if (other_run && !link->other_run)
        wire_gateway_say(link->gateway,
                         "site %s carries another run: all sites need directories of the same compilation", name);
    link->other_run = link->other_run || other_run;
}

/* The number of the site, other than this one, in whose name libzmq took the message; -1: none. */
static int author(const WireGateway *gateway, WireMessage *message)
{
    const char *user = zmq_msg_gets(&message->body, "User-Id");
    int site = user && *user ? atoi(user) : -1;
    return site >= 0 && site < gateway->file->site_count && site != gateway->file->site ? site : -1;
}

/* A greeting of another start of a site that is here already. A site that was started again is let in: the connection
 * of the first is gone then, or silent soon. */
static bool is_rival(Link *link, const WireFrame *hello)
{
    WirePeer *peer = &link->peer;
    bool other = peer->bound && hello->incarnation != peer->bound && hash_equal(hello->run, peer->place.run);
    if (!other || !peer->up || peer->returned) return false;
    wire_peer_acknowledge(peer, true); /* shows whether the first is still there */
    return peer->up;
}

/* When the other start was heard of first. The one heard of longest ago makes room. */
static double rival_since(Link *link, uint64_t incarnation)
{
    int oldest = 0;
    for (int i = 0; i < MOST_RIVALS; i++) {
        if (link->rivals[i].incarnation == incarnation) return link->rivals[i].since;
        if (link->rivals[i].since < link->rivals[oldest].since) oldest = i;
    }
    link->rivals[oldest].incarnation = incarnation;
    return link->rivals[oldest].since = monotonic_seconds();
}

/* Once the first start has been heard of since the other one was, the other is turned away. */
static void answer_rival(Link *link, const WireFrame *hello, const Route *route)
{
    WireGateway *gateway = link->gateway;
    link->peer.counters.dropped[WIRE_DROP_INCARNATION]++;
    if (link->heard - rival_since(link, hello->incarnation) < heard_since) return;
    const WireFrame frame = {
        .kind = WIRE_TWICE, .run = hello->run, .incarnation = gateway->incarnation, .bound = hello->incarnation};
    wire_socket_send(gateway->listener, route->bytes, route->size, wire_chunk_make(&frame));
    if (!link->rival_said)
        wire_gateway_say(gateway, "site %s runs in two places: the one that came first stays, the other is turned away",
                         link->site->name);
    link->rival_said = true;
}

static void take_at_listener(WireGateway *gateway, WireMessage *message)
{
    WireFrame frame;
    int site = author(gateway, message);
    if (site < 0 || gateway->links[site].connects) {
        gateway->odd++;
        return;
    }
    Link *link = &gateway->links[site];
    const void *bytes = zmq_msg_data(&message->body), *route = zmq_msg_data(&message->route);
    size_t size = zmq_msg_size(&message->body), route_size = zmq_msg_size(&message->route);
    bool is_hello = wire_frame_read(&frame, bytes, size) && frame.kind == WIRE_HELLO && route_size <= WIRE_MOST_ROUTE;
    bool is_current = route_size == link->route.size && memcmp(route, link->route.bytes, route_size) == 0;
    if (!is_hello && !is_current) {
        link->peer.counters.dropped[WIRE_DROP_STALE]++;
        return;
    }
    if (is_hello && is_rival(link, &frame)) {
        Route other = {.size = route_size};
        memcpy(other.bytes, route, route_size);
        answer_rival(link, &frame, &other);
        return;
    }
    const Route before = link->route;
    if (is_hello) { /* it is answered where it came from */
        memcpy(link->route.bytes, route, route_size);
        link->route.size = route_size;
    }
    wire_gateway_audit_frame(gateway, site, gateway->file->site, bytes, size);
    WireEvent event = wire_peer_take(&link->peer, bytes, size, true);
    if (is_hello && event != WIRE_GREETED) link->route = before; /* only the newest that is welcome holds */
    if (!is_hello || event == WIRE_GREETED) link->heard = monotonic_seconds();
    react(link, event);
}

static void work_at_listener(WireGateway *gateway)
{
    enum { AT_ONCE = 256 };
    WireMessage message;
    bool odd;
    while (wire_socket_event(gateway->listener_watch)) gateway->strangers++;
    for (int i = 0; i < AT_ONCE && wire_socket_receive(gateway->listener, true, &message, &odd); i++) {
        if (odd)
            gateway->odd++;
        else
            take_at_listener(gateway, &message);
        wire_message_close(&message);
    }
}

static void greet(Link *link)
{
    link->greeted = monotonic_seconds();
    wire_peer_greet(&link->peer);
}

static void take_on_link(Link *link, const void *bytes, size_t size)
{
    WireGateway *gateway = link->gateway;
    wire_gateway_audit_frame(gateway, (int)(link - gateway->links), gateway->file->site, bytes, size);
    react(link, wire_peer_take(&link->peer, bytes, size, false));
}

static void work_on_link(Link *link)
{
    enum { AT_ONCE = 256 };
    WireMessage message;
    bool odd;
    for (int event; (event = wire_socket_event(link->watch));) {
        lose(link, "its connection broke");
        if (event == ZMQ_EVENT_HANDSHAKE_SUCCEEDED) greet(link);
        if (event & (FAILURES | ZMQ_EVENT_CONNECT_RETRIED)) link->refused = monotonic_seconds();
    }
    for (int i = 0; i < AT_ONCE && wire_socket_receive(link->socket, false, &message, &odd); i++) {
        link->heard = monotonic_seconds();
        if (odd)
            link->peer.counters.dropped[WIRE_DROP_MALFORMED]++;
        else
            take_on_link(link, zmq_msg_data(&message.body), zmq_msg_size(&message.body));
        wire_message_close(&message);
    }
}

void wire_links_work(WireGateway *gateway)
{
    if (gateway->listener) work_at_listener(gateway);
    for (int s = 0; s < gateway->file->site_count; s++)
        if (s != gateway->file->site && gateway->links[s].connects) work_on_link(&gateway->links[s]);
}

void wire_links_acknowledge(WireGateway *gateway)
{
    for (int s = 0; s < gateway->file->site_count; s++)
        if (s != gateway->file->site) wire_peer_acknowledge(&gateway->links[s].peer, false);
}

/* ZeroMQ never connects again by itself where a handshake was refused, nor to another address of a name. */
static void connect_again(Link *link)
{
    FREED_WITH(diagnostics_free) Diagnostics ignored = {0};
    close_socket(link->socket, link->watch);
    if (!connect_link(link->gateway, link, &ignored)) link->refused = monotonic_seconds();
    link->gateway->sockets_changed = true;
}

static void tick(Link *link, double now)
{
    if (link->refused > 0 && now - link->refused > refusal_pause) connect_again(link);
    double limit = link->gateway->options.site_timeout;
    bool is_away = link->state == WIRE_NEVER_MET || link->state == WIRE_DOWN;
    if (link->peer.up && now - link->heard > silence_limit) lose(link, "it is silent");
    if (link->state == WIRE_UP && !link->peer.up) lose(link, "its connection broke");
    if (now - link->life_sign > life_sign_period) {
        wire_peer_acknowledge(&link->peer, true);
        link->life_sign = now;
    }
    if (link->connects && !link->peer.up && now - link->greeted > greeting_period) greet(link);
    if (limit > 0 && is_away && !link->finished && now - link->since > limit) {
        wire_gateway_say(link->gateway, "site %s has been away for %g seconds: given up", link->site->name, limit);
        change_state(link, WIRE_GIVEN_UP);
    }
}

void wire_links_tick(WireGateway *gateway, double now)
{
    for (int s = 0; s < gateway->file->site_count; s++)
        if (s != gateway->file->site) tick(&gateway->links[s], now);
}
