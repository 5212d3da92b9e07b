#include "base/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_JSON_BYTES = 1 << 30 };

/* "-" is standard input wherever a file is read: say so. */
static const char *display_name(const char *path) { return strcmp(path, "-") == 0 ? "standard input" : path; }

json_t *json_read(const char *path, Diagnostics *diagnostics)
{
    MappedFile file;
    if (!file_map(&file, path, diagnostics)) return NULL;
    Place place = PLACE_FILE(display_name(path));
    json_t *root = NULL;
    if (file.size > MAX_JSON_BYTES) {
        diagnostics_error(diagnostics, EXIT_BAD_INPUT, place, NULL, "is larger than 1 GiB");
    } else {
        json_error_t error;
        root = json_loadb(file.size ? (const char *)file.bytes : "", file.size, JSON_REJECT_DUPLICATES, &error);
        if (!root) {
            place.line = error.line > 0 ? error.line : 0;
            place.column = error.column > 0 ? error.column : 0;
            diagnostics_error(diagnostics, EXIT_BAD_INPUT, place, NULL, "not valid JSON: %s", error.text);
        }
    }
    file_unmap(&file);
    return root;
}

static bool member_error(JsonReader reader, const char *path, const char *key, const char *problem)
{
    char object[512];
    snprintf(object, sizeof object, "%s%s%s", path ? path : "", path && *path ? "." : "", key);
    Place place = {.file = display_name(reader.file), .object = object};
    return diagnostics_error(reader.diagnostics, EXIT_BAD_INPUT, place, NULL, "%s", problem);
}

/* The member if it is there; reports `object` being no object at all, and absence where the member is required. */
static bool find_member(JsonReader reader, const json_t *object, const char *path, const char *key, bool required,
                        json_t **member)
{
    *member = NULL;
    if (!json_is_object(object)) {
        Place place = {.file = display_name(reader.file), .object = path && *path ? path : NULL};
        return diagnostics_error(reader.diagnostics, EXIT_BAD_INPUT, place, NULL, "must be an object");
    }
    *member = json_object_get(object, key);
    return *member || !required || member_error(reader, path, key, "is missing");
}

static bool get_string(JsonReader reader, const json_t *object, const char *path, const char *key, bool required,
                       const char **value)
{
    json_t *member;
    if (!find_member(reader, object, path, key, required, &member)) return false;
    if (!member) return true;
    if (!json_is_string(member)) return member_error(reader, path, key, "must be a string");
    *value = json_string_value(member);
    return true;
}

static bool get_number(JsonReader reader, const json_t *object, const char *path, const char *key, bool required,
                       double *value)
{
    json_t *member;
    if (!find_member(reader, object, path, key, required, &member)) return false;
    if (!member) return true;
    if (!json_is_number(member)) return member_error(reader, path, key, "must be a number");
    double number = json_number_value(member);
    if (!isfinite(number)) return member_error(reader, path, key, "must be finite");
    *value = number;
    return true;
}

static bool get_integer(JsonReader reader, const json_t *object, const char *path, const char *key, bool required,
                        int64_t *value)
{
    json_t *member;
    if (!find_member(reader, object, path, key, required, &member)) return false;
    if (!member) return true;
    /* Many writers print whole numbers as 8e9 or 8.0; beyond 2^53 such a number may not be the one that was meant. */
    if (json_is_real(member)) {
        double number = json_real_value(member);
        if (!(fabs(number) <= 0x1p53) || number != floor(number))
            return member_error(reader, path, key, "must be an integer");
        *value = (int64_t)number;
        return true;
    }
    if (!json_is_integer(member)) return member_error(reader, path, key, "must be an integer");
    *value = json_integer_value(member);
    return true;
}

bool json_get_string(JsonReader reader, const json_t *object, const char *path, const char *key, const char **value)
{
    return get_string(reader, object, path, key, true, value);
}

bool json_get_number(JsonReader reader, const json_t *object, const char *path, const char *key, double *value)
{
    return get_number(reader, object, path, key, true, value);
}

bool json_get_integer(JsonReader reader, const json_t *object, const char *path, const char *key, int64_t *value)
{
    return get_integer(reader, object, path, key, true, value);
}

bool json_get_array(JsonReader reader, const json_t *object, const char *path, const char *key, json_t **value)
{
    json_t *member;
    if (!find_member(reader, object, path, key, true, &member)) return false;
    if (!json_is_array(member)) return member_error(reader, path, key, "must be an array");
    *value = member;
    return true;
}

bool json_get_object(JsonReader reader, const json_t *object, const char *path, const char *key, json_t **value)
{
    json_t *member;
    if (!find_member(reader, object, path, key, true, &member)) return false;
    if (!json_is_object(member)) return member_error(reader, path, key, "must be an object");
    *value = member;
    return true;
}

bool json_optional_string(JsonReader reader, const json_t *object, const char *path, const char *key,
                          const char **value)
{
    return get_string(reader, object, path, key, false, value);
}

bool json_optional_number(JsonReader reader, const json_t *object, const char *path, const char *key, double *value)
{
    return get_number(reader, object, path, key, false, value);
}

bool json_optional_integer(JsonReader reader, const json_t *object, const char *path, const char *key, int64_t *value)
{
    return get_integer(reader, object, path, key, false, value);
}

void json_print_string(Buffer *buffer, const char *text)
{
    json_t *string = json_string(text);
    if (!string) { /* not UTF-8, which JSON cannot carry */
        size_t length = strlen(text);
        char *replaced = memory_allocate(length + 1);
        for (size_t i = 0; i < length; i++) replaced[i] = (unsigned char)text[i] < 0x80 ? text[i] : '?';
        string = json_string(replaced);
        free(replaced);
    }
    char *quoted = string ? json_dumps(string, JSON_ENCODE_ANY) : NULL;
    if (!quoted) memory_exhausted();
    buffer_append(buffer, quoted, strlen(quoted));
    free(quoted);
    json_decref(string);
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
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value) break;
    }
    buffer_print(buffer, "%s", text);
}

static void print_member(Buffer *buffer, const char *key, const char *text)
{
    if (!text) return;
    buffer_print(buffer, ",\"%s\":", key);
    json_print_string(buffer, text);
}

void json_print_diagnostics(Buffer *buffer, const Diagnostics *diagnostics, bool errors)
{
    const char *separator = "[";
    for (const Diagnostic *d = diagnostics->first; d; d = d->next) {
        if (d->is_error != errors) continue;
        buffer_print(buffer, "%s{\"severity\":\"%s\"", separator, d->is_error ? "error" : "warning");
        print_member(buffer, "file", d->place.file);
        if (d->place.line) buffer_print(buffer, ",\"line\":%d", d->place.line);
        if (d->place.column) buffer_print(buffer, ",\"column\":%d", d->place.column);
        print_member(buffer, "object", d->place.object);
        print_member(buffer, "message", d->message);
        print_member(buffer, "hint", d->hint);
        buffer_print(buffer, "}");
        separator = ",";
    }
    buffer_print(buffer, "%s]", *separator == '[' ? "[" : "");
}
