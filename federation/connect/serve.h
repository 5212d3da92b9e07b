/* The coordinator on its one port. */
#ifndef FEDERATION_CONNECT_SERVE_H
#define FEDERATION_CONNECT_SERVE_H

#include <signal.h>

#include "federation/coordinator.h"
#include "runtime/wire/keys.h"

typedef struct Server {
    void *context, *zap, *socket;
    Coordinator *coordinator;
    void *known; /* the sites' keys, as the handler of handshakes wants them */
} Server;

/* Listens at HOST:PORT; only sites of the federation may connect. Errors: the address cannot be listened at. Close it
 * in any case. */
bool server_open(Server *server, Coordinator *coordinator, const WireKeys *keys, const char *address,
                 Diagnostics *diagnostics);
/* Until all rounds have been and every site has the model, or none has asked for anything for `linger` seconds; or
 * *ended is not 0. */
void server_run(Server *server, double linger, const volatile sig_atomic_t *ended);
void server_close(Server *server);

#endif
