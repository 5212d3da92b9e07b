/* Before training: all ranks run the programs of one plan, and their links work. */
#ifndef RUNTIME_TRAIN_HANDSHAKE_H
#define RUNTIME_TRAIN_HANDSHAKE_H

#include "runtime/storage/dataset.h"
#include "runtime/train/training_options.h"
#include "runtime/train/world.h"

/* Collective. On every rank the same findings: how many ranks there are, whether a program runs twice, which rank
 * carries another model, plan, recipe or initial weights than rank 0 (EXIT_RUN_FAILED), or was given other options
 * (EXIT_USAGE; which ones must agree, their rows say). Of several sites all resume if one does: one that was lost comes
 * back to others that go on. */
bool handshake(World *world, const SkyProgram *program, TrainingOptions *options, Diagnostics *diagnostics);
/* Collective, after world_meet_hosts, before anything is written. Reports ranks of a host that were given another path
 * for checkpoints, or another file, than the first one there, and that leads elsewhere, and ranks whose output nobody
 * would write (EXIT_USAGE). */
bool handshake_paths(World *world, const SkyProgram *program, const TrainingOptions *options, Diagnostics *diagnostics);
/* Collective. Tensors of the data that several ranks read, each from its own file, must hold the same: reports those
 * that do not, the same on every rank. `path` is for the message. *data becomes a hash of all that any rank reads. */
bool handshake_data(World *world, const SkyProgram *program, const Dataset *dataset, const char *path, Hash *data,
                    Diagnostics *diagnostics);
/* Sends a large message over every link between consecutive stages, both ways: the first one needs the sender's help,
 * which must not be asked for in the middle of a step. Collective. */
void handshake_warm_up(World *world, const SkyProgram *program);

#endif
