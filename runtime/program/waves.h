/* How the threads of a region share a wave (program.h): each has a part of its work, and takes from another's when its
 * own is done. So a slow core delays the others by at most its last piece. */
#ifndef RUNTIME_PROGRAM_WAVES_H
#define RUNTIME_PROGRAM_WAVES_H

#include "runtime/program/program.h"
#include "runtime/program/team.h"

/* A thread's part: of calls (or groups) with enough units the piece that parallel_begin() gives, so that a thread works
 * on the same rows, in its caches, in call after call; of the others, whole calls. */
typedef struct WavePart {
    int64_t units;
    double nanoseconds;
} WavePart;

typedef struct Wave {
    uint32_t first, end; /* calls of the list */
    int sharers;         /* as many threads have parts, at least one; 1 where a call needs an interpreter */
    bool has_tails;      /* calls have some */
    const WavePart *parts;
} Wave;

typedef struct WaveList {
    const SkyCall *calls;
    int64_t *units;      /* per call, or per first call of a group: work units, or blocks */
    double *nanoseconds; /* that they take */
    int *owner;          /* per call: whose it is; -1: cut for all */
    Wave *waves;
    uint32_t count;
    WavePart *parts; /* of all waves */
} WaveList;

/* How many of the threads are worth starting for so much work. */
int wave_sharers(double nanoseconds, int64_t units, int threads);

/* The waves of a call list, for as many threads and what there is of a micro-batch. `apart`: every call or group by
 * itself. */
void wave_list_make(WaveList *list, const SkyCall *calls, uint32_t count, SkyPresent present, int threads, bool apart);
void wave_list_free(WaveList *list);

/* One thread's way through the waves of a list. */
typedef struct WaveWalk {
    Team *team;
    const WaveList *list;
    const Wave *wave;
    TeamShare share;
    int thread, threads; /* of how many in the region */
    int owner;           /* whose part is being taken from */
    uint32_t call;       /* where it has got to there, */
    int64_t begin;       /* which of the part's units is the first of that call, */
    double before;       /* and what those before take */
} WaveWalk;

/* Units begin ... end - 1 of a call, or blocks of a group. */
typedef struct WavePiece {
    const SkyCall *call;
    int64_t begin, end;
} WavePiece;

/* Every thread of the region calls this for every wave that is shared, and meets the others before the next. */
void wave_begin(WaveWalk *walk, const Wave *wave);
/* Takes some of the wave: of one call, up to half of what is left of a part. False if nothing is left for this thread.
 */
bool wave_take(WaveWalk *walk, WavePiece *piece);

#endif
