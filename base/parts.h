/* Texts that consist of parts between separators: the components of "encoder.layer.0.query", the items of a list. */
#ifndef BASE_PARTS_H
#define BASE_PARTS_H

#include <stdbool.h>
#include <stddef.h>

/* Whether `text` contains `part` between separators or ends of the text. `part` may span several parts; an empty one is
 * never found. */
bool text_has_part(const char *text, const char *part, const char *separators);
bool text_ends_with(const char *text, const char *end);
/* The length of the text before `end`; the whole if it does not end so, or nothing is before it. */
size_t text_stem(const char *text, const char *end);
/* Where the word is among so many, compared byte by byte; -1: nowhere. */
int word_index(const char *word, const char *const *words, size_t count);
/* Whether a pattern of --lr, --lora, --freeze or --train means this name (NULL: none): as a file name's where it has
 * * ? or [, otherwise one or more of its components between dots. */
bool pattern_matches(const char *pattern, const char *name);

#endif
