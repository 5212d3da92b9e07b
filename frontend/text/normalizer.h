/* What tokenizer.json's "normalizer" does to text before it is cut. */
#ifndef FRONTEND_TEXT_NORMALIZER_H
#define FRONTEND_TEXT_NORMALIZER_H

#include <stdbool.h>

#include "base/buffer.h"
#include "frontend/text/charsmap.h"
#include "frontend/text/pattern.h"

typedef enum NormalizerKind {
    NORMALIZER_BERT,
    NORMALIZER_NFD,
    NORMALIZER_NFKD,
    NORMALIZER_NFC,
    NORMALIZER_NFKC,
    NORMALIZER_LOWERCASE,
    NORMALIZER_STRIP_ACCENTS, /* all marks */
    NORMALIZER_STRIP,         /* white space at the ends */
    NORMALIZER_REPLACE,       /* what matches a pattern */
    NORMALIZER_PREPEND,
    NORMALIZER_CHARSMAP
} NormalizerKind;

typedef struct NormalizerStep {
    NormalizerKind kind;
    bool clean, ideographs, strip_accents, lowercase; /* of BERT */
    bool left, right;                                 /* of STRIP */
    Pattern *pattern;                                 /* of REPLACE */
    const char *content;                              /* of REPLACE and PREPEND */
    size_t content_length;
    Charsmap *map;
} NormalizerStep;

typedef struct Normalizer {
    NormalizerStep *steps;
    size_t count;
    Buffer spare;
} Normalizer;

/* The most bytes that a text may become. Files come from strangers, and each rule could multiply the text. */
#define NORMALIZER_LIMIT(length) (64 * (length) + 4096)

/* Replaces UTF-8 text by its normalised form. NULL; or what is wrong: one of the two above. */
const char *normalizer_apply(Normalizer *normalizer, Buffer *text);

#endif
