#include "runtime/wire/client.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/wire/sockets.h"

/* What may lie here for receives that are not posted yet. Schedules bound what ranks send each other to far less. */
enum { MOST_EARLY = 1 << 16 };
static const uint64_t most_early_bytes = (uint64_t)1 << 34;

typedef struct Receive {
    int from, tag;
    void *bytes;
    size_t size;
    int *pending;
} Receive;

typedef struct Early {
    WireMessage *message; /* stays where it is: ZeroMQ's messages are not to be moved about */
    WireFrame frame;      /* of the message */
} Early;

struct WireClient {
    WireClientOptions options;
    void *context, *socket, *watch;
    Receive *receives;
    size_t receive_count, receive_capacity;
    Early *early; /* in the order of arrival */
    size_t early_count, early_capacity;
    uint64_t early_bytes, dropped;
    WireSiteState *states; /* per site */
    bool joined, lost;
};

static bool use_keys(WireClient *client, Diagnostics *diagnostics)
{
    WireKeys keys;
    if (strncmp(client->options.gateway, "ipc://", 6) == 0) return true;
    if (!client->options.key)
        return run_error(diagnostics, NULL, "the gateway at %s is on the network, but no key is given",
                         client->options.gateway);
    if (!wire_keys_read(&keys, client->options.key, diagnostics)) return false;
    wire_socket_pin(client->socket, &keys, keys.public_key);
    wire_socket_mind_silence(client->socket);
    wire_keys_forget(&keys);
    return true;
}

static void send_frame(WireClient *client, const WireFrame *frame)
{
    if (client->lost) return;
    wire_socket_send(client->socket, NULL, 0, wire_chunk_make(frame));
}

WireClient *wire_client_open(const WireClientOptions *options, Diagnostics *diagnostics)
{
    WireClient *client = memory_allocate(sizeof *client);
    client->options = *options;
    client->states = memory_allocate((size_t)options->site_count * sizeof *client->states);
    client->context = zmq_ctx_new();
    if (!client->context) bug("no context: %s", zmq_strerror(zmq_errno()));
    client->socket = wire_socket(client->context, ZMQ_DEALER);
    client->watch = wire_socket_watch(client->context, client->socket, ZMQ_EVENT_DISCONNECTED, 0);
    bool ok = use_keys(client, diagnostics);
    if (ok && zmq_connect(client->socket, options->gateway) != 0)
        ok = run_error(diagnostics, NULL, "cannot connect to the gateway at %s: %s", options->gateway,
                       zmq_strerror(zmq_errno()));
    if (!ok) {
        wire_client_close(client);
        return NULL;
    }
    send_frame(client,
               &(WireFrame){.kind = WIRE_JOIN, .from = options->rank, .to = options->site, .tag = options->rank_count});
    return client;
}

static void remove_early(WireClient *client, size_t number)
{
    client->early_bytes -= client->early[number].frame.size;
    wire_message_close(client->early[number].message);
    free(client->early[number].message);
    client->early_count--;
    memmove(client->early + number, client->early + number + 1, (client->early_count - number) * sizeof *client->early);
}

void wire_client_close(WireClient *client)
{
    enum { LAST_MS = 3000 };
    if (client->joined) send_frame(client, &(WireFrame){.kind = WIRE_LEAVE, .from = client->options.rank});
    wire_socket_option(client->socket, ZMQ_LINGER, client->lost ? 0 : LAST_MS);
    zmq_socket_monitor(client->socket, NULL, 0);
    if (client->watch) zmq_close(client->watch);
    zmq_close(client->socket);
    zmq_ctx_term(client->context);
    while (client->early_count) remove_early(client, client->early_count - 1);
    free(client->early);
    free(client->receives);
    free(client->states);
    free(client);
}

void wire_client_send(WireClient *client, int to, int tag, const void *bytes, size_t size)
{
    send_frame(client, &(WireFrame){.kind = WIRE_MESSAGE,
                                    .from = client->options.rank,
                                    .to = to,
                                    .tag = tag,
                                    .total = size,
                                    .payload = bytes,
                                    .size = size});
}

void wire_client_note(WireClient *client, WireNote note, int64_t number, uint32_t microbatches)
{
    send_frame(client, &(WireFrame){.kind = WIRE_NOTE,
                                    .from = client->options.rank,
                                    .tag = (int32_t)note,
                                    .sequence = (uint64_t)number,
                                    .total = microbatches});
}

void wire_client_fail(WireClient *client, int exit_code, const char *why)
{
    send_frame(
        client,
        &(WireFrame){
            .kind = WIRE_FAIL, .from = client->options.rank, .tag = exit_code, .payload = why, .size = strlen(why)});
}

/* ---- Receiving ---- */

/* Writes the message to where it is expected, if its size is right; else it counts as dropped, and the receive waits
 * on. */
