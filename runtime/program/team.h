/* What the threads of one region (parallel.h) share while they work through a list of calls: a place to meet, at a
 * quarter of a new region's cost, and counters of what is taken of each thread's part. */
#ifndef RUNTIME_PROGRAM_TEAM_H
#define RUNTIME_PROGRAM_TEAM_H

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

/* Which piece of shared work a thread is at; every thread of the region keeps one, zeroed when the region begins. */
typedef struct TeamShare {
    uint32_t round;
} TeamShare;

/* Begins work of which each thread that the team was created for has a part, nothing of it taken yet: also those that
 * the system did not start. All `threads` threads of the region call it, or none, and meet before the next time. */
void team_begin(Team *team, TeamShare *share, int thread, int threads);
/* How many units of the thread's part are taken. */
int64_t team_taken(const Team *team, const TeamShare *share, int thread);
/* Takes the units *from ... to - 1 of it. False, with *from as team_taken() says, if somebody else was faster. */
bool team_take(Team *team, const TeamShare *share, int thread, int64_t *from, int64_t to);

#endif
