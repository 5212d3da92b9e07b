/* Sockets of ZeroMQ as the wire uses them: with CURVE (https://rfc.zeromq.org/spec/26), bounded, and noticing soon that
 * the other end is gone. A socket that cannot be made, or an option that is unknown, is a bug: what users can cause is
 * said by the callers. */
#ifndef RUNTIME_WIRE_SOCKETS_H
#define RUNTIME_WIRE_SOCKETS_H

#include <stdbool.h>
#include <zmq.h>

#include "runtime/wire/keys.h"
#include "runtime/wire/peer.h"

/* Raises the process's limit of open files: strangers hold a connection each until their time is over, and what is left
 * must do for the sites. Processes that listen call it first. */
void wire_sockets_allow_many(void);

/* A socket of ZMQ_... `type` that queues without limit what it sends, and is closed without waiting. */
void *wire_socket(void *context, int type);
/* NULL, and see zmq_errno(), where descriptors have run out: the one above ends the process then. */
void *wire_socket_try(void *context, int type);
void wire_socket_option(void *socket, int option, int value);

/* For links between sites, on either end: frames of at most WIRE_CHUNK, heartbeats, few seconds until a dead connection
 * is closed, and until a stranger must have shown a key. Heartbeats are ZeroMQ's own, which its thread answers whatever
 * the process does: TCP alone would double its patience again and again while a link is cut. */
void wire_socket_between_sites(void *socket);
/* The part of it that is about dead connections and strangers, for ranks on other hosts than their gateway. */
void wire_socket_mind_silence(void *socket);

/* Only who owns a key that the ZAP handler knows in `domain` may connect (wire/zap.h). */
void wire_socket_guard(void *socket, const WireKeys *own, const char *domain);
/* Connects only to who owns `server`. */
void wire_socket_pin(void *socket, const WireKeys *own, const char *server);

/* A socket that says what becomes of the connections of `socket`: `events` of zmq_socket_monitor. NULL without memory
 * for it. */
void *wire_socket_watch(void *context, void *socket, int events, int number);
/* The next event; 0: none. */
int wire_socket_event(void *watch);

/* Takes over one use of the chunk. `route`: of a ROUTER's peer; size 0: no ROUTER. False: it cannot be sent to there.
 * */
bool wire_socket_send(void *socket, const void *route, size_t route_size, WireChunk *chunk);

/* One message as it comes; `route` is set where the socket is a ROUTER. Close it with wire_message_close, and only
 * after wire_socket_receive returned true. *odd: it
 * has more or fewer parts than it should, and says nothing. */
typedef struct WireMessage {
    zmq_msg_t route, body;
} WireMessage;

bool wire_socket_receive(void *socket, bool is_router, WireMessage *message, bool *odd);
void wire_message_close(WireMessage *message);

#endif
