/* Emulated devices are slow by sleeping. Where ranks want more of the cores than there is, they are late before they
 * sleep at all, and times are not those of the devices any more: a run says so. */
#ifndef RUNTIME_TRAIN_EMULATION_H
#define RUNTIME_TRAIN_EMULATION_H

#include "runtime/train/progress.h"
#include "runtime/train/world.h"

/* Seconds of this rank, over all its work. */
typedef struct EmulatedTime {
    double work; /* that its device would take */
    double late; /* by which work was done later than that */
} EmulatedTime;

/* Collective, at the end of a run: rank 0 says which rank is latest, and by how much, if that is worth saying. Work on
 * several threads is not known to be late (its processor time is not measured): `threads` are this rank's. */
void emulation_report(World *world, EmulatedTime mine, int threads, Progress *progress);

#endif
