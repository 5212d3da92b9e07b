/* The tokenizers of Hugging Face's tokenizer.json. They find added tokens, normalise the text between these
 * (normalizer.h), cut it into words (pretokenizer.h) and words into pieces (subwords.h), and frame the result
 * (token_frame.h). The ids equal those of the reference library.
 *
 * A feature that is not implemented is an error with its path in the file (EXIT_UNSUPPORTED_OPERATOR). */
#ifndef FRONTEND_TEXT_TOKEN_PIPELINE_H
#define FRONTEND_TEXT_TOKEN_PIPELINE_H

#include "base/diagnostics.h"
#include "base/hash.h"
#include "frontend/text/normalizer.h"
#include "frontend/text/pretokenizer.h"
#include "frontend/text/subwords.h"

typedef struct AddedToken {
    const char *content;
    size_t length;
    int32_t id;
    bool single_word; /* not inside a word */
    bool left, right; /* white space at its sides is its own */
    bool special;     /* not of texts: it marks where they begin, end or are missing */
    bool normalized;  /* looked for in normalised text, instead of in text as it is written */
} AddedToken;

typedef struct TokenPipeline {
    Arena arena;
    Normalizer normalizer;
    Pretokenizer pretokenizer;
    Subwords model;
    AddedToken *added;
    size_t added_count;
    Trie written, normalized; /* of added tokens, to their numbers in `added` */
    TokenFrame frames[2];     /* of one text, of a pair */
    FrameCut cut;             /* of pairs that are too long */
    int32_t pad, mask;        /* -1: none */
    Hash hash;                /* of the file */
    struct WordCache *cache;
    Buffer text;         /* scratch */
    size_t room;         /* how many bytes words of the text at hand may have yet */
    const char *problem; /* with the text at hand; NULL: none yet */
} TokenPipeline;

/* NULL after reporting. */
TokenPipeline *token_pipeline_open(const char *path, Diagnostics *diagnostics);
void token_pipeline_free(TokenPipeline *pipeline);
/* Appends the ids of text, without framing. Returns what is wrong with the text, as a phrase that follows its name;
 * NULL: nothing. */
const char *token_pipeline_encode(TokenPipeline *pipeline, const char *text, size_t length, TokenIds *ids);
/* Appends the piece with that id, as the file spells it; false if there is none. Searches the whole vocabulary. */
bool token_pipeline_piece(const TokenPipeline *pipeline, int32_t id, Buffer *piece);

bool token_pipeline_is_special(const TokenPipeline *pipeline, int32_t id);

/* For token_pipeline_open: reads the file. */
bool token_pipeline_read(TokenPipeline *pipeline, const char *path, Diagnostics *diagnostics);

#endif
