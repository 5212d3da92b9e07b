/* How ranks on several hosts reach each other, as the launch files say it. */
#ifndef CODEGEN_LINK_LAUNCH_NETWORK_H
#define CODEGEN_LINK_LAUNCH_NETWORK_H

#include "base/buffer.h"

typedef struct LaunchNetwork {
    const char *interface;     /* its name, or the IPv4 subnet that it is in; NULL: any */
    int first_port, last_port; /* where the programs and mpiexec listen; 0: anywhere */
} LaunchNetwork;

/* Refuses hosts with addresses of the open internet: a template of launch.c, with @HOSTS@ for their names. */
extern const char launch_network_check[];
/* A function of the shell, forget_environment, which takes away what the ranks need not know. */
extern const char launch_network_environment[];

/* Commands of the shell for MPI, and for what mpiexec tells other hosts of this one; the former as mpiexec's options. */
void print_network_settings(Buffer *text, const LaunchNetwork *network);
void print_own_address(Buffer *text, const LaunchNetwork *network);
/* Behind these, for a site among others: own_address where the cluster file has no interface (a template like the check,
 * whose functions it calls), and where the gateway takes the ranks' connections there. */
extern const char launch_network_address[];
void print_gateway_port(Buffer *text, const LaunchNetwork *network);
void print_network_options(Buffer *text, const LaunchNetwork *network);

#endif
