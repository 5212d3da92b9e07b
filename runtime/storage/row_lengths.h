/* How many tokens of each row are no padding. */
#ifndef RUNTIME_STORAGE_ROW_LENGTHS_H
#define RUNTIME_STORAGE_ROW_LENGTHS_H

#include "base/safetensors.h"

typedef struct RowLengths {
    int32_t *lengths; /* [rows], 1 ... ; NULL: the file does not say */
    int64_t rows;
    int64_t longest;
    int64_t irregular; /* rows whose mask is not ones followed by zeros: they take their full length */
} RowLengths;

/* From the tensor `lengths`, or else from `attention_mask` [rows, length]; with neither the lengths are NULL. Errors: a
 * length that is not in 1 ... the mask's own, a tensor of another shape. */
bool row_lengths_read(RowLengths *lengths, const SafeTensors *file, const char *path, Diagnostics *diagnostics);
void row_lengths_free(RowLengths *lengths);

#endif
