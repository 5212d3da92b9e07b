/* Learning rates that differ from parameter to parameter: --lr PATTERN=X and --lr-decay. */
#ifndef RUNTIME_TRAIN_RATES_H
#define RUNTIME_TRAIN_RATES_H

#include "runtime/device/execute.h"
#include "runtime/train/training_options.h"
#include "runtime/train/world.h"

/* A parameter's rate as a multiple of `base`: that of the last pattern that matches its name or its place in the model,
 * else 1; times lr_decay for every block after it (layer-wise decay as in ELECTRA: Clark et al., ICLR 2020). */
double rate_of(const SkyParameter *parameter, uint32_t block_count, const TrainingOptions *options, double base);

/* Collective. Gives all updates their rates. Errors (EXIT_USAGE): impossible rates, patterns that match nothing that is
 * trained. */
bool rates_set(World *world, Execution *execution, const TrainingOptions *options, double base,
               Diagnostics *diagnostics);

#endif
