/* What skycc predict prints of a model's outputs, row by row, as CSV: a form per head. */
#ifndef DRIVER_PREDICT_PREDICTIONS_H
#define DRIVER_PREDICT_PREDICTIONS_H

#include "base/buffer.h"
#include "driver/predict/predictor.h"
#include "frontend/huggingface/head.h"

typedef struct Predictions {
    const char *called;    /* the model in messages */
    HeadKind head;         /* HEAD_FROM_FOLDER: by the outputs */
    const char *labels_of; /* where the names of labels are from, where that is not the model; else NULL */
    const char *const *labels;
    size_t label_count;   /* 0: they have no names */
    bool json;            /* lines of JSON instead: embeddings only */
    bool several;         /* labels a text may have at once */
    bool compares;        /* the two rows: how alike their embeddings are */
    Tokenizer *tokenizer; /* that made the rows; NULL: they are a data set */
    const TextRows *rows;
    Predictor *predictor;
    Arena *arena;
    Buffer table; /* the result; to be freed */
    /* What predictions_begin finds. */
    const SkyTensor *output, *end; /* `end` of answers: of where they end */
    double *values, *end_values;   /* of a row */
    int64_t classes;               /* labels, or numbers of an embedding */
    double *former;                /* the embedding of the row before */
} Predictions;

/* Finds the outputs of the head and begins the table. Rows follow in their order, each behind the run that it is in. */
bool predictions_begin(Predictions *predictions, Diagnostics *diagnostics);
bool predictions_row(Predictions *predictions, int64_t row, Diagnostics *diagnostics);

/* For the forms: a field of RFC 4180; the end of a line; the largest of `count` values, which become probabilities. */
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
