#include "federation/connect/sockets.h"

enum {
    HANDSHAKE_MS = 10000, /* until a stranger must have shown a key */
    CONNECT_MS = 3000,
    RECONNECT_MS = 200,
    RECONNECT_MOST_MS = 5000,
    KEEPALIVE_S = 20,
    CURVE_OVERHEAD = 256 /* of an encrypted frame, and more */
};

void federation_socket_options(void *socket, int64_t largest)
{
    int64_t most = largest < 0 ? -1 : largest + CURVE_OVERHEAD;
    if (zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &most, sizeof most) != 0) bug("%s", zmq_strerror(zmq_errno()));
    wire_socket_option(socket, ZMQ_HANDSHAKE_IVL, HANDSHAKE_MS);
    wire_socket_option(socket, ZMQ_CONNECT_TIMEOUT, CONNECT_MS);
    wire_socket_option(socket, ZMQ_RECONNECT_IVL, RECONNECT_MS);
    wire_socket_option(socket, ZMQ_RECONNECT_IVL_MAX, RECONNECT_MOST_MS);
    wire_socket_option(socket, ZMQ_TCP_KEEPALIVE, 1);
    wire_socket_option(socket, ZMQ_TCP_KEEPALIVE_IDLE, KEEPALIVE_S);
    wire_socket_option(socket, ZMQ_TCP_KEEPALIVE_INTVL, KEEPALIVE_S);
}
