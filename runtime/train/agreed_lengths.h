/* The lengths of all rows of a data set. Ranks that do not read its tokens learn them from one that does: lengths leave
 * a device, tokens do not. */
#ifndef RUNTIME_TRAIN_AGREED_LENGTHS_H
#define RUNTIME_TRAIN_AGREED_LENGTHS_H

#include "runtime/storage/dataset.h"
#include "runtime/storage/row_lengths.h"
#include "runtime/train/world.h"

/* Collective; `rows` as all ranks agree. If no file has lengths they stay NULL on all ranks, which is an error for
 * packed sequences. Other errors: ranks with different lengths, rows longer than a packed sequence. Rank 0 warns of
 * masks that make rows count as full. */
bool agreed_lengths_open(RowLengths *lengths, World *world, const SkyProgram *program, const Dataset *dataset,
                         const char *path, int64_t rows, Diagnostics *diagnostics);

/* Tokens of these rows of the data set. */
int64_t agreed_lengths_sum(const RowLengths *lengths, const uint32_t *rows, int64_t count);

#endif
