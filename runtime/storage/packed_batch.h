/* A batch in packed sequences: where each row is, and what the inputs hold then. */
#ifndef RUNTIME_STORAGE_PACKED_BATCH_H
#define RUNTIME_STORAGE_PACKED_BATCH_H

#include "runtime/program/row_packer.h"
#include "runtime/storage/dataset.h"

typedef struct PackedBatch {
    RowPacker packer;
    int32_t *lengths;      /* per row of the batch; 0: no row */
    uint32_t *row_in_slot; /* per slot of the batch, micro-batch after micro-batch; PACKED_NO_ROW: none */
    uint32_t microbatches; /* that have rows */
    int64_t tokens;        /* of rows */
} PackedBatch;

#define PACKED_NO_ROW UINT32_MAX

/* Room for the program's batches; nothing is allocated later. */
void packed_batch_open(PackedBatch *batch, const SkyProgram *program);
void packed_batch_close(PackedBatch *batch);

/* Places these rows of a data set with such lengths; DATASET_NO_ROW takes no place. */
void packed_batch_place(PackedBatch *batch, const int32_t *lengths, const uint32_t *rows);

/* Fills an input of micro-batch `microbatch` of these rows; NULL for `batch`: rows are not packed. Tokens and slots
 * without a row hold the beginning of row 0, so that nothing in them can overflow, and labels that do not count. */
void packed_batch_fill(const PackedBatch *batch, const Dataset *dataset, const SkyProgram *program,
                       const SkyTensor *input, const uint32_t *rows, uint32_t microbatch, void *destination);

#endif
