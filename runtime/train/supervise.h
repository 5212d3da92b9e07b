/* Two processes per rank: one works, its parent watches how it ends. Only the parent can tell that a signal ended the
 * work, and in which step. It passes on signals that ask to save, and ends the work if the launcher is gone or the
 * other ranks do not start. */
#ifndef RUNTIME_TRAIN_SUPERVISE_H
#define RUNTIME_TRAIN_SUPERVISE_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/program/program.h"

/* Shared by the two. */
typedef struct RunState {
    volatile int64_t step;  /* being run, from 1; 0 before training */
    volatile bool joined;   /* all ranks have started */
    volatile bool finished; /* all ranks are done, with exit_code */
    volatile int exit_code;
    volatile double timeout; /* seconds in which all ranks must have started; 0: no limit */
    char lost_file[512];     /* whose loss (SIGBUS) ends the work; "": none */
} RunState;

/* Returns in the process that works. The other one watches, and exits with the same code. Before MPI_Init. */
RunState *supervise(const SkyProgram *program);

/* Ends the process that worked. Leaves MPI_Finalize out if MPICH's launcher can be told so: over TCP it often does not
 * return, and with many ranks it takes seconds. All ranks must have agreed that no message is under way. */
_Noreturn void supervised_exit(RunState *state, int exit_code);

#endif
