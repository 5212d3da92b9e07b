/* Learning rates that differ from parameter to parameter: --lr PATTERN=X and --lr-decay. */
#ifndef RUNTIME_TRAIN_RATES_H
#define RUNTIME_TRAIN_RATES_H

#include "runtime/program/execute.h"
#include "runtime/train/training_options.h"
#include "runtime/train/world.h"

/* What the parameter's rate is, as a multiple of `base`: that of the last pattern that matches its name or its place in
 * the model, else 1, and lr_decay once for every block behind it (those of ELECTRA's fine-tuning: Clark et al., ICLR
 * 2020). It depends on nothing but the parameter. */
double rate_of(const SkyParameter *parameter, uint32_t block_count, const TrainingOptions *options, double base);

/* Collective. Gives all updates their rates. Reports (EXIT_USAGE) rates that cannot be, and patterns that match nothing
 * that any rank trains. */
bool rates_set(World *world, Execution *execution, const TrainingOptions *options, double base,
               Diagnostics *diagnostics);

#endif
