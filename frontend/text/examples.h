/* The rows of a data set that is being made, and its file. */
#ifndef FRONTEND_TEXT_EXAMPLES_H
#define FRONTEND_TEXT_EXAMPLES_H

#include "base/safetensors.h"
#include "frontend/text/token_frame.h"

/* Tensors of a data set, in the order of the file. */
typedef enum ExamplePart {
    PART_IDS, /* then mask and types */
    PART_MASK,
    PART_TYPES,
    PART_SECOND_IDS, /* of the second text, where pairs are embedded apart; then mask and types */
    PART_SECOND_MASK,
    PART_SECOND_TYPES,
    PART_LENGTHS, /* tokens that are no padding; of two texts the longer one's */
    PART_START,   /* the first and the last token of an answer */
    PART_END,
    PART_ROW,        /* of the table, where a row is in several examples */
    PART_TEXT_BEGIN, /* bytes of the text with the answer that each token stands for; -1: of no text */
    PART_TEXT_END,
    PART_TOKENS,  /* labels per token */
    PART_CLASSES, /* labels per row */
    PART_COUNT
} ExamplePart;

/* Arrays are malloc'ed and hold `capacity` rows. */
typedef struct Examples {
    size_t count, capacity, length; /* `length` tokens each */
    int32_t *parts[PART_COUNT];     /* NULL: not used */
    float *reals;                   /* labels that are measured, or several per row; NULL: none */
    size_t reals_per_row;           /* 0: one, in a vector */
} Examples;

/* Uses a part that rows fill, before there are rows. */
void examples_use(Examples *examples, ExamplePart part);
/* Makes room for a row after the last one and returns it: of the text, or of the second one. The caller fills it in and
 * counts it. */
TokenRow examples_room(Examples *examples, bool second);
/* Of a row, in a part. */
int32_t *examples_at(const Examples *examples, ExamplePart part, size_t row);

/* Adds the tensors of `count` rows, in this order, to a file; `copies` must live until it is written. */
void examples_write(const Examples *examples, const uint32_t *rows, size_t count, Arena *copies,
                    SafeTensorsWriter *writer);

/* Puts `count` random rows of the table into chosen[0 ... count - 1] and the others after them, both in their order.
 * Returns how many examples these are; examples of one row stay together. `by_class`: the same share of every
 * class, where rows have one. */
size_t examples_split(const Examples *examples, size_t count, bool by_class, uint64_t seed, uint32_t *chosen);
/* How many rows of the table there are examples of. */
size_t examples_table_rows(const Examples *examples);
/* `count` rows that have classes, then random copies of rows of rarer classes, so that all classes are equally
 * frequent. The numbers of copies of two rows of a class differ by one at most. *balanced: how many rows; free() the
 * result. */
uint32_t *examples_balance(const Examples *examples, const uint32_t *rows, size_t count, uint64_t seed,
                           size_t *balanced);
void examples_free(Examples *examples);

#endif
