/* Gradients of tables, of which a step reads few rows, as messages: only rows that are not 0 are sent.
 *
 * A message about n rows is a bit for each of them, the lowest first, in whole words, and then the rows whose bit is
 * set. Counts are elements of 4 bytes. */
#ifndef RUNTIME_TRAIN_GRADIENT_ROWS_H
#define RUNTIME_TRAIN_GRADIENT_ROWS_H

#include <stddef.h>

/* The longest message about so many rows of `row` elements. */
size_t gradient_rows_room(size_t rows, size_t row);
/* Writes the message about `rows` rows; returns its elements. */
size_t gradient_rows_pack(const float *from, size_t rows, size_t row, float *message);
/* The sum of terms in their order, with the bits that parallel_add gives whole tables. A term is a message; `target` is
 * the one that is NULL. */
void gradient_rows_add(float *target, const float *const *terms, int count, size_t rows, size_t row);
/* Replaces all rows: those that the message lacks become 0. */
void gradient_rows_unpack(float *to, size_t rows, size_t row, const float *message);

#endif
