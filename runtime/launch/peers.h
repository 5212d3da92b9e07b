/* Who may connect to sockets that listen: the kernel drops what comes from other addresses (a socket filter, for
 * IPv4, as MPI uses it). Nobody else learns that the port is open, and nothing of theirs reaches the program. */
#ifndef RUNTIME_LAUNCH_PEERS_H
#define RUNTIME_LAUNCH_PEERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PEERS_MOST = 512 };

typedef struct Subnet {
    uint32_t address, mask; /* in the host's byte order */
} Subnet;

typedef struct Peers {
    Subnet subnets[PEERS_MOST];
    size_t count;
} Peers;

/* False: there is no more room. */
bool peers_add_subnet(Peers *peers, Subnet subnet);
/* Adds one address, such as "10.1.0.7", or a subnet, "10.1.0.0/16". False: it is neither, or there is no more room. */
bool peers_add(Peers *peers, const char *text);
/* Adds the addresses of this host's interfaces. */
void peers_add_own(Peers *peers);
/* Lets only these connect to the listening socket. False: the kernel does not do it; errno says why. */
bool peers_guard(const Peers *peers, int socket);
/* Notes on which sockets this process listens that it inherited; before it opens its own. */
void peers_note_inherited(void);
/* Lets only these connect to the sockets on which this process listens, by IPv4, but for those that it inherited. */
void peers_guard_own(const Peers *peers);
/* Lets nobody connect any more to the mpiexec that started this process, if there is one on this host: its ranks
 * inherit the socket. For when all of them are there. */
void peers_close_launcher(void);

#endif
