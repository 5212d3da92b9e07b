/* What the programs of a plan compute, in two hashes that ranks compare before they train together. */
#ifndef DRIVER_COMPILE_RECIPE_H
#define DRIVER_COMPILE_RECIPE_H

#include "driver/compile/training_model.h"
#include "driver/compile/weights.h"
#include "runtime/program/program.h"

/* What DIR/train updates with: Adam without a learning rate of its own gets that of fine-tuning. */
SkyOptimizer recipe_optimizer(const TrainingModel *model);

/* Sets recipe_hash and settings of a program whose optimiser, clip and seed are filled in. The hash comes from the
 * training graph, not from options, so that no option can be forgotten, and is the same for every target and for every
 * cut: call it before a plan's codecs are in the graph. `init` is only for the settings. */
void recipe_describe(SkyProgram *program, Arena *arena, const TrainingModel *model, WeightInit init);
/* Sets weights_hash, by the initial_* fields of all stages. */
void recipe_describe_weights(SkyProgram *program, Arena *arena, const StageCode *stages, size_t stage_count);

#endif
