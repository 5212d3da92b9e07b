/* Emulated devices are slow by sleeping. If the ranks need more cores than there are, they are late before they sleep,
 * and the times are wrong: a run says so. */
#ifndef RUNTIME_TRAIN_EMULATION_H
#define RUNTIME_TRAIN_EMULATION_H

#include "runtime/train/progress.h"
#include "runtime/train/world.h"

/* Seconds of this rank, over all its work. */
typedef struct EmulatedTime {
    double work; /* that its device would take */
    double late; /* by which work was done later than that */
} EmulatedTime;

/* Collective, at the end of a run: rank 0 names the rank that is latest, if that matters. Lateness of work on several
 * threads is not known (their CPU time is not measured): `threads` are this rank's. */
void emulation_report(World *world, EmulatedTime mine, int threads, Progress *progress);

#endif
