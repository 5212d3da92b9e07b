/* The rows that a model gets most wrong, and their texts, put together again from tokens. */
#ifndef DRIVER_PREDICT_WORST_ROWS_H
#define DRIVER_PREDICT_WORST_ROWS_H

#include "base/buffer.h"
#include "driver/predict/text_rows.h"
#include "driver/predict/token_text.h"

enum { MOST_WORST_ROWS = 20 };

typedef struct WorstRow {
    int64_t row;
    double loss;
    double score;                  /* probability of the class that was predicted; NAN: not of one class */
    const char *label, *predicted; /* NULL: values, or none */
    double values[2];              /* the label's and that predicted, if `label` is NULL; NAN: none */
    const char *question, *text;   /* NULL: there is none; the row's tokens tell it */
} WorstRow;

typedef struct WorstRows {
    WorstRow items[MOST_WORST_ROWS]; /* the largest loss first */
    int count;
} WorstRows;

bool worst_rows_take(const WorstRows *worst, double loss); /* whether a row of this loss is one of them so far */
void worst_rows_add(WorstRows *worst, WorstRow row);

typedef struct RowTokens {
    const int32_t *ids; /* points into the rows */
    int64_t count;      /* without padding; 0: these are no ids */
    Spelling spelling;
    Tokenizer *tokenizer;
} RowTokens;

RowTokens row_tokens(const TextRows *rows, int64_t row, Tokenizer *tokenizer);
/* Appends the text of `count` tokens, of the row or spelt like it, as they tell it, " / " between two texts: an uncased
 * tokenizer has lost capitals. */
void tokens_text(Buffer *text, const RowTokens *row, const int32_t *ids, int64_t count);
/* Appends bytes begin ... end - 1 of the text with what stands around them. */
void shortened_text(Buffer *text, const char *whole, size_t begin, size_t end);

#endif
