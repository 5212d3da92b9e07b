#include "runtime/program/team.h"

#include <linux/futex.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/diagnostics.h"
#include "runtime/program/parallel.h"
#include "runtime/program/runtime_sizes.h"

enum { CACHE_LINES = 128 }; /* two: processors fetch them in pairs */

/* The units taken of one thread's part, in this round and the next. */
typedef struct Part {
    _Alignas(CACHE_LINES) _Atomic int64_t taken[2];
} Part;

struct Team {
    _Alignas(CACHE_LINES) atomic_uint meetings;
    atomic_uint sleeping;
    _Alignas(CACHE_LINES) atomic_int arrived;
    int spins, threads;
    Part part[];
};

Team *team_create(int threads)
{
    size_t size = sizeof(Team) + (size_t)threads * sizeof(Part);
    Team *team = aligned_alloc(CACHE_LINES, size);
    if (!team) bug("no memory for a team of %d threads", threads);
    memset(team, 0, size);
    team->threads = threads;
    bool passive = parallel_waits_passively() || threads > parallel_processors();
    team->spins = passive ? SIZE_PASSIVE_SPINS : SIZE_SPINS;
    return team;
}

void team_free(Team *team) { free(team); }

void team_start(Team *team)
{
    for (int t = 0; t < team->threads; t++)
        for (int round = 0; round < 2; round++)
            atomic_store_explicit(&team->part[t].taken[round], 0, memory_order_relaxed);
}

static void pause_briefly(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void wait_for(Team *team, unsigned meeting)
{
    for (int i = 0; i < team->spins; i++) {
        if (atomic_load_explicit(&team->meetings, memory_order_acquire) != meeting) return;
        pause_briefly();
    }
    /* Before the kernel compares `meetings`: either the last thread sees the sleeper, or the kernel sees the end. */
    atomic_fetch_add(&team->sleeping, 1);
    while (atomic_load(&team->meetings) == meeting)
        syscall(SYS_futex, &team->meetings, FUTEX_WAIT_PRIVATE, meeting, NULL, NULL, 0);
    atomic_fetch_sub(&team->sleeping, 1);
}

void team_meet(Team *team, int threads)
{
    if (threads <= 1) return;
    unsigned meeting = atomic_load_explicit(&team->meetings, memory_order_relaxed);
    if (atomic_fetch_add_explicit(&team->arrived, 1, memory_order_acq_rel) + 1 < threads) {
        wait_for(team, meeting);
        return;
    }
    atomic_store_explicit(&team->arrived, 0, memory_order_relaxed);
    atomic_fetch_add(&team->meetings, 1);
    if (atomic_load(&team->sleeping)) syscall(SYS_futex, &team->meetings, FUTEX_WAKE_PRIVATE, threads, NULL, NULL, 0);
}

void team_begin(Team *team, TeamShare *share, int thread, int threads)
{
    share->round++;
    /* The last round's counter becomes the next round's. No thread reads it during this round. */
    for (int part = thread; part < team->threads; part += threads)
        atomic_store_explicit(&team->part[part].taken[(share->round + 1) & 1], 0, memory_order_relaxed);
}

int64_t team_taken(const Team *team, const TeamShare *share, int thread)
{
    return atomic_load_explicit(&team->part[thread].taken[share->round & 1], memory_order_relaxed);
}

bool team_take(Team *team, const TeamShare *share, int thread, int64_t *from, int64_t to)
{
    return atomic_compare_exchange_strong_explicit(&team->part[thread].taken[share->round & 1], from, to,
                                                   memory_order_relaxed, memory_order_relaxed);
}
