/* Column sums over consecutive rows: the gradients of biases and gains.
 *
 * Summing some columns from top to bottom reads a piece of every row, which prefetchers do not foresee in long rows.
 * Here a few rows at a time are read from left to right, as that many streams, and the sums of all columns stand in the
 * nearest cache. Every column still adds its rows in order. */
#ifndef CODEGEN_KERNELS_LOOP_COLUMNS_H
#define CODEGEN_KERNELS_LOOP_COLUMNS_H

#include "codegen/kernels/body.h"

/* Room on the stack for the sums of that many columns; to be called in the function's first block. */
Ir loop_columns_room(Body *body, int64_t columns);
/* One unit of a column sum: `columns` columns from the index of the vector axis on. `sums` has room for them. */
void loop_columns_emit(Body *body, Ir sums, int64_t columns);

#endif
