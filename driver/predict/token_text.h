/* From tokens back to text, as the pieces of a vocabulary tell it. */
#ifndef DRIVER_PREDICT_TOKEN_TEXT_H
#define DRIVER_PREDICT_TOKEN_TEXT_H

#include "base/buffer.h"
#include "frontend/text/tokenizer.h"

/* How pieces of the vocabulary write what is not in words. */
typedef enum Spelling {
    SPELLED_BYTES,  /* GPT-2's: every byte is a printable character */
    SPELLED_SPACES, /* SentencePiece's: a blank is U+2581, and <0x0A> a byte */
    SPELLED_WORDS   /* WordPiece's: ## goes on with a word */
} Spelling;

Spelling token_spelling(Tokenizer *tokenizer);
/* Appends what a piece of `length` bytes writes after the text. */
void token_text_append(Buffer *text, Spelling spelling, const char *piece, size_t length);

#endif
