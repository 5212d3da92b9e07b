/* The order in which rows of a data set are used. In every epoch each row comes once, in an order that depends on
 * (seed, epoch) alone; the last batch may have fewer rows than the others. */
#ifndef RUNTIME_STORAGE_DATA_ORDER_H
#define RUNTIME_STORAGE_DATA_ORDER_H

#include <stdbool.h>
#include <stdint.h>

typedef struct DataCursor {
    int64_t epoch, offset; /* rows of this epoch that were used */
} DataCursor;

typedef struct DataOrder {
    uint64_t seed;
    int64_t rows, batch;
    bool shuffled, whole;   /* whole: the last batch is filled up with rows from the epoch's beginning */
    int64_t permuted_epoch; /* -1: none yet */
    uint32_t *permutation;
} DataOrder;

/* All > 0. Set `whole` afterwards. */
void data_order_open(DataOrder *order, uint64_t seed, int64_t rows, int64_t batch, bool shuffled);
void data_order_close(DataOrder *order);
/* Writes the `batch` rows at the cursor to `rows`, DATASET_NO_ROW after the last, and moves the cursor past them.
 * Returns how many there are. */
int64_t data_order_next(DataOrder *order, DataCursor *cursor, uint32_t *rows);
/* Batches of an epoch. */
int64_t data_order_batches(int64_t rows, int64_t batch);
/* How many rows the last `batches` batches before the cursor had, together. */
int64_t data_order_rows_before(DataCursor cursor, int64_t rows, int64_t batch, int64_t batches);
/* Whether the next batch will start a new epoch. */
bool data_order_at_epoch_end(const DataOrder *order, const DataCursor *cursor);

#endif
