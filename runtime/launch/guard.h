/* mpiexec, whose port lets only the hosts of the run in: it listens on all addresses of its host, and whoever
 * connects there and leaves ends its run. */
#ifndef RUNTIME_LAUNCH_GUARD_H
#define RUNTIME_LAUNCH_GUARD_H

/* Arguments: ADDRESSES SUBNET COMMAND [ARGUMENT ...], the addresses (peers_add) separated by spaces. Where the subnet
 * is not "" and one of them is not in it, it is let in, too: hosts are known by other addresses. Runs the command,
 * passes TERM, INT and USR1 on to it, and returns its exit code; the number of a signal that ended it plus 128. Its
 * sockets are guarded some milliseconds after they listen. */
int guard_launcher(int argument_count, char **arguments);

#endif
