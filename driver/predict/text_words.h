/* Words of a text, and the tokens of a row that they became: what labels of tokens and answers are about. */
#ifndef DRIVER_PREDICT_TEXT_WORDS_H
#define DRIVER_PREDICT_TEXT_WORDS_H

#include "base/arena.h"
#include "frontend/text/tokenizer.h"

typedef struct TextWord {
    size_t begin, end;   /* bytes of the text */
    size_t first, after; /* its tokens, of those of the text */
} TextWord;

typedef struct TextWords {
    Tokenizer *tokenizer; /* kept */
    const char *text;     /* kept */
    TokenIds ids;         /* of the whole text */
    TextWord *words;
    size_t count, capacity;
} TextWords;

/* What stands between white space, or several words of which only together it is known which tokens they became. The
 * text is UTF-8. Free with text_words_free. */
void text_words_find(TextWords *words, Tokenizer *tokenizer, const char *text);
void text_words_free(TextWords *words);
/* The bytes that tokens first ... last became of: whole words, but for what they begin or end with that certainly became other tokens, such as
 * quotes and full stops. */
void text_words_span(const TextWords *words, size_t first, size_t last, size_t *begin, size_t *end);

#endif
