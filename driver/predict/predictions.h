/* Prints a model's outputs row by row as CSV, in a form per head. */
#ifndef DRIVER_PREDICT_PREDICTIONS_H
#define DRIVER_PREDICT_PREDICTIONS_H

#include "base/buffer.h"
#include "driver/predict/predictor.h"
#include "frontend/huggingface/head.h"

typedef struct Predictions {
    const char *called;    /* the model in messages */
    HeadKind head;         /* HEAD_FROM_FOLDER: by the outputs */
    const char *labels_of; /* the file that names the labels; NULL: the model */
    const char *const *labels;
    size_t label_count;   /* 0: they have no names */
    bool json;            /* lines of JSON instead: embeddings only */
    bool several;         /* a text may have several labels */
    bool measures;        /* the rows are only measured (scores.h) */
    bool compares;        /* print the similarity of the two rows' embeddings */
    Tokenizer *tokenizer; /* that made the rows; NULL for a data set */
    const TextRows *rows;
    Predictor *predictor;
    Arena *arena;
    Buffer table; /* the result; to be freed */
    /* Filled in by predictions_begin: */
    const SkyTensor *output, *end; /* `end`: where answers end */
    double *values, *end_values;   /* of a row */
    int64_t classes;               /* labels, or numbers of an embedding */
    double *former;                /* the embedding of the row before */
} Predictions;

/* Finds the head's outputs and begins the table. Rows follow in order, each after the run that computed it. */
bool predictions_begin(Predictions *predictions, Diagnostics *diagnostics);
bool predictions_row(Predictions *predictions, int64_t row, Diagnostics *diagnostics);

/* The table (predictions_table.c): a field, quoted as in RFC 4180; the end of a line; the index of the largest of
 * `count` logits, which become probabilities. */
void predictions_field(Predictions *predictions, const char *text);
void predictions_end_line(Predictions *predictions);
int64_t predictions_softmax(double *values, int64_t count);
/* "label,score" and the scores of all labels, of their logits. */
void predictions_scores(Predictions *predictions, double *logits);

/* The forms that are about parts of a text (predictions_words.c): false after reporting. */
bool predictions_words(Predictions *predictions, int64_t row, Diagnostics *diagnostics);
bool predictions_answer(Predictions *predictions, int64_t row, Diagnostics *diagnostics);
bool predictions_masks(Predictions *predictions, int64_t row, Diagnostics *diagnostics);

#endif
