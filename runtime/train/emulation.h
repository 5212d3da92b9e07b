/* Emulated devices are slow by sleeping. If the ranks need more cores than there are for long, sleeping less does not
 * make up for it, and the times are wrong: a run says so. */
#ifndef RUNTIME_TRAIN_EMULATION_H
#define RUNTIME_TRAIN_EMULATION_H

#include "runtime/train/progress.h"
#include "runtime/train/world.h"

/* Seconds of this rank, over all its work. */
typedef struct EmulatedTime {
    double work; /* that its device would take */
    double late; /* by which batches ended later than that */
    double now;  /* on the device: when it is done with what it was given last. The clock may be ahead */
} EmulatedTime;

/* Collective, at the end of a run: rank 0 names the rank that is latest, if that matters. Lateness of work that
 * this thread does not do is not known, as its CPU time is not measured: execution_by_this_thread of this rank. */
void emulation_report(World *world, EmulatedTime mine, bool by_this_thread, Progress *progress);

#endif
