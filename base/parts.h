/* Texts that consist of parts between separators: the components of "encoder.layer.0.query", the items of a list. */
#ifndef BASE_PARTS_H
#define BASE_PARTS_H

#include <stdbool.h>

/* Whether `part` stands in `text` with a separator, or the text's end, on either side; it may span several parts. An
 * empty part stands nowhere. */
bool text_has_part(const char *text, const char *part, const char *separators);

#endif
