/* The rows of a data set that is being made, and its file. */
#ifndef FRONTEND_TEXT_EXAMPLES_H
#define FRONTEND_TEXT_EXAMPLES_H

#include "base/diagnostics.h"
#include "base/safetensors.h"
#include "frontend/text/token_frame.h"

/* Arrays are malloc'ed and hold `capacity` rows. */
typedef struct Examples {
    size_t count, capacity, length; /* `length` tokens each */
    bool masked;                    /* labels stand per token */
    int32_t *ids, *mask, *types;
    int32_t *lengths;      /* tokens of each that are no padding */
    int32_t *token_labels; /* where masked: `length` a row */
    /* Else, where there are labels, one a row: classes or, where they are measured, reals; or several reals a row. */
    int32_t *classes;
    float *reals;
    size_t reals_per_row; /* 0: one, in a vector */
} Examples;

/* Makes room for a row after the last one and returns it. The caller fills it in and counts it. */
TokenRow examples_room(Examples *examples);

/* Adds the tensors of `count` rows, in this order, to a file; `copies` must live until it is written. */
void examples_write(const Examples *examples, const uint32_t *rows, size_t count, Arena *copies,
                    SafeTensorsWriter *writer);

/* Puts `count` random rows into chosen[0 ... count - 1] and the others after them, both in their order. */
void examples_split(size_t rows, size_t count, uint64_t seed, uint32_t *chosen);
/* `count` rows that have classes, then random copies of rows of rarer classes, so that all classes are equally
 * frequent. The numbers of copies of two rows of a class differ by one at most. *balanced: how many rows; free() the
 * result. */
uint32_t *examples_balance(const Examples *examples, const uint32_t *rows, size_t count, uint64_t seed,
                           size_t *balanced);
void examples_free(Examples *examples);

#endif
