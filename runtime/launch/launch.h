/* Starts the ranks of a run on this host, without a port that anybody could connect to: ranks find each other by PMI
 * over pairs of sockets that they inherit (pmi.h). mpiexec listens on all addresses of its host, and one connection
 * that is closed again ends its run. */
#ifndef RUNTIME_LAUNCH_LAUNCH_H
#define RUNTIME_LAUNCH_LAUNCH_H

/* Arguments are mpiexec's: [-bind-to core:N] -n 1 [-wdir FOLDER] [-env NAME VALUE] PROGRAM [ARGUMENT ...] : -n 1 ...;
 * rank by rank.
 *
 * TERM, INT and USR1 are passed on to all ranks; a second INT kills those that do not end by it. When a rank ends in
 * bad order, the others are killed. When the process that called this ends, ranks get TERM. Returns when none is
 * left: the exit code of the first that failed, EXIT_RUN_FAILED if a signal killed it, EXIT_USAGE if arguments are
 * not as above. */
int launch_ranks(int argument_count, char **arguments);

/* mpiexec, whose port lets only the hosts of the run in: it listens on all addresses of its host, and whoever
 * connects there and leaves ends its run.
 *
 * Arguments: ADDRESSES SUBNET COMMAND [ARGUMENT ...], the addresses (peers_add) separated by spaces. Where the subnet
 * is not "" and one of them is not in it, it is let in, too: hosts are known by other addresses. Runs the command,
 * passes TERM, INT and USR1 on to it, and returns its exit code; the number of a signal that ended it plus 128. Its
 * sockets are guarded some milliseconds after they listen. */
int guard_launcher(int argument_count, char **arguments);

#endif
