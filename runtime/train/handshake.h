/* Before training: all ranks run the programs of one plan, and their links work. */
#ifndef RUNTIME_TRAIN_HANDSHAKE_H
#define RUNTIME_TRAIN_HANDSHAKE_H

#include "runtime/storage/dataset.h"
#include "runtime/train/training_options.h"
#include "runtime/train/world.h"

/* Collective. On every rank the same findings: how many ranks there are, whether a program runs twice, which rank
 * carries another plan or model than rank 0. Reports with EXIT_RUN_FAILED. */
bool handshake(World *world, const SkyProgram *program, Diagnostics *diagnostics);

/* Collective. Reports options of any rank that must be those of rank 0 and are not: the same on every rank. Of several
 * sites, all resume if one does: one that was lost comes back to others that go on. */
bool handshake_options(World *world, const SkyProgram *program, TrainingOptions *options, Diagnostics *diagnostics);
/* Collective. Tensors of the data that several ranks read, each from its own file, must hold the same: reports those that
 * do not, the same on every rank. `path` is for the message. */
bool handshake_data(World *world, const SkyProgram *program, const Dataset *dataset, const char *path,
                    Diagnostics *diagnostics);
/* Sends a large message over every link between consecutive stages, both ways: the first one needs the sender's help,
 * which must not be asked for in the middle of a step. Collective. */
void handshake_warm_up(World *world, const SkyProgram *program);

#endif
