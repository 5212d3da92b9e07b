/* All ranks of a run: non-blocking messages, waiting that lets others compute, collective agreement, and failing.
 *
 * MPI carries messages inside a site, the wire (runtime/wire/) carries them between sites through the site's gateway.
 * Users of World see no difference. Every collective goes through the leader of each site, its first rank: gathered
 * inside, exchanged once among leaders, handed out inside. A site that is away is waited for.
 *
 * MPI's own waiting spins, which is ruinous with more ranks than cores, so nothing here blocks inside MPI. A waiting
 * rank tests, and sleeps between tests where ranks share cores. It also answers whether it is alive, so that a time-out
 * names the rank that hangs and not one that waits for it. */
#ifndef RUNTIME_TRAIN_WORLD_H
#define RUNTIME_TRAIN_WORLD_H

#include <mpi.h>

#include "base/diagnostics.h"
#include "runtime/program/message_tags.h"
#include "runtime/train/doorbell.h"
#include "runtime/train/step_clock.h"

typedef struct World {
    int rank, size;
    const char *device;
    MPI_Comm data, control; /* control: questions, agreement, reports */
    bool has_replicas;      /* several pipelines share a step */
    bool one_host;          /* all ranks: clocks are the same */
    bool shares_cores;      /* more threads than cores on this host, or asked to: sleep while waiting */
    Bell *bells;            /* per rank; NULL if not all ranks of this host could map them, or none needs to sleep */
    bool *near;             /* per rank: on this host */
    int first_here;         /* the lowest rank of this host: does what one process per host does */
    struct RankName {
        char device[64], host[64];
    } * names;              /* per rank; NULL before world_meet_hosts */
    double timeout;         /* seconds; 0: none */
    volatile int64_t *step; /* the one being run, for messages; 0 before training */
    /* Messages under way, packed; pending[i] is decremented when requests[i] completes. */
    MPI_Request *requests;
    int **pending;
    bool *is_send;
    int *completed; /* indices, scratch of MPI_Testsome */
    int request_count, request_capacity, send_count;
    double last_progress, last_ring;
    StepClock clock;
    struct WorldSites *sites; /* NULL: MPI reaches all ranks; else `size` and `rank` are those of all sites */
    struct WorldLiveness {    /* who asked whether this rank is alive, and the answer */
        int question, question_pending, reply, reply_pending;
    } live;
} World;

/* After how many seconds of silence a rank is named, while it is still waited for. */
static inline double world_patience(double timeout) { return timeout > 0 && timeout < 60 ? timeout / 2 : 30; }

/* After MPI_Init. `step` outlives the world. The world is this site's until world_meet_sites. */
void world_open(World *world, const SkyProgram *program, double timeout, volatile int64_t *step);
/* From here on the world is that of all sites, if the program knows several; they need not have started yet. Collective
 * within the site. False, on all its ranks, after one has said what is wrong: ranks of the site that are missing, no
 * gateway (SKYCC_GATEWAY says where it is; SKYCC_SITE_KEY names the secret key where it is reached by network). The
 * diagnostics are freed. */
bool world_meet_sites(World *world, const SkyProgram *program, Diagnostics *diagnostics, int *exit_code);
/* Settles hosts, shares_cores and bells; collective. */
void world_meet_hosts(World *world, int threads);
void world_close(World *world); /* collective */

/* Both add 1 to *pending, which must stay in place until it is 0 again. `tag` separates messages between two ranks. */
void world_send(World *world, const void *bytes, size_t size, int peer, int tag, int *pending);
void world_receive(World *world, void *bytes, size_t size, int peer, int tag, int *pending);

/* This rank's site (-1: there are none), and a site's name (NULL where there are none). */
int world_site(const World *world);
const char *world_site_name(const World *world, int site);
/* Whether this rank is the first of its site, or of all. */
bool world_speaks(const World *world);

/* The leader of a site tells its gateway, for --audit, that the step of that number begins, or one of so many batches
 * that are evaluated. */
void world_note(World *world, bool evaluation, int64_t number, uint32_t microbatches);

/* Tests once; cheap. */
void world_progress(World *world);

/* What a rank waits for: for the message when a peer does not answer. peer -1: all. */
typedef struct WaitReason {
    int peer;
    int stage;        /* -1: none */
    int microbatch;   /* -1: none */
    const char *what; /* "activations" */
} WaitReason;

/* Returns when *pending is 0; ends the run when the peer does not answer within the time-out, and names it before. */
void world_wait(World *world, const int *pending, WaitReason reason);
/* Until monotonic_seconds() reaches `deadline`, with messages making progress. */
void world_sleep_until(World *world, double deadline);

/* Collectives; sizes in bytes, the same on every rank. */
void world_allgather(World *world, const void *mine, size_t size, void *all, const char *what);
uint32_t world_largest(World *world, uint32_t mine, const char *what); /* the largest that any rank has */
/* From `root` to all; `tag`: WIRE_DECISION, WIRE_CHECKPOINT or WIRE_LENGTHS. */
void world_broadcast(World *world, int tag, void *bytes, size_t size, int root, const char *what);
/* Element-wise sum over all ranks, in place. Of every element at most one rank may have a term that is not 0,
 * or all terms are whole numbers: then no order of adding changes a bit. */
void world_sum(World *world, double *values, size_t count, const char *what);
void world_barrier(World *world, const char *what);
/* Begins to make *bits what any rank has set in its own; done when *pending, to which it adds 1, is 0 again. */
void world_unite(World *world, uint32_t *bits, int *pending);
/* True if no rank has an error. Otherwise the lowest one that has, of each site, prints its own; sites without any
 * print what the lowest of all says. *exit_code becomes its code. Warnings of rank 0 are printed. The diagnostics are
 * freed. */
bool world_agree(World *world, Diagnostics *diagnostics, int *exit_code);

/* Prints "skycc: rank 2 (edge-1), step 17: MESSAGE" and ends all ranks of all sites with EXIT_RUN_FAILED. This one is
 * gone within seconds, whatever became of the launcher. */
_Noreturn void world_fail(World *world, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Prints the same as a warning. */
void world_warn(const World *world, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same with EXIT_DIVERGED. */
_Noreturn void world_diverged(World *world, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same with any code; with EXIT_SITE_RETURNED only the ranks of this site. */
_Noreturn void world_end(World *world, int exit_code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* A launcher that is told to end everything may do so before it has read what was just printed. Returns when the reader
 * of standard error (if that is a pipe) has read all of it and had a moment to pass it on; after some seconds in any
 * case. Flush stdio's buffers before. */
void last_words_await_reader(void);

#endif
