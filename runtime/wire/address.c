#include "runtime/wire/address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/wire/sockets.h"

enum { MOST_HOST = 253, MOST_PORT = 65535, MOST_ENDPOINT = MOST_HOST + 32 };

static const char of_names[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-_";

/* Where the port begins; copies what is in front of the colon. NULL: there is no colon, or too much in front of it. */
static const char *split(const char *address, char host[MOST_HOST + 1])
{
    const char *colon = strrchr(address, ':');
    size_t length = colon ? (size_t)(colon - address) : 0;
    if (!length || length > MOST_HOST) return NULL;
    memcpy(host, address, length);
    host[length] = '\0';
    return colon + 1;
}

static bool is_ipv6(const char *host)
{
    struct in6_addr ignored;
    char inside[MOST_HOST + 1];
    size_t length = strlen(host);
    if (length < 2 || host[0] != '[' || host[length - 1] != ']') return false;
    snprintf(inside, sizeof inside, "%.*s", (int)length - 2, host + 1);
    return inet_pton(AF_INET6, inside, &ignored) == 1;
}

static bool is_ipv4(const char *host)
{
    struct in_addr ignored;
    return inet_pton(AF_INET, host, &ignored) == 1;
}

static bool is_name(const char *host)
{
    return host[0] != '.' && host[0] != '-' && !host[strspn(host, of_names)] && !is_ipv4(host);
}

static bool is_localhost(const char *host) { return strcasecmp(host, "localhost") == 0; }

bool wire_address_is_valid(const char *address)
{
    char host[MOST_HOST + 1];
    const char *port = split(address, host);
    if (!port || !(is_name(host) || is_ipv4(host) || is_ipv6(host))) return false;
    size_t digits = strspn(port, "0123456789");
    long number = digits > 0 && digits < 6 ? strtol(port, NULL, 10) : 0;
    return !port[digits] && number > 0 && number <= MOST_PORT;
}

bool wire_address_is_name(const char *address)
{
    char host[MOST_HOST + 1];
    return split(address, host) && is_name(host);
}

bool wire_address_is_loopback(const char *address)
{
    char host[MOST_HOST + 1];
    if (!split(address, host)) return false;
    return is_localhost(host) || strcmp(host, "[::1]") == 0 || (is_ipv4(host) && strncmp(host, "127.", 4) == 0);
}

static bool listen_at(void *socket, const char *host, const char *port, bool ipv6)
{
    char endpoint[MOST_ENDPOINT];
    snprintf(endpoint, sizeof endpoint, "tcp://%s:%s", host, port);
    wire_socket_option(socket, ZMQ_IPV6, ipv6);
    return zmq_bind(socket, endpoint) == 0;
}

bool wire_socket_listen(void *socket, const char *address)
{
    char host[MOST_HOST + 1];
    const char *port = split(strncmp(address, "tcp://", 6) == 0 ? address + 6 : address, host);
    if (!port || strlen(port) > 5) {
        errno = EINVAL;
        return false;
    }
    if (is_ipv4(host) || is_ipv6(host)) return listen_at(socket, host, port, *host == '[');
    if (is_localhost(host)) /* a kernel without IPv6 has the first alone */
        return listen_at(socket, "127.0.0.1", port, false) &&
               (listen_at(socket, "[::1]", port, true) || zmq_errno() != EADDRINUSE);
    return listen_at(socket, "*", port, true) || listen_at(socket, "*", port, false);
}

bool wire_socket_connect(void *socket, const char *address, int attempt)
{
    char endpoint[MOST_ENDPOINT];
    wire_socket_option(socket, ZMQ_IPV6, *address == '[' || (wire_address_is_name(address) && attempt % 2));
    snprintf(endpoint, sizeof endpoint, "tcp://%s", address);
    return zmq_connect(socket, endpoint) == 0;
}
