/* SentencePiece's compiled tables of normalisation, as tokenizer.json holds them ("Precompiled"): in base64, the size
 * of a double-array trie (32 bits, least significant byte first), the trie (Yata's darts-clone: units of 32 bits), and
 * the replacements, each ended by a zero byte. */
#ifndef FRONTEND_TEXT_CHARSMAP_H
#define FRONTEND_TEXT_CHARSMAP_H

#include <stdbool.h>

#include "base/buffer.h"

typedef struct Charsmap Charsmap;

/* NULL if the text is malformed. */
Charsmap *charsmap_read(const char *base64);
/* Appends normalised text. The table is asked for each grapheme cluster (Unicode Standard Annex 29) of fewer than six
 * bytes; if it has none, for the characters one by one. The text must be UTF-8. */
void charsmap_apply(const Charsmap *map, const char *text, size_t length, Buffer *buffer);
void charsmap_free(Charsmap *map);

#endif
