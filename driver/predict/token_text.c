#include "driver/predict/token_text.h"

#include <stdlib.h>
#include <string.h>

#include "frontend/text/unicode.h"

enum { BYTE_BLANK = 0x120, PIECE_BLANK = 0x2581 }; /* how the first two write a blank */

Spelling token_spelling(Tokenizer *tokenizer)
{
    static const char text[] = "a b";
    TokenIds ids = {0};
    FREED_WITH(buffer_free) Buffer pieces = {0};
    Spelling spelling = SPELLED_WORDS;
    if (!tokenizer_encode(tokenizer, text, strlen(text), &ids))
        for (size_t i = 0; i < ids.count; i++) tokenizer_piece(tokenizer, ids.items[i], &pieces);
    const char *at = buffer_text(&pieces);
    for (size_t used, left = pieces.size; left; at += used, left -= used) {
        int32_t c = unicode_read(at, left, &used);
        if (c == BYTE_BLANK) spelling = SPELLED_BYTES;
        if (c == PIECE_BLANK) spelling = SPELLED_SPACES;
    }
    free(ids.items);
    return spelling;
}

/* The byte that a character of GPT-2's spelling stands for; -1: none. */
static int byte_of(int32_t c)
{
    if (c >= 256 && c <= 256 + ' ') return c - 256;
    if (c > 256 + ' ' && c < 256 + 67) return c - 256 - 33 + 0x7f;
    return c == 256 + 67 ? 0xad : c < 256 ? c : -1;
}

void token_text_append(Buffer *text, Spelling spelling, const char *piece, size_t length)
{
    unsigned byte;
    if (spelling == SPELLED_SPACES && length == 6 && sscanf(piece, "<0x%2X>", &byte) == 1) {
        buffer_append(text, &(char){(char)byte}, 1);
        return;
    }
    if (spelling == SPELLED_WORDS) {
        bool on = strncmp(piece, "##", 2) == 0;
        buffer_print(text, "%s%s", on || !text->size ? "" : " ", piece + (on ? 2 : 0));
        return;
    }
    for (size_t used; length; piece += used, length -= used) {
        int32_t c = unicode_read(piece, length, &used);
        int spelled = spelling == SPELLED_BYTES ? byte_of(c) : c == PIECE_BLANK ? ' ' : -1;
        if (spelled >= 0)
            buffer_append(text, &(char){(char)spelled}, 1);
        else
            buffer_append(text, piece, used);
    }
}
