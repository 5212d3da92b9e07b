/* What launch_ranks is asked to start. */
#ifndef RUNTIME_LAUNCH_COMMAND_LINE_H
#define RUNTIME_LAUNCH_COMMAND_LINE_H

#include <stdbool.h>

typedef struct LaunchedProgram {
    char **words;                         /* the program and its arguments; NULL follows the last */
    const char *folder;                   /* where it runs; NULL: here */
    const char *variable_name, *variable; /* to add to its environment; NULL: none */
} LaunchedProgram;

typedef struct LaunchCommand {
    LaunchedProgram *programs; /* one a rank; malloc'ed */
    int count;
    int cores; /* that each rank is bound to; 0: it is not bound */
} LaunchCommand;

/* Overwrites the separators among the arguments, which the programs' words point into. False: they are not as launch.h
 * has them. */
bool launch_command_read(LaunchCommand *command, int argument_count, char **arguments);

/* Gives the calling process the processors of its parent back, of which OpenMP takes all but one away where
 * OMP_PROC_BIND says so, before main. */
void launch_unbind(void);
/* Binds the calling process to so many cores of those that it may use, the rank-th after those of the ranks before.
 * Where there are too few cores, hardware threads count as cores. */
void launch_bind(int rank, int ranks, int cores);

#endif
