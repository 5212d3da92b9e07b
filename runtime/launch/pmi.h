/* The launcher's side of PMI-1, by which MPI processes find each other: lines of text in, lines of text out. A process
 * puts values under keys, waits in a barrier until all have, and gets the others' values.
 *
 * The protocol is described in P. Balaji et al., "PMI: A scalable parallel process-management interface for
 * extreme-scale systems" (EuroMPI 2010); messages are those that MPICH 4 sends. */
#ifndef RUNTIME_LAUNCH_PMI_H
#define RUNTIME_LAUNCH_PMI_H

#include <stddef.h>

#include "base/arena.h"

enum { PMI_LINE = 4096 }; /* bytes of the longest message, with its newline */

typedef struct PmiPair {
    const char *key, *value;
} PmiPair;

typedef struct PmiServer {
    Arena arena;
    int size;    /* processes */
    int waiting; /* of them in the barrier */
    PmiPair *pairs;
    size_t pair_count, pair_capacity;
} PmiServer;

typedef enum PmiEvent {
    PMI_ANSWER,    /* send the answer to this process */
    PMI_WAIT,      /* it waits in the barrier */
    PMI_RELEASE,   /* send the answer to all: the barrier is complete */
    PMI_JOINED,    /* as PMI_ANSWER; from now on it must say goodbye before it ends */
    PMI_GOODBYE,   /* as PMI_ANSWER; it may end */
    PMI_ABORT,     /* end all, with *exit_code */
    PMI_NO_MESSAGE /* not of this protocol */
} PmiEvent;

/* All processes of `size` are on one host. */
void pmi_open(PmiServer *server, int size);
/* Takes one line without its newline, and writes the answer with one. */
PmiEvent pmi_take(PmiServer *server, const char *line, char answer[PMI_LINE], int *exit_code);
void pmi_close(PmiServer *server);

#endif
