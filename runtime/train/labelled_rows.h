/* Which rows of a data set have a label that counts. A step without any would divide by nothing, and every rank must
 * know it before the step begins. Ranks that do not read labels learn one bit of each row, and that only where a row
 * lacks. */
#ifndef RUNTIME_TRAIN_LABELLED_ROWS_H
#define RUNTIME_TRAIN_LABELLED_ROWS_H

#include "runtime/storage/dataset.h"
#include "runtime/train/world.h"

typedef struct LabelledRows {
    unsigned char *lacking; /* per row: 1 where no label counts; NULL: every row has one, or the loss needs none */
} LabelledRows;

/* Collective; `rows` as all ranks agree. An error: no row has one. */
bool labelled_rows_open(LabelledRows *labelled, World *world, const SkyProgram *program, const Dataset *dataset,
                        const char *path, int64_t rows, Diagnostics *diagnostics);
void labelled_rows_close(LabelledRows *labelled);

/* Whether one of these rows has a label that counts. */
bool labelled_rows_any(const LabelledRows *labelled, const uint32_t *rows, int64_t count);

#endif
