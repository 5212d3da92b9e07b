/* What becomes of a finished tile of a matrix product on the bf16 unit, whose sums lie in a small buffer: the kernel's
 * scalar phases run row by row, columns being the lanes. */
#ifndef CODEGEN_KERNELS_TILE_EPILOGUE_H
#define CODEGEN_KERNELS_TILE_EPILOGUE_H

#include "codegen/kernels/body.h"

typedef struct TileEpilogue {
    const KernelGemm *match;
    int vectors; /* of BLOCK_SIDE columns */
    Body body;
} TileEpilogue;

/* Of a panel of `vectors` vectors from `column` on, of whose last `tail` columns exist (0: all). `batch`: the index of
 * every outer axis; those of row and column are ignored. */
void tile_epilogue_prepare(TileEpilogue *epilogue, Emit *emit, const Kernel *kernel, Ir operands, Ir column,
                           const Ir *batch, int tail);
/* Moves on to the tile of rows that begins at `row`. */
void tile_epilogue_move(TileEpilogue *epilogue, Ir row);
/* `rows` rows from `row` on, whose sums stand at `sums` row by row, all vectors side by side. */
void tile_epilogue_emit(TileEpilogue *epilogue, Ir row, Ir rows, Ir sums);
/* Whether so little becomes of the sums that code for every row of a tile in registers is worth it. */
bool tile_epilogue_is_short(const TileEpilogue *epilogue);
/* The same as tile_epilogue_emit() of sums that are in registers, row by row. */
void tile_epilogue_emit_rows(TileEpilogue *epilogue, Ir row, int rows, const Ir *sums);

/* The matrices that the epilogue walks through, a piece of every row: nothing else fetches their lines in time. Their
 * number; `operands` has KERNEL_MAX_OPERANDS. */
int tile_epilogue_streams(const TileEpilogue *epilogue, int *operands);
/* Prefetches line number `line` of the tile's piece of them, for those `operands`; where `when` (may be NULL) is false
 * the line at `instead`, which is at hand. */
void tile_epilogue_prefetch(TileEpilogue *epilogue, const int *operands, int count, Ir line, Ir when, Ir instead);

#endif
