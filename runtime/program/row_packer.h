/* Which row of a batch is in which packed sequence (line). All ranks, and the planner, compute the same from the
 * lengths alone. */
#ifndef RUNTIME_PROGRAM_ROW_PACKER_H
#define RUNTIME_PROGRAM_ROW_PACKER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "runtime/program/packing.h"

typedef struct RowPlace {
    uint32_t line;   /* counted through the batch: line % packing.lines of micro-batch line / packing.lines */
    uint32_t offset; /* of its first token in the line */
    uint32_t slot;   /* in the line */
} RowPlace;

typedef struct RowPacker {
    Arena arena;
    SkyPacking packing;
    RowPlace *places; /* per row of the batch; of rows without tokens meaningless */
    uint32_t lines;   /* that have rows */
    uint32_t *filled; /* per line: its tokens that have rows, all in front */
    /* The packer's own: rows by length, per line how many it has and where it goes, per length where its rows begin. */
    uint32_t *order, *row_count, *moved, *begin;
} RowPacker;

/* Room for packing.rows rows: nothing is allocated later. */
void row_packer_open(RowPacker *packer, const SkyPacking *packing);
void row_packer_close(RowPacker *packer);

/* Places packing.rows rows of lengths 0 (no row) to packing.longest: first-fit decreasing (Johnson 1973), equal lengths
 * in their order, so never more lines than rows. The last lines of micro-batches are those with the fewest tokens, as
 * tokens after the last row of these need not be computed. Returns the number of micro-batches that have rows. */
uint32_t row_packer_place(RowPacker *packer, const int32_t *lengths);

static inline uint32_t row_packer_microbatches(const RowPacker *packer)
{
    return (packer->lines + packer->packing.lines - 1) / packer->packing.lines;
}

/* Of a micro-batch's lines, or 0 where it has none; and its tokens up to the last that has a row. */
uint32_t row_packer_lines(const RowPacker *packer, uint32_t microbatch);
uint32_t row_packer_tokens(const RowPacker *packer, uint32_t microbatch);
/* Of all micro-batches. */
int64_t row_packer_all_tokens(const RowPacker *packer);

/* How many micro-batches hold any batch, whatever the lengths. */
static inline uint32_t packing_most_microbatches(const SkyPacking *packing)
{
    return (packing->rows + packing->lines - 1) / packing->lines;
}

#endif
