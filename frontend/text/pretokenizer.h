/* What tokenizer.json's "pre_tokenizer" does: cuts normalised text into the words that the model cuts into pieces. */
#ifndef FRONTEND_TEXT_PRETOKENIZER_H
#define FRONTEND_TEXT_PRETOKENIZER_H

#include <stdbool.h>

#include "base/buffer.h"
#include "frontend/text/pattern.h"

typedef enum PretokenizerKind {
    PRETOKENIZER_BERT,             /* at white space, around punctuation */
    PRETOKENIZER_WHITESPACE,       /* words, and what is neither word nor white space */
    PRETOKENIZER_WHITESPACE_SPLIT, /* at white space */
    PRETOKENIZER_PUNCTUATION,      /* around punctuation */
    PRETOKENIZER_DIGITS,           /* around numbers, or around each digit */
    PRETOKENIZER_BYTE_LEVEL, /* GPT-2's (Radford et al. 2019): by its pattern, bytes written as printable characters */
    PRETOKENIZER_METASPACE,  /* blanks become a mark that begins words (SentencePiece) */
    PRETOKENIZER_SPLIT       /* at the matches of a pattern */
} PretokenizerKind;

/* What becomes of the parts that match. */
typedef enum SplitBehavior {
    SPLIT_REMOVED,
    SPLIT_ISOLATED,
    SPLIT_MERGED_WITH_PREVIOUS,
    SPLIT_MERGED_WITH_NEXT,
    SPLIT_CONTIGUOUS /* neighbours that match are one */
} SplitBehavior;

typedef struct PretokenizerStep {
    PretokenizerKind kind;
    Pattern *pattern;       /* of SPLIT, and of BYTE_LEVEL where it splits */
    SplitBehavior behavior; /* of SPLIT and PUNCTUATION, which does not merge */
    bool invert;            /* of SPLIT: the parts between matches are those that match */
    bool prefix;            /* of BYTE_LEVEL and METASPACE: every word begins with a blank, or mark */
    bool first;             /* of METASPACE with a prefix: only the word that the whole text begins with */
    bool split;             /* of BYTE_LEVEL: by the pattern; of METASPACE: at marks */
    bool single;            /* of DIGITS: each by itself */
    const char *mark;
    size_t mark_length;
} PretokenizerStep;

typedef struct Span {
    size_t start, length;
} Span;

/* Words in the text of a buffer. */
typedef struct Words {
    Buffer text;
    Span *spans; /* malloc'ed */
    size_t count, capacity;
} Words;

typedef struct Pretokenizer {
    PretokenizerStep *steps;
    size_t count;
    Words words, spare;
    bool begins; /* set by the caller: what it cuts next is the beginning of the text */
} Pretokenizer;

/* Cuts UTF-8 text into pretokenizer->words. NULL; or what is wrong: these would be longer than `limit` bytes together,
 * or a pattern takes too long. */
const char *pretokenizer_apply(Pretokenizer *pretokenizer, const char *text, size_t length, size_t limit);

#endif
