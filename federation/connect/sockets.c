#include "federation/connect/sockets.h"

enum {
    HANDSHAKE_MS = 10000, /* a peer must show its key within this time */
    CONNECT_MS = 3000,
    RECONNECT_MS = 200,
    RECONNECT_MOST_MS = 5000,
    KEEPALIVE_S = 20,
    CURVE_OVERHEAD = 256 /* more than that of an encrypted frame */
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
