/* Training and evaluation data: a safetensors file, mapped, checked as a whole before training starts; and the order in
 * which its rows are used.
 *
 * Every tensor has one row per sample: [N, ...] where the graph input is [micro-batch size, ...]. Where rows share lines
 * (runtime/program/packing.h) their length is the data's own: packed_batch.h fills inputs then. */
#ifndef RUNTIME_STORAGE_DATASET_H
#define RUNTIME_STORAGE_DATASET_H

#include "base/hash.h"
#include "base/safetensors.h"
#include "runtime/program/labels.h"

typedef struct Dataset {
    SafeTensors file;
    int64_t rows;                              /* 0 if this rank reads no inputs and the file was not opened */
    const SafeTensor *labels[SKY_MOST_LABELS]; /* of the program's labels; NULL: no stage of this rank reads them */
} Dataset;

/* In place of a row number: a row that pads the last evaluation batch. Its labels weigh nothing. */
#define DATASET_NO_ROW UINT32_MAX

/* Whether the input is found in data; others the runtime makes up. */
static inline bool dataset_holds(const SkyTensor *input) { return input->fill <= SKY_FILL_SLOTS; }

/* Opens `path` and checks every tensor that the program's stages read: present, one element type for another without
 * loss, the same number of rows, the shape the program was compiled for, ids and labels inside their range. */
bool dataset_open(Dataset *dataset, const char *path, const SkyProgram *program, Diagnostics *diagnostics);
void dataset_close(Dataset *dataset);

/* Copies rows `rows[0 ... input->dim[0] - 1]` of the tensor that `input` is named after to `destination`, converted. */
void dataset_fill(const Dataset *dataset, const SkyProgram *program, const SkyTensor *input, const uint32_t *rows,
                  void *destination);
/* Of all elements of that tensor, as `input` has them: whatever integers or floats the file holds them in. */
Hash dataset_hash(const Dataset *dataset, const SkyTensor *input);
/* Elements of a tensor of the data set, converted to the input's type. */
void dataset_convert(const SafeTensor *tensor, int64_t first, const SkyTensor *input, void *destination, int64_t start,
                     int64_t count);
/* Of each of the program's labels what these rows have; nothing where this rank does not read them. */
void dataset_count_labels(const Dataset *dataset, const SkyProgram *program, const uint32_t *rows, int64_t count,
                          LabelCount labels[SKY_MOST_LABELS]);

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
