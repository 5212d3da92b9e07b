#include "base/json_writer.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

/* ---- Strings and numbers ---- */

static void print_escape(Buffer *buffer, int32_t c)
{
    static const char special[] = "\b\t\n\f\r\"\\", letters[] = "btnfr\"\\";
    const char *found = c > 0 && c < 0x80 ? strchr(special, (char)c) : NULL;
    if (found)
        buffer_print(buffer, "\\%c", letters[found - special]);
    else
        buffer_print(buffer, "\\u%04X", c < 0 ? 0xFFFD : (unsigned)c);
}

void json_print_string(Buffer *buffer, const char *text)
{
    const char *end = text + strlen(text), *plain = text; /* what is not written yet and needs no escape */
    buffer_append(buffer, "\"", 1);
    while (text < end) {
        size_t used;
        int32_t c = text_character(text, (size_t)(end - text), &used);
        if (c < 0 || c == '"' || c == '\\' || text_is_control(c)) {
            buffer_append(buffer, plain, (size_t)(text - plain));
            print_escape(buffer, c);
            plain = text + used;
        }
        text += used;
    }
    buffer_append(buffer, plain, (size_t)(end - plain));
    buffer_append(buffer, "\"", 1);
}

void json_print_number(Buffer *buffer, double value)
{
    if (!isfinite(value)) bug("JSON has no number for %g", value);
    if (value == 0 && signbit(value)) { /* "-0" would be read as the integer 0 */
        buffer_print(buffer, "-0.0");
        return;
    }
    if (value == floor(value) && fabs(value) < 0x1p53) { /* whole numbers look like whole numbers: 30, not 3e+01 */
        buffer_print(buffer, "%.0f", value);
        return;
    }
    char text[40];
    /* %g drops zeros at the end, so 15 digits print 0.1 as 0.1, and most numbers need no more. Subnormal numbers have
     * fewer digits than 15 to begin with: the search starts at 1. */
    for (int digits = fabs(value) < DBL_MIN ? 1 : 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value) break;
    }
    buffer_append(buffer, text, strlen(text));
}

/* printf is too slow: for the schedule of a large plan it would take longer than everything except the search. */
static void print_integer(Buffer *buffer, int64_t value)
{
    char digits[24], *at = digits + sizeof digits;
    uint64_t rest = value < 0 ? -(uint64_t)value : (uint64_t)value;
    do *--at = (char)('0' + rest % 10);
    while (rest /= 10);
    if (value < 0) *--at = '-';
    buffer_append(buffer, at, (size_t)(digits + sizeof digits - at));
}

/* ---- Structure ---- */

static void break_line(JsonWriter *json) { buffer_print(json->buffer, "\n%*s", json->depth * json->indent, ""); }

/* What stands before a value: comma, white space and key. */
static void begin(JsonWriter *json, const char *key)
{
    if (json->follows) buffer_append(json->buffer, ",", 1);
    if (json->gap)
        buffer_append(json->buffer, json->gap, strlen(json->gap));
    else if (json->indent && json->depth)
        break_line(json);
    else if (json->spaced && json->follows)
        buffer_append(json->buffer, " ", 1);
    json->gap = NULL;
    json->follows = true;
    if (!key) return;
    json_print_string(json->buffer, key);
    buffer_append(json->buffer, ": ", json->spaced || json->indent ? 2 : 1);
}

void json_open(JsonWriter *json, const char *key, char bracket)
{
    begin(json, key);
    buffer_append(json->buffer, &bracket, 1);
    json->follows = false;
    json->depth++;
}

void json_close(JsonWriter *json, char bracket)
{
    json->depth--;
    if (json->gap)
        buffer_append(json->buffer, json->gap, strlen(json->gap));
    else if (json->indent && json->follows)
        break_line(json);
    json->gap = NULL;
    json->follows = true;
    buffer_append(json->buffer, &bracket, 1);
}

