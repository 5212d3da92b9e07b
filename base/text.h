/* Text for people: on a terminal, in a log, in CSV, in a report. Names and labels come from strangers' files.
 * Characters that could forge a line or control a terminal are escaped here, where text leaves the program: \n, \t, \r,
 * \x1b, \u202e. A backslash stays as it is, so that escaping twice is escaping once. */
#ifndef BASE_TEXT_H
#define BASE_TEXT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/arena.h"
#include "base/buffer.h"

/* The character at `text` (UTF-8, at least one byte) and the number of its bytes; -1 and 1 if it is not UTF-8. */
int32_t text_character(const char *text, size_t size, size_t *used);

/* Control characters (C0 with tab and newline, DEL, C1), line and paragraph separators, and bidirectional controls. */
bool text_is_control(int32_t character);

/* Writes the first character of `text` (`*used` bytes), escaped if needed, with a NUL; returns whether it was escaped.
 * Async-signal-safe. */
enum { TEXT_LONGEST_ESCAPE = 8 };
bool text_escape(char escaped[static TEXT_LONGEST_ESCAPE], const char *text, size_t size, size_t *used);

/* Appends `size` bytes, escaped: what text_is_control names, and bytes that are not UTF-8. */
void text_append(Buffer *buffer, const char *text, size_t size);

/* The same of a text whose newlines and tabs are its own: they stay. */
void text_append_lines(Buffer *buffer, const char *text, size_t size);

/* Appends the text as one word of a command that people paste into a shell: as it is, in single quotes, or, with
 * control characters, escaped in $'...', which bash and zsh know. */
void text_append_word(Buffer *buffer, const char *text);
const char *text_word(Arena *arena, const char *text);

/* As printf, but every %s is escaped; the format itself is trusted, newlines in it stay. No %n, no long double. */
void text_format(Buffer *buffer, const char *format, ...) __attribute__((format(printf, 2, 3)));
void text_format_va(Buffer *buffer, const char *format, va_list arguments) __attribute__((format(printf, 2, 0)));
/* The same onto a stream, in one write, so that lines of several processes do not mix. */
void text_print(FILE *stream, const char *format, ...) __attribute__((format(printf, 2, 3)));
void text_print_va(FILE *stream, const char *format, va_list arguments) __attribute__((format(printf, 2, 0)));

/* Whether a line of `text` is `line`. */
bool text_has_line(const char *text, const char *line);

/* The candidate that `text` may be a misspelling of: few letters are missing, added or exchanged, or capitals differ.
 * NULL: there is none. */
const char *text_nearest(const char *text, const char *const *candidates, size_t count);

#endif
