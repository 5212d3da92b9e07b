/* Frames texts with special tokens ([CLS] text [SEP], then text [SEP] for a pair) and cuts texts that are too long. */
#ifndef FRONTEND_TEXT_TOKEN_FRAME_H
#define FRONTEND_TEXT_TOKEN_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Ids of one text; malloc'ed. */
typedef struct TokenIds {
    int32_t *items;
    size_t count, capacity;
} TokenIds;

typedef struct FramePiece {
    int text;         /* 0 or 1: a text stands here; -1: `id` does */
    int32_t id, type; /* the segment, of all tokens of a text */
} FramePiece;

typedef struct TokenFrame {
    FramePiece *pieces;
    size_t count;
} TokenFrame;

/* How a pair that is too long is cut. CUT_BERT, as BERT's authors do: drop tokens one by one from the longer text, or
 * from the second if both are equally long. CUT_HUGGING_FACE, as Hugging Face's tokenizers do: if both must be cut,
 * each gets half of the room, and the longer one (the second if equal) gets the odd token. CUT_FIRST, CUT_SECOND: cut
 * that text to no less than one token; if that is not enough, as CUT_HUGGING_FACE. */
typedef enum FrameCut { FRAME_CUT_BERT, FRAME_CUT_HUGGING_FACE, FRAME_CUT_FIRST, FRAME_CUT_SECOND } FrameCut;

/* One example; arrays hold `length` tokens. */
typedef struct TokenRow {
    int32_t *ids, *mask, *types;
    bool *is_text; /* whether the token is a text's; NULL: not wanted */
    size_t length;
} TokenRow;

size_t token_frame_specials(const TokenFrame *frame); /* how many tokens it adds */

/* Writes texts, cut to fit, in their frame, then padding; returns the number of tokens before the padding. The row must
 * have room for the frame. *cut: whether anything was left out. */
size_t token_frame_write(const TokenFrame *frame, FrameCut way, const TokenIds texts[2], int32_t pad,
                         const TokenRow *row, bool *cut);

#endif
