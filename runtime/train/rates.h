/* Learning rates that differ from parameter to parameter: --lr PATTERN=X and --lr-decay. */
#ifndef RUNTIME_TRAIN_RATES_H
#define RUNTIME_TRAIN_RATES_H

#include "runtime/device/execute.h"
#include "runtime/train/training_options.h"
#include "runtime/train/world.h"

/* Collective. Gives all updates their rates. Errors (EXIT_USAGE): impossible rates, patterns that match nothing that is
 * trained. */
bool rates_set(World *world, Execution *execution, const TrainingOptions *options, double base,
               Diagnostics *diagnostics);

#endif
