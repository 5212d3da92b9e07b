#include "frontend/tsv.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

enum { MAX_REPORTED = 20 };

bool tsv_open(TsvReader *reader, const char *path, Diagnostics *diagnostics)
{
    static const char byte_order_mark[] = "\xef\xbb\xbf";
    *reader = (TsvReader){.path = strcmp(path, "-") == 0 ? "standard input" : path, .diagnostics = diagnostics};
    if (!file_map(&reader->file, path, diagnostics)) return false;
    if (reader->file.size >= 3 && memcmp(reader->file.bytes, byte_order_mark, 3) == 0) reader->position = 3;
    return true;
}

bool tsv_error(TsvReader *reader, const char *hint, const char *format, ...)
{
    if (reader->errors++ > MAX_REPORTED) return false;
    Place place = {.file = reader->path, .line = reader->line};
    if (reader->errors > MAX_REPORTED)
        return diagnostics_error(reader->diagnostics, EXIT_BAD_INPUT, place, NULL, "and more errors follow");
    Arena arena = {0};
    va_list arguments;
    va_start(arguments, format);
    const char *message = arena_format_va(&arena, format, arguments);
    va_end(arguments);
    diagnostics_error(reader->diagnostics, EXIT_BAD_INPUT, place, hint, "%s", message);
    arena_free(&arena);
    return false;
}

/* The number of bytes in front of the first that is not UTF-8; `length` if there is none. */
static size_t valid_bytes(const char *text, size_t length)
{
    for (size_t at = 0; at < length;) {
        int32_t c;
        utf8proc_ssize_t used =
            utf8proc_iterate((const utf8proc_uint8_t *)text + at, (utf8proc_ssize_t)(length - at), &c);
        if (used <= 0) return at;
        at += (size_t)used;
    }
    return length;
}

static void split(TsvReader *reader, const char *text, size_t length)
{
    reader->field_count = 0;
    for (const char *end = text + length;; text++) {
        const char *tab = memchr(text, '\t', (size_t)(end - text));
        TsvField field = {text, (size_t)((tab ? tab : end) - text)};
        array_push(reader->fields, reader->field_count, reader->field_capacity, field);
        if (!tab) return;
        text = tab;
    }
}

bool tsv_next(TsvReader *reader)
{
    while (reader->position < reader->file.size) {
        const char *text = (const char *)reader->file.bytes + reader->position;
        size_t rest = reader->file.size - reader->position;
        const char *newline = memchr(text, '\n', rest);
        size_t length = newline ? (size_t)(newline - text) : rest;
        reader->position += length + (newline != NULL);
        reader->line++;
        if (length && text[length - 1] == '\r') length--;
        size_t valid = valid_bytes(text, length);
        if (valid < length) {
            tsv_error(reader, NULL, "is not UTF-8: byte %zu of the line is 0x%02x", valid + 1,
                      (unsigned char)text[valid]);
            continue;
        }
        if (length == 0) continue;
        split(reader, text, length);
        return true;
    }
    return false;
}

bool tsv_field_is(TsvField field, const char *text)
{
    return field.length == strlen(text) && memcmp(field.text, text, field.length) == 0;
}

void tsv_close(TsvReader *reader)
{
    file_unmap(&reader->file);
    free(reader->fields);
    *reader = (TsvReader){0};
}
