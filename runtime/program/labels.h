/* Labels, as a program says how losses read them: what they may be, and what they weigh. */
#ifndef RUNTIME_PROGRAM_LABELS_H
#define RUNTIME_PROGRAM_LABELS_H

#include <stdbool.h>

#include "base/dtype.h"
#include "runtime/program/program.h"

/* What the labels of a batch come to. */
typedef struct LabelCount {
    int64_t count; /* those that count */
    double weight; /* what they weigh together: the divisor of the loss. Without weights of classes the count */
} LabelCount;

/* The next way, after `previous` (NULL: the first), in which the program reads this input; NULL: none. */
const SkyLabels *labels_of_input(const SkyProgram *program, const char *input, const SkyLabels *previous);

/* Whether the element may stand among such labels. */
bool label_is_valid(const SkyLabels *labels, DType dtype, const void *data, int64_t index);
/* What element `index` is, "5", and what such labels are, "in 0 ... 2". */
typedef struct LabelText {
    char value[32], range[64];
} LabelText;
LabelText label_describe(const SkyLabels *labels, DType dtype, const void *data, int64_t index);

/* Adds `rows` rows from `first` on of `data`, whose shape is [any, ...]. */
void labels_count(const SkyLabels *labels, DType dtype, const Shape *shape, const void *data, int64_t first,
                  int64_t rows, LabelCount *count);
/* Makes a row of `elements` at `index` weigh nothing. */
void labels_ignore(const SkyLabels *labels, DType dtype, void *data, int64_t index, int64_t elements);

#endif
