#include "base/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_JSON_BYTES = 1 << 30 };

/* The file's name in messages: "-" is standard input. */
static const char *display_name(const char *path) { return strcmp(path, "-") == 0 ? "standard input" : path; }

static json_t *parse(const void *text, size_t size, size_t flags, const char *path, Diagnostics *diagnostics)
{
    json_error_t error;
    json_t *root = json_loadb(size ? text : "", size, JSON_REJECT_DUPLICATES | flags, &error);
    if (!root) {
        Place place = PLACE_FILE(display_name(path));
        place.line = error.line > 0 ? error.line : 0;
        place.column = error.column > 0 ? error.column : 0;
        diagnostics_error(diagnostics, EXIT_BAD_INPUT, place, NULL, "not valid JSON: %s", error.text);
    }
    return root;
}

static bool map(MappedFile *file, const char *path, Diagnostics *diagnostics)
{
    if (!file_map(file, path, diagnostics)) return false;
    if (file->size <= MAX_JSON_BYTES) return true;
    file_unmap(file);
    return input_error(diagnostics, display_name(path), NULL, "is larger than 1 GiB");
}

static json_t *read_file(const char *path, size_t flags, Diagnostics *diagnostics)
{
    FREED_WITH(file_unmap) MappedFile file = {0};
    if (!map(&file, path, diagnostics)) return NULL;
    return parse(file.bytes, file.size, flags, path, diagnostics);
}

json_t *json_read(const char *path, Diagnostics *diagnostics) { return read_file(path, 0, diagnostics); }

json_t *json_read_reals(const char *path, Diagnostics *diagnostics)
{
    return read_file(path, JSON_DECODE_INT_AS_REAL, diagnostics);
}

/* ---- Tables apart ---- */

static void skip_space(JsonScan *scan)
{
    while (scan->at < scan->end && (*scan->at == ' ' || *scan->at == '\n' || *scan->at == '\t' || *scan->at == '\r'))
        scan->at++;
}

bool json_scan_mark(JsonScan *scan, char mark)
{
    skip_space(scan);
    if (scan->at == scan->end || *scan->at != mark) return false;
    scan->at++;
    return true;
}

bool json_scan_integer(JsonScan *scan, int64_t *value)
{
    skip_space(scan);
    const char *at = scan->at;
    bool negative = at < scan->end && *at == '-';
    const char *digits = at += negative;
    int64_t number = 0;
    for (; at < scan->end && *at >= '0' && *at <= '9'; at++)
        if (__builtin_mul_overflow(number, 10, &number) || __builtin_add_overflow(number, *at - '0', &number))
            return false;
    if (at == digits || (*digits == '0' && at > digits + 1)) return false;
    scan->at = at;
    *value = negative ? -number : number;
    return true;
}

bool json_scan_string(JsonScan *scan, const char **text, size_t *length)
{
    skip_space(scan);
    if (scan->at == scan->end || *scan->at != '"') return false;
    const char *start = scan->at + 1;
    for (const char *quote = start; (quote = memchr(quote, '"', (size_t)(scan->end - quote))); quote++) {
        int escapes = 0;
        while (quote - escapes > start && quote[-escapes - 1] == '\\') escapes++;
        if (escapes % 2) continue; /* an escaped quote */
        *text = start;
        *length = (size_t)(quote - start);
        scan->at = quote + 1;
        return true;
    }
    return false;
}

/* Finds the first member `key` of the root, if it is an array. It counts brackets of all kinds alike: if they do not
 * match, a later step fails. */
static bool find_array(JsonScan text, const char *key, JsonScan *array)
{
    const char *string, *start = NULL;
    size_t length;
    for (int64_t depth = 0; text.at < text.end;) {
        char c = *text.at;
        if (c == '"') {
            if (!json_scan_string(&text, &string, &length)) return false;
            if (start || depth != 1 || length != strlen(key) || memcmp(string, key, length) != 0) continue;
            if (!json_scan_mark(&text, ':')) continue;
            skip_space(&text);
            if (text.at == text.end || *text.at != '[') return false;
            start = text.at;
            continue;
        }
        text.at++;
        depth += (c == '[' || c == '{') - (c == ']' || c == '}');
        if (!start || depth > 1) continue;
        *array = (JsonScan){start, text.at};
        return c == ']';
    }
    return false;
}

/* The text to parse: the array is emptied, but keeps its lines and the last line's width, so that later syntax errors
 * are reported at the right line and column. */
