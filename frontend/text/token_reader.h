/* Shared by the files that read tokenizer.json. Places are paths in the file ("model.vocab"). */
#ifndef FRONTEND_TEXT_TOKEN_READER_H
#define FRONTEND_TEXT_TOKEN_READER_H

#include "base/json.h"
#include "frontend/text/token_pipeline.h"

/* Ids, and lengths in bytes of pieces and added tokens, are below, or at most, these. */
enum { TOKEN_MOST_IDS = 1 << 24, TOKEN_LONGEST_PIECE = 1 << 10 };

typedef struct TokenReader {
    TokenPipeline *pipeline;
    const char *path; /* of the file */
    Diagnostics *diagnostics;
    Arena arena; /* of places in the file */
} TokenReader;

/* Both report and return false. */
bool reader_malformed(TokenReader *r, const char *place, const char *reason);
bool reader_unsupported(TokenReader *r, const char *place, const char *what);
const char *reader_place(TokenReader *r, const char *place, const char *key); /* of a member */

/* Refuses members that are not in `known`, names with a blank between: what they would change is not known. */
bool reader_check_members(TokenReader *r, json_t *object, const char *place, const char *known);
bool reader_bool(TokenReader *r, json_t *object, const char *place, const char *key, bool absent, bool *value);
bool reader_text(TokenReader *r, json_t *object, const char *place, const char *key, const char **text);
const char *reader_type(json_t *object); /* its member "type"; "" where there is none */
bool reader_is_id(json_t *value);

/* The member "model" of the document. */
bool token_model_read(TokenReader *r, json_t *root);

#endif
