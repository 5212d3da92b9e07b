/* Texts that consist of parts between separators: the components of "encoder.layer.0.query", the items of a list. */
#ifndef BASE_PARTS_H
#define BASE_PARTS_H

#include <stdbool.h>

/* Whether `text` contains `part` between separators or ends of the text. `part` may span several parts; an empty one is
 * never found. */
bool text_has_part(const char *text, const char *part, const char *separators);

#endif
