/* Characters that must not reach a terminal or a log as they are: names and labels come from files of strangers. */
#ifndef BASE_TEXT_H
#define BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The character at `text` (UTF-8, at least one byte) and the number of its bytes; -1 and 1 if it is not UTF-8. */
int32_t text_character(const char *text, size_t size, size_t *used);

/* Control characters (C0 with tab and newline, DEL, C1), line and paragraph separators, and bidirectional controls. */
bool text_is_control(int32_t character);

#endif