static bool fill(WireClient *client, const Receive *receive, const WireFrame *frame)
{
    if (receive->size != frame->size) {
        client->dropped++;
        return false;
    }
    if (frame->size) memcpy(receive->bytes, frame->payload, frame->size);
    --*receive->pending;
    return true;
}

void wire_client_receive(WireClient *client, int from, int tag, void *bytes, size_t size, int *pending)
{
    const Receive receive = {from, tag, bytes, size, pending};
    ++*pending;
    for (size_t i = 0; i < client->early_count;) {
        const WireFrame *frame = &client->early[i].frame;
        if (frame->from != from || frame->tag != tag) {
            i++;
            continue;
        }
        bool filled = fill(client, &receive, frame);
        remove_early(client, i);
        if (filled) return;
    }
    array_push(client->receives, client->receive_count, client->receive_capacity, receive);
}

/* True if the message was put where it belongs, or dropped; else it is to be kept. */
static bool hand_over(WireClient *client, const WireFrame *frame)
{
    for (size_t i = 0; i < client->receive_count; i++) {
        const Receive receive = client->receives[i];
        if (receive.from != frame->from || receive.tag != frame->tag) continue;
        if (!fill(client, &receive, frame)) return true;
        client->receive_count--;
        memmove(client->receives + i, client->receives + i + 1, (client->receive_count - i) * sizeof *client->receives);
        return true;
    }
    return false;
}

static void take_state(WireClient *client, const WireFrame *frame)
{
    client->joined = true;
    if (frame->from < 0 || frame->from >= client->options.site_count) return;
    WireSiteState *state = &client->states[frame->from];
    size_t size = frame->size < sizeof state->why ? frame->size : sizeof state->why - 1;
    state->state = (WireState)frame->tag;
    state->exit_code = (int)frame->total;
    memcpy(state->why, frame->payload, size);
    state->why[size] = '\0';
}

static void keep_early(WireClient *client, WireMessage *message, const WireFrame *frame)
{
    if (client->early_count == MOST_EARLY || client->early_bytes + frame->size > most_early_bytes) {
        client->dropped++;
        wire_message_close(message);
        return;
    }
    Early early = {.message = memory_allocate(sizeof *early.message)};
    zmq_msg_init(&early.message->route);
    zmq_msg_init(&early.message->body);
    zmq_msg_move(&early.message->body, &message->body);
    wire_message_close(message);
    zmq_msg_t *body = &early.message->body;
    wire_frame_read(&early.frame, zmq_msg_data(body), zmq_msg_size(body)); /* where it lies now */
    array_push(client->early, client->early_count, client->early_capacity, early);
    client->early_bytes += early.frame.size;
}

static void take_message(WireClient *client, WireMessage *message, WireTake *take, void *context)
{
    WireFrame frame;
    if (!wire_frame_read(&frame, zmq_msg_data(&message->body), zmq_msg_size(&message->body))) {
        client->dropped++;
    } else if (frame.kind == WIRE_STATE) {
        take_state(client, &frame);
    } else if (frame.kind != WIRE_MESSAGE) {
        client->dropped++;
    } else if (frame.tag < 0) {
        take(context, frame.from, frame.tag, frame.payload, frame.size);
    } else if (!hand_over(client, &frame)) {
        keep_early(client, message, &frame);
        return;
    }
    wire_message_close(message);
}

void wire_client_progress(WireClient *client, WireTake *take, void *context)
{
    enum { AT_ONCE = 64 };
    WireMessage message;
    bool odd;
    int taken = 0;
    while (taken < AT_ONCE && wire_socket_receive(client->socket, false, &message, &odd)) {
        take_message(client, &message, take, context);
        taken++;
    }
    if (taken < AT_ONCE && client->watch && wire_socket_event(client->watch) == ZMQ_EVENT_DISCONNECTED)
        client->lost = true;
}

void wire_client_sleep(WireClient *client, double seconds)
{
    int events = 0, descriptor = -1;
    size_t size = sizeof events;
    /* Its descriptor tells of news only: what is there already is asked for first. */
    if (zmq_getsockopt(client->socket, ZMQ_EVENTS, &events, &size) != 0 || (events & ZMQ_POLLIN)) return;
    zmq_getsockopt(client->socket, ZMQ_FD, &descriptor, &size);
    struct pollfd item = {.fd = descriptor, .events = POLLIN};
    struct timespec time = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    ppoll(&item, 1, &time, NULL);
}

bool wire_client_has_joined(const WireClient *client) { return client->joined; }
bool wire_client_is_lost(const WireClient *client) { return client->lost; }
const WireSiteState *wire_client_state(const WireClient *client, int site) { return &client->states[site]; }
uint64_t wire_client_dropped(const WireClient *client) { return client->dropped; }
