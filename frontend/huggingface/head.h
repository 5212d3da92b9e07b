/* Heads that an encoder gets for a task, by their `--head` words and by the classes of the Hugging Face library. */
#ifndef FRONTEND_HUGGINGFACE_HEAD_H
#define FRONTEND_HUGGINGFACE_HEAD_H

#include "base/diagnostics.h"

typedef enum HeadKind {
    HEAD_FROM_FOLDER, /* the one of the checkpoint, or none if it has none */
    HEAD_NONE, /* output last_hidden_state [batch, seq, hidden], and pooler_output [batch, hidden] if there is one */
    HEAD_SEQUENCE,   /* logits [batch, labels] */
    HEAD_REGRESSION, /* logits [batch, 1] */
    HEAD_TOKENS,     /* logits [batch, seq, labels] */
    HEAD_QUESTION,   /* start_logits and end_logits, [batch, seq] each */
    HEAD_MASKED,     /* logits [batch, seq, vocabulary] */
    HEAD_NEXT,       /* the same, of the token after each: of decoders */
    HEAD_MEAN,       /* embedding [batch, hidden]: the mean of what the mask lets through */
    HEAD_FIRST       /* embedding [batch, hidden]: of the first token */
} HeadKind;

typedef struct Head {
    HeadKind kind;
    int64_t labels;           /* of HEAD_SEQUENCE and HEAD_TOKENS: at least 1. 1 of HEAD_REGRESSION; else 0 */
    bool pairs;               /* of HEAD_MEAN and HEAD_FIRST: two texts a row, embedding and embedding_2 */
    bool several;             /* of HEAD_SEQUENCE: a text may have any number of the labels */
    const char *const *names; /* of the labels; NULL: those of the folder, or generic ones */
} Head;

#define HEAD_WORDS                                                                                                     \
    "seqcls:N", "multilabel:N", "regression", "tokcls:N", "qa", "mlm", "lm", "embedding:mean", "embedding:cls",        \
        "pairs:mean", "pairs:cls"

/* Reads one of HEAD_WORDS; false, with nothing reported, if it is none. */
bool head_parse(const char *text, Head *head);
/* As head_parse reads it. */
const char *head_text(Arena *arena, const Head *head);

/* The suffix of the library's class with this head: "ForSequenceClassification"; "Model" for encoders alone. */
const char *head_class(HeadKind kind);
/* The head of the class with this suffix; HEAD_FROM_FOLDER if skycc can write no graph for it. */
HeadKind head_of_class(const char *suffix);

#endif
