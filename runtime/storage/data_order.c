#include "runtime/storage/data_order.h"

#include <stdlib.h>

#include "base/arena.h"
#include "base/random.h"
#include "runtime/storage/dataset.h"

void data_order_open(DataOrder *order, uint64_t seed, int64_t rows, int64_t batch, bool shuffled)
{
    *order = (DataOrder){.seed = seed, .rows = rows, .batch = batch, .shuffled = shuffled, .permuted_epoch = -1};
    order->permutation = memory_resize(NULL, (size_t)rows, sizeof *order->permutation);
}

void data_order_close(DataOrder *order)
{
    free(order->permutation);
    order->permutation = NULL;
}

bool data_order_at_epoch_end(const DataOrder *order, const DataCursor *cursor) { return cursor->offset >= order->rows; }

int64_t data_order_batches(int64_t rows, int64_t batch) { return (rows + batch - 1) / batch; }

int64_t data_order_rows_before(DataCursor cursor, int64_t rows, int64_t batch, int64_t batches)
{
    int64_t an_epoch = data_order_batches(rows, batch);
    int64_t first = cursor.epoch * an_epoch + data_order_batches(cursor.offset, batch) - batches;
    if (first < 0) first = 0;
    int64_t before = first % an_epoch * batch; /* in its epoch, of which the last batch may be shorter */
    return (cursor.epoch - first / an_epoch) * rows + cursor.offset - before;
}

int64_t data_order_next(DataOrder *order, DataCursor *cursor, uint32_t *rows)
{
    if (data_order_at_epoch_end(order, cursor)) *cursor = (DataCursor){cursor->epoch + 1, 0};
    if (order->permuted_epoch != cursor->epoch) {
        RandomStream stream = random_substream(random_stream(order->seed, "shuffle"), (uint64_t)cursor->epoch);
        if (order->shuffled)
            random_permutation(stream, order->permutation, (size_t)order->rows);
        else
            for (int64_t i = 0; i < order->rows; i++) order->permutation[i] = (uint32_t)i;
        order->permuted_epoch = cursor->epoch;
    }
    int64_t rest = order->rows - cursor->offset, count = order->whole || rest > order->batch ? order->batch : rest;
    for (int64_t i = 0; i < order->batch; i++)
        rows[i] = i < count ? order->permutation[(cursor->offset + i) % order->rows] : DATASET_NO_ROW;
    cursor->offset += rest < order->batch ? rest : order->batch;
    return count;
}
