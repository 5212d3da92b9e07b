/* Rows of several lengths (--dim seq=auto:128 --lengths DATA): what a micro-batch of packed rows looks like. */
#ifndef DRIVER_COMPILE_PACKED_MODEL_H
#define DRIVER_COMPILE_PACKED_MODEL_H

#include "driver/compile/training_model.h"
#include "profiler/costs/row_samples.h"

/* Decides how long lines are, how many a micro-batch has, and how many rows a line has room for, for batches of `rows`
 * rows: the form that costs the least, padding, attention over longer lines and what every micro-batch costs anew weighed
 * against each other, of those by which a batch takes at least `microbatches` on average, if there are any; room for rows
 * such that it hardly ever makes a further line necessary. `samples`: what 64 batches of such rows, drawn by a fixed seed
 * and packed as the runtime does, come to. Reads options->lengths.data. Errors: EXIT_BAD_INPUT, EXIT_USAGE. */
bool packing_choose(RowSamples *samples, const LengthOptions *options, int64_t rows, int microbatches, Arena *arena,
                    Diagnostics *diagnostics);

/* Fills load->packing, and binds the batch dimension to the lines of a micro-batch, for batches of
 * `microbatches` times what --dim binds it to now. The bindings and samples are made in the arena. */
bool packed_model_prepare(ModelOptions *load, RowSamples *samples, const char *path, int microbatches, Arena *arena,
                          Diagnostics *diagnostics);

#endif
