/* A TCP relay on this host, between who connects to it and a port: what a test cuts. */
#ifndef TESTS_RUNTIME_WIRE_RELAY_H
#define TESTS_RUNTIME_WIRE_RELAY_H

#include <stdbool.h>

typedef struct Relay Relay;

/* Listens on a port that was free; relays nothing before it has a target. */
Relay *relay_open(void);
int relay_port(const Relay *relay);
void relay_to(Relay *relay, int port);
/* Returns when all connections are closed; new ones are closed at once until the relay is mended. */
void relay_cut(Relay *relay);
void relay_mend(Relay *relay);
/* How many connections were accepted and relayed. */
int relay_connections(const Relay *relay);
void relay_close(Relay *relay);

#endif
