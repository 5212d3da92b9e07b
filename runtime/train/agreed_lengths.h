/* The lengths of all rows of a data set, which ranks that do not read its tokens (keep: in the cluster file, or stages
 * without inputs) learn from one that does: lengths leave a device, tokens do not. */
#ifndef RUNTIME_TRAIN_AGREED_LENGTHS_H
#define RUNTIME_TRAIN_AGREED_LENGTHS_H

#include "runtime/storage/dataset.h"
#include "runtime/storage/row_lengths.h"
#include "runtime/train/world.h"

/* Collective; `rows` as all ranks agree. Lengths stay NULL on all ranks if nobody's file says them, which is an error
 * where the program packs rows. Other errors: ranks with different lengths, rows that are longer than a line. Rank 0
 * says how many rows count as full because of their mask. */
bool agreed_lengths_open(RowLengths *lengths, World *world, const SkyProgram *program, const Dataset *dataset,
                         const char *path, int64_t rows, Diagnostics *diagnostics);

/* Tokens of these rows of the data set. */
int64_t agreed_lengths_sum(const RowLengths *lengths, const uint32_t *rows, int64_t count);

#endif
