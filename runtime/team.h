/* What the threads of one region (runtime/parallel.h) have in common while they work through a list of calls together:
 * a place to meet after each, which costs a quarter of what a region of its own does, and the pieces of a call, of
 * which everyone has a share and takes from another's when its own is done. So a core that is slowed down, by
 * neighbours on the machine or a faster clock elsewhere, holds nobody up for longer than its last piece takes. */
#ifndef RUNTIME_TEAM_H
#define RUNTIME_TEAM_H

#include <stdbool.h>
#include <stdint.h>

typedef struct Team Team;

/* For regions of at most so many threads. It never fails. */
Team *team_create(int threads);
void team_free(Team *team); /* NULL is allowed */

/* Before a region, by the thread that enters it. */
void team_start(Team *team);

/* Returns once all `threads` threads of the region have called it. What any of them wrote before, all see after. It
 * spins for a while and then sleeps; with OMP_WAIT_POLICY=passive, or fewer processors than threads, almost at once. */
void team_meet(Team *team, int threads);

/* One thread's way through a piece of work; every thread of the region keeps one, zeroed when the region begins. */
typedef struct TeamShare {
    uint32_t round; /* counts pieces of work */
    int owner;      /* whose share is being taken from */
} TeamShare;

/* Begins work that the threads 0 ... sharers - 1 of the region share. All threads of the region call it, or none, and
 * meet before the next time. */
void team_begin(Team *team, TeamShare *share, int thread);
/* Takes some of the units 0 ... count - 1: first of this thread's equal part of them, then of the others'. Half of what
 * is left of a part at a time, `least` units at least. False if nothing is left. */
bool team_take(Team *team, TeamShare *share, int thread, int sharers, int64_t count, int64_t least, int64_t *begin,
               int64_t *end);

#endif
