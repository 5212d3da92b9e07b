#include "runtime/train/emulation.h"

#include <stdlib.h>
#include <string.h>

static const double worth_saying = 0.05; /* of the work */

typedef struct RankPace {
    EmulatedTime time;
    bool is_measured;
    char device[64];
} RankPace;

static double lateness(const RankPace *pace) { return pace->time.work > 0 ? pace->time.late / pace->time.work : 0; }

void emulation_report(World *world, EmulatedTime mine, bool by_this_thread, Progress *progress)
{
    RankPace pace = {.time = mine, .is_measured = by_this_thread || !world->shares_cores};
    FREED RankPace *all = memory_allocate((size_t)world->size * sizeof *all);
    strncpy(pace.device, world->device, sizeof pace.device - 1);
    world_allgather(world, &pace, sizeof pace, all, "the pace of the emulation");
    int latest = 0, unmeasured = 0;
    for (int r = 0; r < world->size; r++) {
        if (lateness(&all[r]) > lateness(&all[latest])) latest = r;
        unmeasured += !all[r].is_measured;
    }
    const RankPace *worst = &all[latest];
    if (world->rank == 0 && lateness(worst) > worth_saying)
        progress_say(
            progress,
            "the emulation could not keep pace: for want of cores, rank %d (%s) was %.3g s late in %.3g s of work "
            "(%.0f%%); larger slowdowns of all devices, or fewer ranks, would",
            latest, worst->device, worst->time.late, worst->time.work, 100 * lateness(worst));
    if (world->rank == 0 && unmeasured)
        progress_say(
            progress,
            "the emulation may not have kept pace: %d ranks of several threads or of OpenCL share cores, and their "
            "waiting for them counts as work; CPUs of one thread are exact",
            unmeasured);
}