JsonWriter *json_break(JsonWriter *json, const char *gap)
{
    json->gap = gap;
    return json;
}

/* ---- Values ---- */

void json_add_string(JsonWriter *json, const char *key, const char *text)
{
    begin(json, key);
    if (text)
        json_print_string(json->buffer, text);
    else
        buffer_append(json->buffer, "null", 4);
}

void json_add_integer(JsonWriter *json, const char *key, int64_t value)
{
    begin(json, key);
    print_integer(json->buffer, value);
}

void json_add_number(JsonWriter *json, const char *key, double value)
{
    begin(json, key);
    json_print_number(json->buffer, value);
}

void json_add_bool(JsonWriter *json, const char *key, bool value)
{
    begin(json, key);
    buffer_append(json->buffer, value ? "true" : "false", value ? 4 : 5);
}

void json_add_null(JsonWriter *json, const char *key) { json_add_string(json, key, NULL); }

void json_add_raw(JsonWriter *json, const char *key, const char *format, ...)
{
    va_list arguments;
    begin(json, key);
    va_start(arguments, format);
    buffer_print_va(json->buffer, format, arguments);
    va_end(arguments);
}

void json_add_strings(JsonWriter *json, const char *key, const char *const *texts, size_t count)
{
    json_open(json, key, '[');
    for (size_t i = 0; i < count; i++) json_add_string(json, NULL, texts[i]);
    json_close(json, ']');
}

void json_add_numbers(JsonWriter *json, const char *key, const double *values, size_t count)
{
    json_open(json, key, '[');
    for (size_t i = 0; i < count; i++) json_add_number(json, NULL, values[i]);
    json_close(json, ']');
}

void json_add_integers(JsonWriter *json, const char *key, const int64_t *values, size_t count)
{
    json_open(json, key, '[');
    for (size_t i = 0; i < count; i++) json_add_integer(json, NULL, values[i]);
    json_close(json, ']');
}

static void add_real(JsonWriter *json, const char *key, double value)
{
    if (fabs(value) < 1e15 && value == floor(value))
        json_add_raw(json, key, "%.1f", value);
    else
        json_add_number(json, key, value);
}

void json_add_tree(JsonWriter *json, const char *key, const json_t *tree)
{
    const char *name;
    json_t *member;
    switch (json_typeof(tree)) {
    case JSON_OBJECT:
        json_open(json, key, '{');
        json_object_foreach((json_t *)tree, name, member) json_add_tree(json, name, member);
        json_close(json, '}');
        break;
    case JSON_ARRAY:
        json_open(json, key, '[');
        for (size_t i = 0; i < json_array_size(tree); i++) json_add_tree(json, NULL, json_array_get(tree, i));
        json_close(json, ']');
        break;
    case JSON_STRING: json_add_string(json, key, json_string_value(tree)); break;
    case JSON_INTEGER: json_add_integer(json, key, json_integer_value(tree)); break;
    case JSON_REAL: add_real(json, key, json_real_value(tree)); break;
    case JSON_NULL: json_add_null(json, key); break;
    default: json_add_bool(json, key, json_is_true(tree));
    }
}

void json_add_diagnostics(JsonWriter *json, const char *key, const Diagnostics *diagnostics, bool errors)
{
    json_open(json, key, '[');
    for (const Diagnostic *d = diagnostics->first; d; d = d->next) {
        if (d->is_error != errors) continue;
        json_open(json, NULL, '{');
        json_add_string(json, "severity", d->is_error ? "error" : "warning");
        if (d->place.file) json_add_string(json, "file", d->place.file);
        if (d->place.line) json_add_integer(json, "line", d->place.line);
        if (d->place.column) json_add_integer(json, "column", d->place.column);
        if (d->place.object) json_add_string(json, "object", d->place.object);
        json_add_string(json, "message", d->message);
        if (d->hint) json_add_string(json, "hint", d->hint);
        json_close(json, '}');
    }
    json_close(json, ']');
}
