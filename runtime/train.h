/* A training run of one rank, from options to the last checkpoint. */
#ifndef RUNTIME_TRAIN_H
#define RUNTIME_TRAIN_H

#include "runtime/options.h"
#include "runtime/world.h"

/* After the handshake. `directory` is where the program lies: initial values are relative to it. Returns the exit code,
 * the same on every rank; what failed has been printed. */
int train(World *world, const SkyProgram *program, const RunOptions *options, const char *directory);

#endif
