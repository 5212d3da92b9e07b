/* Sums of gradients over everything that has a part of them, before the update: the layers that share a parameter (tied
 * weights, perhaps in different stages), and the replicas that share a step.
 *
 * Terms are added in a fixed order: replica by replica, and the layers' uses in their order within each. So bits depend
 * on the dealing of rows to replicas alone. All holders end up with the sum, and update their copies alike, as if one
 * stage had all layers.
 *
 * Two ranks that hold a parameter send each other all of it. Three or more sum an equal part each, and send it to the
 * others: reduce-scatter and all-gather. Parameters go in pieces, and pieces in rounds, so that little memory is
 * needed.
 *
 * Of a table only rows that are not 0 are sent (gradient_rows.h), without a codec.
 *
 * With a codec, every term is coded with error feedback, and its holder adds what it decodes to, as the others do. Of
 * three or more replicas sums are coded, too. Tiles begin where the parameter does, so bits do not depend on cuts.
 *
 * Rounds are in the plan's order of layers: the last one first, or as the replicas' last backwards end them. A round
 * begins as soon as its gradients are final here, while kernels compute the others. All ranks have the same order, so
 * the earliest round that is not done can always go on. */
#ifndef RUNTIME_TRAIN_GRADIENT_SUMS_H
#define RUNTIME_TRAIN_GRADIENT_SUMS_H

#include "runtime/train/gradient_pieces.h"

/* Collective: ranks find out who holds what. */
bool gradient_sums_open(GradientSums *sums, const Pipeline *pipeline, Diagnostics *diagnostics);
void gradient_sums_close(GradientSums *sums);
/* So many calls of the last list that adds to the gradients of a stage of this rank are done at `when`: begins and goes
 * on with what can be summed. Does not wait. */
void gradient_sums_advance(GradientSums *sums, uint32_t local_stage, uint32_t calls, double when);
/* After the last backward. Collective among those that hold the same parameters. */
void gradient_sums_make(GradientSums *sums);
/* Collective among them. Gives the other replicas the values and states that the first one has: checkpoints are its. */
void gradient_sums_spread_values(GradientSums *sums);

#endif
