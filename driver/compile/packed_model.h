/* Models whose rows of several lengths are packed (--dim seq=auto:128 --lengths DATA). */
#ifndef DRIVER_COMPILE_PACKED_MODEL_H
#define DRIVER_COMPILE_PACKED_MODEL_H

#include "driver/compile/training_model.h"
#include "runtime/storage/row_lengths.h"

/* The lengths of rows: from the options' data set, or from their list, with equal frequencies. Errors: EXIT_BAD_INPUT,
 * EXIT_USAGE. Free with row_lengths_free in any case. */
bool packed_lengths_read(RowLengths *lengths, const LengthOptions *options, Diagnostics *diagnostics);

/* Imports the model for training_model_make with any packing; model->imported.batch_size are the rows that --dim gives
 * a micro-batch. */
bool packed_model_import(TrainingModel *model, const char *path, const ModelOptions *load, Diagnostics *diagnostics);

#endif
