/* Codecs: how tensors travel over links between devices. This file has their names and the number of bytes of a coded
 * tensor; base/codec_rows.h says what the bytes mean.
 *
 * Only float32 activations and gradients are coded; everything else travels unchanged. */
#ifndef BASE_CODEC_H
#define BASE_CODEC_H

#include <stdbool.h>
#include <stdint.h>

typedef enum Codec {
    CODEC_NONE, /* as it is */
    CODEC_BF16, /* the upper half of every float32 */
    CODEC_Q8,   /* tiles of 64 rotated channels with one scale, so many bits a channel */
    CODEC_Q6,
    CODEC_Q4,
    CODEC_Q3,
    CODEC_COUNT
} Codec;

enum { CODEC_TILE = 64 }; /* channels that share a scale */

const char *codec_name(Codec codec);                  /* "none", "bf16", "q8" ... */
bool codec_from_name(const char *name, Codec *codec); /* false if there is none of that name */
/* Bits of one channel of a tile; 0 where there are no tiles. */
int codec_bits(Codec codec);
/* Bytes of one row of `columns` float32 channels. The last tile of a row has full length, even if it is partly
 * filled. */
int64_t codec_row_bytes(Codec codec, int64_t columns);

/* What links may use, as sets of codecs: bit 1 << codec. */
#define CODECS_LOSSLESS (1u << CODEC_NONE)

/* What sums of gradients over replicas use where links may use these: the one that all links must use; of several,
 * none. */
Codec codecs_of_sums(unsigned codecs);
/* How large they are then, compared with float32. */
double codecs_sum_share(unsigned codecs);

/* Parses "lossless", "q8" (only that codec) or "auto:q6" (all codecs down to that one). False for other texts. */
bool codecs_parse(const char *text, unsigned *codecs);
/* The inverse of the parser; 0 counts as lossless. */
const char *codecs_print(unsigned codecs, char text[static 16]);

#endif
