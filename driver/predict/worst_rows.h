/* The rows that a model gets most wrong, and their texts, put together again from tokens. */
#ifndef DRIVER_PREDICT_WORST_ROWS_H
#define DRIVER_PREDICT_WORST_ROWS_H

#include "base/buffer.h"
#include "driver/predict/text_rows.h"

enum { MOST_WORST_ROWS = 20 };

typedef struct WorstRow {
    int64_t row;
    double label, predicted; /* numbers of classes, or values */
    double score;            /* probability of the class that was predicted; NAN: values */
    double loss;
} WorstRow;

typedef struct WorstRows {
    WorstRow items[MOST_WORST_ROWS]; /* the largest loss first */
    int count;
} WorstRows;

void worst_rows_add(WorstRows *worst, WorstRow row);
/* Appends the text of a row as its tokens tell it, " / " between two texts: an uncased tokenizer has lost capitals. */
void row_text(Buffer *text, const TextRows *rows, int64_t row, const Tokenizer *tokenizer);

#endif
