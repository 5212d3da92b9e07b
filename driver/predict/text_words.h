/* The words of a text and their tokens, for labels of tokens and answers. */
#ifndef DRIVER_PREDICT_TEXT_WORDS_H
#define DRIVER_PREDICT_TEXT_WORDS_H

#include "frontend/text/tokenizer.h"

typedef struct TextWord {
    size_t begin, end;   /* bytes of the text */
    size_t first, after; /* its tokens within the text */
} TextWord;

typedef struct TextWords {
    Tokenizer *tokenizer; /* kept */
    const char *text;     /* kept */
    TokenIds ids;         /* of the whole text */
    TextWord *words;
    size_t count, capacity;
} TextWords;

/* Splits the text (UTF-8) at white space, and keeps words together whose tokens cannot be told apart. Free with
 * text_words_free. */
void text_words_find(TextWords *words, Tokenizer *tokenizer, const char *text);
/* The words of a list: texts that `ends` end, with a byte between each and the next. A word may have no tokens. */
void text_words_take(TextWords *words, Tokenizer *tokenizer, const char *text, const size_t *ends, size_t count);
void text_words_free(TextWords *words);
/* The bytes of tokens first ... last: whole words, except for what certainly belongs to other tokens at their ends,
 * such as quotes and full stops. */
void text_words_span(const TextWords *words, size_t first, size_t last, size_t *begin, size_t *end);

#endif
