#include "federation/connect/site_link.h"

#include "base/clock.h"
#include "federation/connect/sockets.h"
#include "runtime/wire/address.h"

static const double slowest_bytes_per_second = 1e5;

static void close_socket(SiteLink *link)
{
    if (link->socket) zmq_socket_monitor(link->socket, NULL, 0);
    if (link->watch) zmq_close(link->watch);
    if (link->socket) zmq_close(link->socket);
    link->socket = link->watch = NULL;
}

static bool connect_anew(SiteLink *link)
{
    int other_address = wire_address_is_name(link->federation->address) ? ZMQ_EVENT_CONNECT_RETRIED : 0;
    close_socket(link);
    link->socket = wire_socket(link->context, ZMQ_DEALER);
    link->watch = wire_socket_watch(link->context, link->socket, ZMQ_EVENT_DISCONNECTED | other_address, link->opened);
    federation_socket_options(link->socket, -1);
    wire_socket_pin(link->socket, link->keys, link->federation->key);
    return wire_socket_connect(link->socket, link->federation->address, link->opened++);
}

bool site_link_open(SiteLink *link, const Federation *federation, const WireKeys *keys,
                    const volatile sig_atomic_t *ended, Diagnostics *diagnostics)
{
    *link = (SiteLink){.context = zmq_ctx_new(),
                       .federation = federation,
                       .keys = keys,
                       .ended = ended,
                       .patience = SITE_LINK_PATIENCE};
    return connect_anew(link) ||
           diagnostics_error(diagnostics, EXIT_BAD_INPUT, PLACE_NONE, NULL, "cannot connect to '%s': %s",
                             federation->address, zmq_strerror(zmq_errno()));
}

void site_link_close(SiteLink *link)
{
    close_socket(link);
    if (link->context) zmq_ctx_term(link->context);
    *link = (SiteLink){0};
}

/* ZMQ_REP wants an empty frame before every message, in both directions. */
static bool send_request(SiteLink *link, const Buffer *request)
{
    if (link->was_silent) { /* a late reply must not answer another request */
        if (!connect_anew(link)) return false;
        link->was_silent = false;
        link->waiting = 0;
        link->bytes_waiting = 0;
    }
    link->waiting++;
    link->bytes_waiting += request->size;
    return zmq_send(link->socket, "", 0, ZMQ_SNDMORE | ZMQ_DONTWAIT) >= 0 &&
           zmq_send(link->socket, request->bytes, request->size, ZMQ_DONTWAIT) >= 0;
}

static bool receive_reply(SiteLink *link, Buffer *reply)
{
    double until = monotonic_seconds() + link->patience + (double)link->bytes_waiting / slowest_bytes_per_second;
    zmq_msg_t message;
    bool got = false, lost = link->waiting == 0;
    zmq_msg_init(&message);
    while (!got && !lost && !*link->ended && monotonic_seconds() < until) {
        zmq_pollitem_t items[] = {{.socket = link->socket, .events = ZMQ_POLLIN},
                                  {.socket = link->watch, .events = ZMQ_POLLIN}};
        zmq_poll(items, link->watch ? 2 : 1, 200);
        got = (items[0].revents & ZMQ_POLLIN) && zmq_msg_recv(&message, link->socket, ZMQ_DONTWAIT) >= 0;
        if (got && zmq_msg_more(&message)) got = zmq_msg_recv(&message, link->socket, ZMQ_DONTWAIT) >= 0;
        lost = !got && items[1].revents & ZMQ_POLLIN && wire_socket_event(link->watch);
    }
    if (got) buffer_append(reply, zmq_msg_data(&message), zmq_msg_size(&message));
    zmq_msg_close(&message);
    if (got && --link->waiting == 0) link->bytes_waiting = 0;
    return got;
}

bool site_link_exchange(void *context, const Buffer *request, Buffer *reply)
{
    SiteLink *link = context;
    bool ok = (!request || send_request(link, request)) && (!reply || receive_reply(link, reply));
    link->was_silent |= !ok;
    return ok;
}

void site_link_renew(SiteLink *link) { link->was_silent = true; }

/* Zeros give no common secret with anybody. */
bool meeting_keys(MeetingKeys *keys, const WireKeys *own, const Federation *federation, int64_t round)
{
    *keys = (MeetingKeys){0};
    if (!zmq_z85_decode(keys->secret, own->secret_key)) return false;
    for (int s = 0; s < federation->site_count; s++) {
        const FederationSite *site = &federation->sites[s];
        if (site->left) continue;
        if (!zmq_z85_decode(keys->publics + s * KEY_BYTES, site->key)) return false;
        if (site->former_key && round + 1 <= site->rekeyed &&
            !zmq_z85_decode(keys->formers + s * KEY_BYTES, site->former_key))
            return false;
    }
    return true;
}
