/* Answers to questions as texts: the best span over all windows of a text, compared with the right answers as the
 * evaluation script of SQuAD does (Rajpurkar et al. 2016): lower case, without punctuation and articles. */
#ifndef RUNTIME_TRAIN_ANSWERS_H
#define RUNTIME_TRAIN_ANSWERS_H

#include "base/arena.h"
#include "base/safetensors.h"

/* Of a data set of skycc tokenize --task qa; points into the file. */
typedef struct AnswerTexts {
    int64_t windows, width;       /* rows of the data set, tokens each */
    const int32_t *begins, *ends; /* [windows][width] bytes of the text that a token stands for; -1: of no text */
    int32_t *questions;           /* of each window */
    const char **contexts;        /* [count] */
    const char **answers;         /* [count] the first right one; each is a string, an empty one ends them */
    int64_t count;                /* questions; 0: the data set has no texts */
    bool some_unanswered;         /* a question may have no answer (SQuAD 2) */
} AnswerTexts;

/* Strings in the arena. A data set that was made without texts, or not by skycc, has none. */
void answer_texts_open(AnswerTexts *texts, const SafeTensors *data, Arena *arena);

/* What was found in the windows of a question so far. */
typedef struct BestAnswer {
    double score, none; /* of the best span, and of no answer, which is the least of all windows */
    int32_t begin, end; /* bytes of the text; begin -1: nothing yet */
} BestAnswer;

/* Takes a window's scores of `width` tokens: spans of at most 30 tokens among the 20 likeliest begins and ends. */
void best_answer_take(BestAnswer best[], const AnswerTexts *texts, int64_t window, const double *starts,
                      const double *ends, int64_t width);
/* Of all questions, before any window. */
void best_answers_begin(BestAnswer best[], const AnswerTexts *texts);
/* That of other windows of the same questions. */
void best_answers_merge(BestAnswer best[], const BestAnswer other[], int64_t count);

/* What the model answers to a question, malloc'ed: "" for no answer. */
char *best_answer_text(const BestAnswer *best, const AnswerTexts *texts, int64_t question);
/* Whether it is an exact match, 0 or 1, and the F1 of words, of the right answer that fits best. */
void best_answer_measure(const BestAnswer *best, const AnswerTexts *texts, int64_t question, double *exact, double *f1);
/* The share of exact matches and the mean F1 of all questions. */
void best_answers_measure(const BestAnswer best[], const AnswerTexts *texts, double *exact, double *f1);
/* Of one answer. */
void answer_compare(const char *found, const char *right, double *exact, double *f1);

#endif
