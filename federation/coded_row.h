/* Rows in a codec (base/codec.h), as federations send them. With `least_change`, tiles in which little has changed wait
 * for a later round: they are coded as zero, and tiles that are zero are not sent. Embeddings of words that no text had
 * take a bit for 64 values then.
 *
 * On the wire, with least_change and q8 to q3: a bit for each tile, low bits first, which says whether the tile
 * follows, then the bytes of those that do. Else the row as it is. */
#ifndef FEDERATION_CODED_ROW_H
#define FEDERATION_CODED_ROW_H

#include "federation/federation.h"

typedef struct RowRule {
    Codec codec;
    float least; /* of the largest value: tiles without a larger one wait; 0: none */
} RowRule;

static inline RowRule row_rule_up(const Federation *federation)
{
    return (RowRule){federation->codec, (float)federation->least_change};
}

static inline RowRule row_rule_down(const Federation *federation)
{
    return (RowRule){federation->model_codec, (float)federation->least_change};
}

/* Bytes of a value, if no tile is left out; 4 without codec. */
double coded_row_value_bytes(RowRule rule);

/* As codec_feed_back, with what waits in `lost`. Appends the row's bytes, all of them. False: what they decode to is
 * not finite. */
bool coded_row_make(RowRule rule, float *values, const float *left, float *lost, size_t count, Buffer *row);

/* Appends a row of `count` values as it is on the wire. */
void coded_row_put(RowRule rule, const void *row, size_t count, Buffer *message);
/* Appends the bytes of the row. False: what is on the wire is no row of `count` values. */
bool coded_row_take(RowRule rule, const unsigned char *message, size_t size, size_t count, Buffer *row);

#endif
