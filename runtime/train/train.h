/* A training run of one rank, from options to the last checkpoint. */
#ifndef RUNTIME_TRAIN_TRAIN_H
#define RUNTIME_TRAIN_TRAIN_H

#include "runtime/train/training_options.h"
#include "runtime/train/world.h"

/* After the handshake. `directory` is where the program lies: initial values are relative to it. Returns the exit code,
 * the same on every rank; what failed has been printed. */
int train(World *world, const SkyProgram *program, const TrainingOptions *options, const char *directory);

#endif
