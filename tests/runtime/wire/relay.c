#include "tests/runtime/wire/relay.h"

#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/diagnostics.h"

enum { MOST_PAIRS = 64, CHUNK = 1 << 16 };

struct Relay {
    int listener, port;
    atomic_int target, connections;
    atomic_bool cut, is_cut, stop;
    pthread_t thread;
    int pairs[MOST_PAIRS][2]; /* the thread's own; -1: none */
};

static struct sockaddr_in local(int port)
{
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static void close_pair(int *pair)
{
    if (pair[0] >= 0) close(pair[0]);
    if (pair[1] >= 0) close(pair[1]);
    pair[0] = pair[1] = -1;
}

static void accept_one(Relay *relay)
{
    int from = accept4(relay->listener, NULL, NULL, SOCK_CLOEXEC), free_pair = 0;
    while (free_pair < MOST_PAIRS && relay->pairs[free_pair][0] >= 0) free_pair++;
    if (from < 0) return;
    int to = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const struct sockaddr_in address = local(relay->target);
    bool ok = free_pair < MOST_PAIRS && !relay->cut && relay->target &&
              connect(to, (const struct sockaddr *)&address, sizeof address) == 0;
    if (!ok) {
        close(from);
        close(to);
        return;
    }
    relay->pairs[free_pair][0] = from;
    relay->pairs[free_pair][1] = to;
    relay->connections++;
}

static bool pass(int from, int to)
{
    static char bytes[CHUNK];
    ssize_t size = recv(from, bytes, sizeof bytes, MSG_DONTWAIT);
    for (ssize_t done = 0; done < size;) {
        ssize_t sent = send(to, bytes + done, (size_t)(size - done), MSG_NOSIGNAL);
        if (sent <= 0) return false;
        done += sent;
    }
    return size > 0;
}

static void *work(void *argument)
{
    Relay *relay = argument;
    while (!relay->stop) {
        struct pollfd items[1 + 2 * MOST_PAIRS] = {{.fd = relay->listener, .events = POLLIN}};
        for (int p = 0; p < MOST_PAIRS; p++) {
            if (relay->cut) close_pair(relay->pairs[p]);
            for (int i = 0; i < 2; i++) items[1 + 2 * p + i] = (struct pollfd){relay->pairs[p][i], POLLIN, 0};
        }
        relay->is_cut = relay->cut;
        poll(items, 1 + 2 * MOST_PAIRS, 5);
        if (items[0].revents) accept_one(relay);
        for (int p = 0; p < MOST_PAIRS; p++)
            for (int i = 0; i < 2; i++)
                if (items[1 + 2 * p + i].revents && relay->pairs[p][0] >= 0 &&
                    !pass(relay->pairs[p][i], relay->pairs[p][1 - i]))
                    close_pair(relay->pairs[p]);
    }
    return NULL;
}

Relay *relay_open(void)
{
    Relay *relay = memory_allocate(sizeof *relay);
    struct sockaddr_in address = local(0);
    socklen_t size = sizeof address;
    for (int p = 0; p < MOST_PAIRS; p++) relay->pairs[p][0] = relay->pairs[p][1] = -1;
    relay->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(relay->listener, (struct sockaddr *)&address, sizeof address) != 0 || listen(relay->listener, 16) != 0 ||
        getsockname(relay->listener, (struct sockaddr *)&address, &size) != 0)
        bug("no port to listen on");
    relay->port = ntohs(address.sin_port);
    if (pthread_create(&relay->thread, NULL, work, relay) != 0) bug("no thread");
    return relay;
}

int relay_port(const Relay *relay) { return relay->port; }
int relay_connections(const Relay *relay) { return relay->connections; }
void relay_to(Relay *relay, int port) { relay->target = port; }
void relay_mend(Relay *relay) { relay->cut = false; }

void relay_cut(Relay *relay)
{
    relay->cut = true;
    while (!relay->is_cut) usleep(500);
}

void relay_close(Relay *relay)
{
    relay->stop = true;
    pthread_join(relay->thread, NULL);
    for (int p = 0; p < MOST_PAIRS; p++) close_pair(relay->pairs[p]);
    close(relay->listener);
    free(relay);
}
