/* Addresses as people write them: which are taken, where sockets then listen, and from where they are reached. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/wire/address.h"
#include "runtime/wire/sockets.h"

enum { PATIENCE_MS = 10000 };

static void addresses_have_a_host_and_a_port(void **state)
{
    static const char *const good[] = {"localhost:1",     "head.example:65535", "my_host-2:80", "192.0.2.7:5555",
                                       "[2001:db8::7]:5", "[::1]:443",          "0.0.0.0:9",    "1st:9"};
    static const char *const bad[] = {"",         "host",    ":5",      "host:", "host:0",       "host:65536",
                                      "host:5x",  "ho st:5", "host:-5", "::1:5", "[::1]",        "[1:2]:5",
                                      "[host]:5", "h/x:5",   "-h:5",    "a;b:5", "tcp://host:5", "host:000005",
                                      "h\nx:5",   "\"h\":5", "*:5"};
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if (!wire_address_is_valid(good[i])) fail_msg("%s is refused", good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (wire_address_is_valid(bad[i])) fail_msg("%s is taken", bad[i]);
    assert_true(wire_address_is_name("localhost:5") && wire_address_is_name("a.example:5"));
    assert_false(wire_address_is_name("192.0.2.7:5") || wire_address_is_name("[::1]:5"));
    assert_true(wire_address_is_loopback("LocalHost:5") && wire_address_is_loopback("127.8.7.6:5") &&
                wire_address_is_loopback("[::1]:5"));
    assert_false(wire_address_is_loopback("127.example:5") || wire_address_is_loopback("10.0.0.1:5"));
}

static bool localhost_has(int family)
{
    struct addrinfo *found, wanted = {.ai_family = family, .ai_socktype = SOCK_STREAM};
    if (getaddrinfo("localhost", NULL, &wanted, &found) != 0) return false;
    freeaddrinfo(found);
    return true;
}

static bool has_ipv6(void)
{
    char line[256] = "";
    bool found = false;
    FILE *file = fopen("/proc/net/if_inet6", "r");
    while (file && fgets(line, sizeof line, file)) found |= strncmp(line, "00000000000000000000000000000001", 32) == 0;
    if (file) fclose(file);
    return found;
}

/* Whether a message arrives from there within `attempts` attempts to connect. */
static bool is_reached(void *context, void *listener, const char *from, int attempts)
{
    for (int attempt = 0; attempt < attempts; attempt++) {
        void *socket = wire_socket(context, ZMQ_DEALER);
        zmq_pollitem_t item = {.socket = listener, .events = ZMQ_POLLIN};
        assert_true(wire_socket_connect(socket, from, attempt));
        assert_int_equal(zmq_send(socket, "hello", 5, 0), 5);
        bool got = zmq_poll(&item, 1, attempts > 1 ? 1000 : PATIENCE_MS) > 0;
        char text[8];
        if (got) assert_int_equal(zmq_recv(listener, text, sizeof text, 0), 5);
        zmq_close(socket);
        if (got) return true;
    }
    return false;
}

static void *listen_at(void *context, const char *address)
{
    void *socket = wire_socket(context, ZMQ_DEALER);
    if (!wire_socket_listen(socket, address)) fail_msg("%s: %s", address, zmq_strerror(zmq_errno()));
    return socket;
}

static void names_are_listened_at_and_reached(void **state)
{
    char own[200] = "", address[300], from[300];
    int port = 30000 + (int)getpid() % 2000;
    (void)state;
    gethostname(own, sizeof own - 1);
    const char *const places[] = {"localhost", own, "127.0.0.1", "[::1]", "no-such-host.invalid", "*"};
    void *context = zmq_ctx_new();
    for (size_t i = 0; i < sizeof places / sizeof *places; i++, port++) {
        if (*places[i] == '[' && !has_ipv6()) continue;
        snprintf(address, sizeof address, "%s:%d", places[i], port);
        void *listener = listen_at(context, address);
        snprintf(from, sizeof from, "127.0.0.1:%d", port);
        if (*places[i] != '[' && !is_reached(context, listener, from, 1)) fail_msg("%s from %s", address, from);
        snprintf(from, sizeof from, "[::1]:%d", port);
        if (*places[i] != '1' && has_ipv6() && !is_reached(context, listener, from, 1))
            fail_msg("%s from %s", address, from);
        snprintf(from, sizeof from, "localhost:%d", port);
        if (localhost_has(*places[i] == '[' ? AF_INET6 : AF_INET) && !is_reached(context, listener, from, 4))
            fail_msg("%s from %s", address, from);
        zmq_close(listener);
    }
    zmq_ctx_term(context);
}

static void a_port_that_is_taken_is_refused(void **state)
{
    char address[40], one[40];
    (void)state;
    void *context = zmq_ctx_new();
    snprintf(address, sizeof address, "localhost:%d", 33000 + (int)getpid() % 2000);
    for (int six = 0; six <= has_ipv6(); six++) {
        snprintf(one, sizeof one, "%s%s", six ? "[::1]" : "127.0.0.1", strchr(address, ':'));
        void *first = listen_at(context, one), *second = wire_socket(context, ZMQ_DEALER);
        assert_false(wire_socket_listen(second, address));
        assert_int_equal(zmq_errno(), EADDRINUSE);
        zmq_close(second);
        zmq_close(first);
    }
    assert_false(wire_socket_listen(NULL, "host"));
    zmq_ctx_term(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses_have_a_host_and_a_port),
        cmocka_unit_test(names_are_listened_at_and_reached),
        cmocka_unit_test(a_port_that_is_taken_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
