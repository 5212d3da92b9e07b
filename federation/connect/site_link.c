#include "federation/connect/site_link.h"

#include "base/clock.h"
#include "federation/connect/sockets.h"

static const double patience_seconds = 30, slowest_bytes_per_second = 1e5;

static bool connect_anew(SiteLink *link)
{
    char endpoint[320];
    if (link->socket) zmq_close(link->socket);
    link->socket = wire_socket(link->context, ZMQ_REQ);
    federation_socket_options(link->socket, -1);
    wire_socket_pin(link->socket, link->keys, link->federation->key);
    snprintf(endpoint, sizeof endpoint, "tcp://%s", link->federation->address);
    return zmq_connect(link->socket, endpoint) == 0;
}

bool site_link_open(SiteLink *link, const Federation *federation, const WireKeys *keys,
                    const volatile sig_atomic_t *ended, Diagnostics *diagnostics)
{
    *link = (SiteLink){.context = zmq_ctx_new(), .federation = federation, .keys = keys, .ended = ended};
    return connect_anew(link) ||
           diagnostics_error(diagnostics, EXIT_BAD_INPUT, PLACE_NONE, NULL, "cannot connect to '%s': %s",
                             federation->address, zmq_strerror(zmq_errno()));
}

void site_link_close(SiteLink *link)
{
    if (link->socket) zmq_close(link->socket);
    if (link->context) zmq_ctx_term(link->context);
    *link = (SiteLink){0};
}

bool site_link_exchange(void *context, const Buffer *request, Buffer *reply)
{
    SiteLink *link = context;
    double until = monotonic_seconds() + patience_seconds + (double)request->size / slowest_bytes_per_second;
    zmq_msg_t message;
    bool got = false;
    if (link->was_silent) connect_anew(link); /* so that no late reply is taken for another one */
    link->was_silent = true;
    if (zmq_send(link->socket, request->bytes, request->size, ZMQ_DONTWAIT) < 0) return false;
    zmq_msg_init(&message);
    while (!got && !*link->ended && monotonic_seconds() < until) {
        zmq_pollitem_t item = {.socket = link->socket, .events = ZMQ_POLLIN};
        got = zmq_poll(&item, 1, 200) > 0 && zmq_msg_recv(&message, link->socket, ZMQ_DONTWAIT) >= 0;
    }
    if (got) buffer_append(reply, zmq_msg_data(&message), zmq_msg_size(&message));
    zmq_msg_close(&message);
    link->was_silent = !got;
    return got;
}

bool meeting_keys(MeetingKeys *keys, const WireKeys *own, const Federation *federation)
{
    if (!zmq_z85_decode(keys->secret, own->secret_key)) return false;
    for (int s = 0; s < federation->site_count; s++)
        if (!zmq_z85_decode(keys->publics + s * KEY_BYTES, federation->sites[s].key)) return false;
    return true;
}
