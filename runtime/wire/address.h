/* Addresses that people write, HOST:PORT or [IPv6]:PORT, in cluster.yaml, federation.yaml, site.json and --listen. */
#ifndef RUNTIME_WIRE_ADDRESS_H
#define RUNTIME_WIRE_ADDRESS_H

#include <stdbool.h>

/* A host's name, an IPv4 address or an IPv6 address in brackets, and a port from 1 to 65535. */
bool wire_address_is_valid(const char *address);
/* Whether a name server (or /etc/hosts) says where the host is. */
bool wire_address_is_name(const char *address);
/* This host alone: localhost, 127.x.y.z or [::1]. */
bool wire_address_is_loopback(const char *address);

/* Has a socket of ZeroMQ listen. localhost is both loopback addresses; any other name is every address of this host,
 * because a name often stands for a router's address, or in /etc/hosts for 127.0.1.1. The port may be `*`. False: see
 * zmq_errno(). */
bool wire_socket_listen(void *socket, const char *address);
/* Has it connect. ZeroMQ tries one address of a name: an IPv4 one where `attempt` is even, else an IPv6 one. */
bool wire_socket_connect(void *socket, const char *address, int attempt);

#endif
