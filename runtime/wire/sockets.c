#include "runtime/wire/sockets.h"

#include <string.h>
#include <sys/resource.h>

enum {
    HEARTBEAT_MS = 2000,
    SILENCE_MS = 8000, /* after which a connection is closed; every frame counts as a heartbeat */
    CONNECT_MS = 3000, /* then tried anew: TCP itself would wait ever longer */
    RECONNECT_MS = 200,
    HANDSHAKE_MS = 10000,
    FRAMES_WAITING = 256, /* received and not taken: then TCP holds the sender back */
    CURVE_OVERHEAD = 256  /* of an encrypted frame, and more */
};

void wire_socket_option(void *socket, int option, int value)
{
    if (zmq_setsockopt(socket, option, &value, sizeof value) != 0)
        bug("option %d of a socket: %s", option, zmq_strerror(zmq_errno()));
}

void wire_sockets_allow_many(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

void *wire_socket(void *context, int type)
{
    void *socket = wire_socket_try(context, type);
    if (!socket) bug("no socket: %s", zmq_strerror(zmq_errno()));
    return socket;
}

void *wire_socket_try(void *context, int type)
{
    void *socket = zmq_socket(context, type);
    if (!socket) return NULL;
    wire_socket_option(socket, ZMQ_LINGER, 0);
    wire_socket_option(socket, ZMQ_SNDHWM, 0);
    wire_socket_option(socket, ZMQ_RCVHWM, 0);
    return socket;
}

void wire_socket_mind_silence(void *socket)
{
    wire_socket_option(socket, ZMQ_HEARTBEAT_IVL, HEARTBEAT_MS);
    wire_socket_option(socket, ZMQ_HEARTBEAT_TIMEOUT, SILENCE_MS);
    wire_socket_option(socket, ZMQ_HANDSHAKE_IVL, HANDSHAKE_MS);
    wire_socket_option(socket, ZMQ_TCP_MAXRT, SILENCE_MS);
}

void wire_socket_between_sites(void *socket)
{
    const int64_t most = WIRE_HEADER + WIRE_CHUNK + CURVE_OVERHEAD;
    zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &most, sizeof most);
    wire_socket_option(socket, ZMQ_RCVHWM, FRAMES_WAITING);
    wire_socket_mind_silence(socket);
    wire_socket_option(socket, ZMQ_CONNECT_TIMEOUT, CONNECT_MS);
    wire_socket_option(socket, ZMQ_RECONNECT_IVL, RECONNECT_MS);
    wire_socket_option(socket, ZMQ_TCP_KEEPALIVE, 1);
    wire_socket_option(socket, ZMQ_TCP_KEEPALIVE_IDLE, SILENCE_MS / 1000);
    wire_socket_option(socket, ZMQ_TCP_KEEPALIVE_INTVL, HEARTBEAT_MS / 1000);
}

static void set_text(void *socket, int option, const char *text, size_t size)
{
    if (zmq_setsockopt(socket, option, text, size) != 0)
        bug("option %d of a socket: %s", option, zmq_strerror(zmq_errno()));
}

void wire_socket_guard(void *socket, const WireKeys *own, const char *domain)
{
    wire_socket_option(socket, ZMQ_CURVE_SERVER, 1);
    set_text(socket, ZMQ_CURVE_SECRETKEY, own->secret_key, sizeof own->secret_key);
    set_text(socket, ZMQ_ZAP_DOMAIN, domain, strlen(domain));
}

void wire_socket_pin(void *socket, const WireKeys *own, const char *server)
{
    set_text(socket, ZMQ_CURVE_SERVERKEY, server, WIRE_KEY_TEXT + 1);
    set_text(socket, ZMQ_CURVE_PUBLICKEY, own->public_key, sizeof own->public_key);
    set_text(socket, ZMQ_CURVE_SECRETKEY, own->secret_key, sizeof own->secret_key);
}

void *wire_socket_watch(void *context, void *socket, int events, int number)
{
    char place[40];
    snprintf(place, sizeof place, "inproc://watch-%d", number);
    if (zmq_socket_monitor(socket, place, events) != 0) return NULL;
    void *watch = wire_socket_try(context, ZMQ_PAIR);
    if (!watch) {
        zmq_socket_monitor(socket, NULL, 0);
        return NULL;
    }
    if (zmq_connect(watch, place) != 0) bug("no events: %s", zmq_strerror(zmq_errno()));
    return watch;
}

int wire_socket_event(void *watch)
{
    zmq_msg_t part;
    uint16_t event = 0;
    zmq_msg_init(&part);
    if (zmq_msg_recv(&part, watch, ZMQ_DONTWAIT) >= (int)sizeof event) {
        memcpy(&event, zmq_msg_data(&part), sizeof event); /* number, value; then where, in a part of its own */
        while (zmq_msg_more(&part) && zmq_msg_recv(&part, watch, ZMQ_DONTWAIT) >= 0) continue;
    }
    zmq_msg_close(&part);
    return event;
}

static void release(void *bytes, void *chunk)
{
    (void)bytes;
    wire_chunk_release(chunk);
}

bool wire_socket_send(void *socket, const void *route, size_t route_size, WireChunk *chunk)
{
    zmq_msg_t message;
    if (route_size && zmq_send(socket, route, route_size, ZMQ_SNDMORE | ZMQ_DONTWAIT) < 0) {
        wire_chunk_release(chunk);
        return false;
    }
    zmq_msg_init_data(&message, chunk->bytes, chunk->size, release, chunk);
    if (zmq_msg_send(&message, socket, ZMQ_DONTWAIT) >= 0) return true;
    zmq_msg_close(&message);
    return false;
}

void wire_message_close(WireMessage *message)
{
    zmq_msg_close(&message->route);
    zmq_msg_close(&message->body);
}

bool wire_socket_receive(void *socket, bool is_router, WireMessage *message, bool *odd)
{
    *odd = false;
    zmq_msg_init(&message->route);
    zmq_msg_init(&message->body);
    zmq_msg_t *first = is_router ? &message->route : &message->body;
    if (zmq_msg_recv(first, socket, ZMQ_DONTWAIT) < 0) {
        wire_message_close(message);
        return false;
    }
    *odd = is_router && !zmq_msg_more(&message->route);
    if (is_router && !*odd) zmq_msg_recv(&message->body, socket, ZMQ_DONTWAIT);
    zmq_msg_t *last = *odd ? &message->route : &message->body;
    while (zmq_msg_more(last)) {
        *odd = true;
        if (zmq_msg_recv(last, socket, ZMQ_DONTWAIT) < 0) break;
    }
    return true;
}
