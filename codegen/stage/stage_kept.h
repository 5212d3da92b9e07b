/* Weights that products keep for a whole step in the order in which they multiply them. */
#ifndef CODEGEN_STAGE_STAGE_KEPT_H
#define CODEGEN_STAGE_STAGE_KEPT_H

#include "base/arena.h"
#include "runtime/program/program.h"

/* Has the products of a weight and activations, both rounded to bf16, keep the weight in the state: forward and
 * backward each in its own form. The first micro-batch of a step fills it (SKY_STEP_WEIGHTS_KEPT). Returns the bytes
 * that this takes; 0 if there are no such products, or they want more than `most`, which leaves the stage as it is.
 * `arena` must live as long as the stage. */
uint64_t stage_keep_weights(SkyStage *stage, Arena *arena, uint64_t most);

#endif
