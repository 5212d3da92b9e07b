/* How a round's fragment of the model has changed, in a codec (base/codec.h), as sites take it: model_codec. The
 * coordinator codes what the outer step made of the values together with what it left out before (error feedback,
 * coded_update.h), and itself goes on from what that decodes to. So sites and coordinator have the same values to the
 * last bit, however these came: a site with another start, and one that asks later, takes them as float32.
 *
 * On the wire, of any tiles of a fragment that follow each other: the hash of the new values (u64 high, u64 low), and
 * these tiles as a row (coded_row.h). */
#ifndef FEDERATION_CODED_MODEL_H
#define FEDERATION_CODED_MODEL_H

#include "federation/coded_row.h"

enum { CODED_MODEL_HEAD = 16 };

typedef enum ChangeState { CHANGE_TAKEN, CHANGE_OF_ANOTHER_START, CHANGE_INVALID } ChangeState;

/* `values` are those after the outer step and become `old` plus the change as it is decoded; `remainder` is what was
 * left out, and becomes what is. Appends the bytes: whole tiles, unless these are the fragment's last values. With
 * CODEC_NONE nothing is left out, and there are no bytes. False: not finite, or too large for the codec. */
bool coded_model_make(RowRule rule, const float *old, float *values, float *remainder, size_t count, Buffer *bytes);
/* Appends values first ... first + count - 1 of a fragment with these values and bytes, as they are on the wire. False:
 * they are not whole tiles of it. */
bool coded_model_put(RowRule rule, const float *values, size_t all, const Buffer *bytes, uint64_t first, uint64_t count,
                     Buffer *message);
/* `values`, which may be `old`, become `old` plus the change. They are not to be used unless it is taken. */
ChangeState coded_model_take(RowRule rule, const float *old, float *values, size_t count, const unsigned char *message,
                             size_t size);

#endif