static void blank_array(Buffer *buffer, const MappedFile *file, JsonScan array)
{
    const char *text = (const char *)file->bytes, *rest = array.end;
    buffer_append(buffer, text, (size_t)(array.at - text));
    buffer_append(buffer, "[", 1);
    const char *line = array.at + 1;
    for (const char *end; (end = memchr(line, '\n', (size_t)(rest - line))); line = end + 1)
        buffer_append(buffer, "\n", 1);
    buffer_print(buffer, "%*s", (int)(rest - line < INT32_MAX ? rest - line : INT32_MAX), "]");
    buffer_append(buffer, rest, file->size - (size_t)(rest - text));
}

bool json_read_apart(JsonApart *apart, const char *path, const char *key, Diagnostics *diagnostics)
{
    *apart = (JsonApart){0};
    if (!map(&apart->file, path, diagnostics)) return false;
    const char *text = (const char *)apart->file.bytes;
    if (text && find_array((JsonScan){text, text + apart->file.size}, key, &apart->text)) {
        FREED_WITH(buffer_free) Buffer rest = {0};
        blank_array(&rest, &apart->file, apart->text);
        apart->root = parse(rest.bytes, rest.size, 0, path, diagnostics);
    } else {
        apart->root = parse(text, apart->file.size, 0, path, diagnostics);
    }
    if (apart->root) return true;
    file_unmap(&apart->file);
    return false;
}

void json_apart_free(JsonApart *apart)
{
    json_decref(apart->root);
    file_unmap(&apart->file);
}

static int append(const char *text, size_t size, void *buffer)
{
    buffer_append(buffer, text, size);
    return 0;
}

bool json_append(Buffer *text, const json_t *value, size_t flags)
{
    return json_dump_callback(value, append, text, flags) == 0;
}

/* ---- Members ---- */

bool json_refuse(JsonReader reader, const char *path, const char *reason)
{
    Place place = {.file = display_name(reader.file), .object = path && *path ? path : NULL};
    return diagnostics_error(reader.diagnostics, EXIT_BAD_INPUT, place, NULL, "%s", reason);
}

static bool member_error(JsonReader reader, const char *path, const char *key, const char *problem)
{
    char object[512];
    snprintf(object, sizeof object, "%s%s%s", path ? path : "", path && *path ? "." : "", key);
    return json_refuse(reader, object, problem);
}

/* The member, or NULL. Reports an `object` that is not an object, a required member that is missing, and one of another
 * type than these, which are bits. */
static bool find_member(JsonReader reader, const json_t *object, const char *path, const char *key, bool required,
                        unsigned types, const char *problem, json_t **member)
{
    *member = NULL;
    if (!json_is_object(object)) return json_refuse(reader, path, "must be an object");
    *member = json_object_get(object, key);
    if (!*member) return !required || member_error(reader, path, key, "is missing");
    return (types >> json_typeof(*member) & 1) || member_error(reader, path, key, problem);
}

bool json_read_string(JsonReader reader, const json_t *object, const char *path, const char *key, bool required,
                      const char **value)
{
    json_t *member;
    if (!find_member(reader, object, path, key, required, 1 << JSON_STRING, "must be a string", &member)) return false;
    if (member) *value = json_string_value(member);
    return true;
}

bool json_read_number(JsonReader reader, const json_t *object, const char *path, const char *key, bool required,
                      double *value)
{
    enum { NUMBERS = 1 << JSON_INTEGER | 1 << JSON_REAL };
    json_t *member;
    if (!find_member(reader, object, path, key, required, NUMBERS, "must be a number", &member)) return false;
    if (!member) return true;
    double number = json_number_value(member);
    if (!isfinite(number)) return member_error(reader, path, key, "must be finite");
    *value = number;
    return true;
}

bool json_read_integer(JsonReader reader, const json_t *object, const char *path, const char *key, bool required,
                       int64_t *value)
{
    static const char problem[] = "must be an integer";
    enum { NUMBERS = 1 << JSON_INTEGER | 1 << JSON_REAL };
    json_t *member;
    if (!find_member(reader, object, path, key, required, NUMBERS, problem, &member)) return false;
    if (json_is_integer(member)) *value = json_integer_value(member);
    if (!json_is_real(member)) return true;
    /* Many writers print whole numbers as 8e9 or 8.0. Beyond 2^53 such a number may be rounded, so it is refused. */
    double number = json_real_value(member);
    if (!(fabs(number) <= 0x1p53) || number != floor(number)) return member_error(reader, path, key, problem);
    *value = (int64_t)number;
    return true;
}

bool json_get_array(JsonReader reader, const json_t *object, const char *path, const char *key, json_t **value)
{
    return find_member(reader, object, path, key, true, 1 << JSON_ARRAY, "must be an array", value);
}

bool json_get_object(JsonReader reader, const json_t *object, const char *path, const char *key, json_t **value)
{
    return find_member(reader, object, path, key, true, 1 << JSON_OBJECT, "must be an object", value);
}
