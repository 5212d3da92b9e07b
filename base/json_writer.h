/* The only writer of JSON. It appends objects and arrays to a buffer; the same calls give the same bytes.
 *
 *     JsonWriter json = {.buffer = &text};
 *     json_open(&json, NULL, '{');
 *     json_add_string(&json, "format", "skycc.costs/1");
 *     json_open(json_break(&json, "\n "), "layers", '[');     begins a line of its own
 *     json_add_integer(&json, NULL, 3);      items have no key
 *     json_close(&json, ']');
 *     json_close(&json, '}');                {"format":"skycc.costs/1",
 *                                             "layers":[3]} */
#ifndef BASE_JSON_WRITER_H
#define BASE_JSON_WRITER_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/diagnostics.h"

typedef struct JsonWriter {
    Buffer *buffer;
    bool spaced; /* a blank after ':' and ',' */
    int indent;  /* blanks a level, every member and item on a line of its own; 0: lines break where json_break says */
    /* The writer's own: */
    bool follows; /* something stands before in this object or array */
    int depth;
    const char *gap;
} JsonWriter;

/* `bracket` is '{' or '[', and '}' or ']'. In all of these the key of an item of an array, and of the document, is
 * NULL. */
void json_open(JsonWriter *json, const char *key, char bracket);
void json_close(JsonWriter *json, char bracket);

/* Sets the white space before the next member, item or closing bracket, which is not copied; returns the writer. */
JsonWriter *json_break(JsonWriter *json, const char *gap);

/* Quoted and escaped, also what text_is_control names; bytes that are not UTF-8 become U+FFFD. NULL becomes null. */
void json_add_string(JsonWriter *json, const char *key, const char *text);
void json_add_integer(JsonWriter *json, const char *key, int64_t value);
/* Finite; in the shortest form that reads back exactly, whole numbers without a point. */
void json_add_number(JsonWriter *json, const char *key, double value);
void json_add_bool(JsonWriter *json, const char *key, bool value);
void json_add_null(JsonWriter *json, const char *key);
/* A value in the caller's spelling: a number with fixed digits, or finished JSON. */
void json_add_raw(JsonWriter *json, const char *key, const char *format, ...) __attribute__((format(printf, 3, 4)));
void json_add_strings(JsonWriter *json, const char *key, const char *const *texts, size_t count);
void json_add_numbers(JsonWriter *json, const char *key, const double *values, size_t count);
void json_add_integers(JsonWriter *json, const char *key, const int64_t *values, size_t count);

/* A value that was read, with members in their order; 1.0 does not become 1. */
void json_add_tree(JsonWriter *json, const char *key, const json_t *tree);

/* An array of {"severity", "file", "line", "column", "object", "message", "hint"}, absent members left out; only
 * errors, or only warnings. */
void json_add_diagnostics(JsonWriter *json, const char *key, const Diagnostics *diagnostics, bool errors);

/* A string or a number by itself; YAML spells both alike. */
void json_print_string(Buffer *buffer, const char *text);
void json_print_number(Buffer *buffer, double value);

#endif
