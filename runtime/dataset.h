/* Training and evaluation data: a safetensors file, mapped, checked as a whole before training starts; and the order in
 * which its rows are used.
 *
 * Every tensor has one row per sample: [N, ...] where the graph input is [micro-batch size, ...]. */
#ifndef RUNTIME_DATASET_H
#define RUNTIME_DATASET_H

#include "base/safetensors.h"
#include "runtime/program.h"

typedef struct Dataset {
    SafeTensors file;
    int64_t rows;                              /* 0 if this rank reads no inputs and the file was not opened */
    const SafeTensor *labels[SKY_MOST_LABELS]; /* of the program's label inputs; NULL: no stage of this rank reads it */
} Dataset;

/* In place of a row number: a row that pads the last evaluation batch. Its labels are ignore_index. */
#define DATASET_NO_ROW UINT32_MAX

/* Opens `path` and checks every tensor that the program's stages read: present, one element type for another without
 * loss, the same number of rows, the shape the program was compiled for, ids and labels inside their range. */
bool dataset_open(Dataset *dataset, const char *path, const SkyProgram *program, Diagnostics *diagnostics);
void dataset_close(Dataset *dataset);

/* Copies rows `rows[0 ... input->dim[0] - 1]` of the tensor that `input` is named after to `destination`, converted. */
void dataset_fill(const Dataset *dataset, const SkyProgram *program, const SkyTensor *input, const uint32_t *rows,
                  void *destination);
/* Per label input: labels of these rows that are not its ignore_index; 0 if this rank does not read it. */
void dataset_valid_labels(const Dataset *dataset, const SkyProgram *program, const uint32_t *rows, int64_t count,
                          int64_t valid[SKY_MOST_LABELS]);

/* The order of rows: in every epoch each row at most once, in an order that depends on (seed, epoch) alone; rows that
 * do not fill a batch are left out of that epoch. */
typedef struct DataCursor {
    int64_t epoch, offset; /* rows of this epoch that were used */
} DataCursor;

typedef struct DataOrder {
    uint64_t seed;
    int64_t rows, batch;
    bool shuffled;
    int64_t permuted_epoch; /* -1: none yet */
    uint32_t *permutation;
} DataOrder;

/* rows >= batch > 0. */
void data_order_open(DataOrder *order, uint64_t seed, int64_t rows, int64_t batch, bool shuffled);
void data_order_close(DataOrder *order);
/* Writes the `batch` rows at the cursor to `rows` and moves the cursor behind them. */
void data_order_next(DataOrder *order, DataCursor *cursor, uint32_t *rows);
/* Whether the next batch will start a new epoch. */
bool data_order_at_epoch_end(const DataOrder *order, const DataCursor *cursor);

#endif
