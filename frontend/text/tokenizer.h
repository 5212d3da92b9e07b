/* Turns texts into ids: with a vocabulary as BERT's authors do (bert_tokenizer.h), or with a tokenizer.json as Hugging
 * Face's tokenizers do (token_pipeline.h). */
#ifndef FRONTEND_TEXT_TOKENIZER_H
#define FRONTEND_TEXT_TOKENIZER_H

#include "base/buffer.h"
#include "base/diagnostics.h"
#include "base/hash.h"
#include "frontend/text/token_frame.h"

typedef struct Tokenizer Tokenizer;

typedef struct TokenizerSpecials {
    int32_t unknown; /* -1: none */
    int32_t pad;     /* 0 where there is none */
    int32_t mask;    /* -1: none */
} TokenizerSpecials;

/* Reads a WordPiece vocabulary. `lowercase`: an uncased one. NULL after reporting. Free with tokenizer_free. */
Tokenizer *tokenizer_open(const char *path, bool lowercase, Diagnostics *diagnostics);
/* Reads a tokenizer.json. */
Tokenizer *tokenizer_open_json(const char *path, Diagnostics *diagnostics);
/* A tokenizer.json if the name ends in .json, else a vocabulary. */
Tokenizer *tokenizer_open_named(const char *path, bool lowercase, Diagnostics *diagnostics);
void tokenizer_free(Tokenizer *tokenizer);

/* The frame of one text. */
const TokenFrame *tokenizer_text_frame(const Tokenizer *tokenizer);
/* Appends the ids of `length` bytes of text, without framing. NULL; or what is wrong with the text, to come after its
 * name, when nothing was reported and some ids may have been appended. Not for two threads at once. */
const char *tokenizer_encode(Tokenizer *tokenizer, const char *text, size_t length, TokenIds *ids);
/* Whether no token of the text reaches across byte `at`, which begins a character; *count: how many end before it.
 * `ids` are those of the whole text. */
bool tokenizer_parts_at(Tokenizer *tokenizer, const char *text, size_t length, size_t at, const TokenIds *ids,
                        size_t *count);
/* The word as it must be written to become, by itself, the tokens that it has inside a text: some tokenizers need a
 * blank in front. free() it. */
char *tokenizer_spell_word(const Tokenizer *tokenizer, const char *word, size_t length);
/* From now on "[MASK]" in a text is the mask token, for vocabularies too. A tokenizer.json has its own spelling. */
void tokenizer_take_masks(Tokenizer *tokenizer);
/* Whether the id is special: a token of the frame, the mask or the unknown piece, even inside a text. */
bool tokenizer_is_special(const Tokenizer *tokenizer, int32_t id);
/* Appends the piece with that id as it stands in the vocabulary; false if there is none. */
bool tokenizer_piece(const Tokenizer *tokenizer, int32_t id, Buffer *piece);
/* The places of the encoded texts in a framed row: the first token of each, and how many tokens were kept. */
void tokenizer_find_texts(const Tokenizer *tokenizer, const TokenIds texts[2], bool pair, const int32_t *row,
                          size_t length, size_t begin[2], size_t count[2]);
/* Frames one text or a pair; the row needs at least tokenizer_least_length(pair) tokens. Returns the number of tokens
 * before the padding; *cut: whether a text was too long. */
size_t tokenizer_frame(const Tokenizer *tokenizer, const TokenIds texts[2], bool pair, const TokenRow *row, bool *cut);
size_t tokenizer_least_length(const Tokenizer *tokenizer, bool pair); /* of the frame and a token per text */

const TokenizerSpecials *tokenizer_specials(const Tokenizer *tokenizer);
int32_t tokenizer_size(const Tokenizer *tokenizer); /* ids are below this */
Hash tokenizer_hash(const Tokenizer *tokenizer);    /* of what decides the ids: vocabulary and case, or steps */

#endif
