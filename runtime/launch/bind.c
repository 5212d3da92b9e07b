/* Which cores a rank runs on. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "runtime/launch/command_line.h"

typedef struct HardwareThread {
    int number, core; /* the core: the first of the threads that share it */
} HardwareThread;

static int core_of(int thread)
{
    char path[96];
    int core;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", thread);
    FREED_WITH(stream_close) FILE *file = fopen(path, "r");
    return file && fscanf(file, "%d", &core) == 1 ? core : thread;
}

static int by_core(const void *a, const void *b)
{
    const HardwareThread *one = a, *other = b;
    return one->core != other->core ? one->core - other->core : one->number - other->number;
}

void launch_unbind(void)
{
    cpu_set_t allowed;
    if (sched_getaffinity(getppid(), sizeof allowed, &allowed) == 0) sched_setaffinity(0, sizeof allowed, &allowed);
}

void launch_bind(int rank, int ranks, int cores)
{
    cpu_set_t allowed, mine;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
    HardwareThread threads[CPU_SETSIZE];
    int count = 0, whole = 0;
    for (int t = 0; t < CPU_SETSIZE; t++)
        if (CPU_ISSET(t, &allowed)) threads[count++] = (HardwareThread){t, core_of(t)};
    qsort(threads, (size_t)count, sizeof *threads, by_core);
    for (int i = 0; i < count; i++) whole += i == 0 || threads[i].core != threads[i - 1].core;
    bool by_thread = whole < ranks * cores;
    CPU_ZERO(&mine);
    for (int i = 0, place = -1; i < count; i++) {
        place += by_thread || i == 0 || threads[i].core != threads[i - 1].core;
        if (place / cores == rank) CPU_SET(threads[i].number, &mine);
    }
    if (CPU_COUNT(&mine)) sched_setaffinity(0, sizeof mine, &mine);
}
