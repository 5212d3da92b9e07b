#include "frontend/text/table.h"

#include <errno.h>
#include <iconv.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <utf8proc.h>

#include "base/json.h"
#include "frontend/text/table_forms.h"

enum { MAX_REPORTED = 20 };

static TableFormat format_of(const char *path)
{
    static const struct {
        const char *suffix;
        TableFormat format;
    } formats[] = {{".csv", TABLE_CSV},     {".jsonl", TABLE_JSONL}, {".json", TABLE_JSONL}, {".ndjson", TABLE_JSONL},
                   {".conll", TABLE_CONLL}, {".bio", TABLE_CONLL},   {".iob2", TABLE_CONLL}};
    size_t length = table_path_length(path);
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        size_t end = strlen(formats[i].suffix);
        if (length > end && memcmp(path + length - end, formats[i].suffix, end) == 0) return formats[i].format;
    }
    return TABLE_TSV;
}

/* Every second byte of mostly Latin text is 0 there. */
static bool is_utf16(const TableReader *reader)
{
    size_t shown = reader->size < 256 ? reader->size : 256, zeros = 0;
    for (size_t i = 0; i < shown; i++) zeros += reader->bytes[i] == 0;
    bool marked = shown >= 2 && (!memcmp(reader->bytes, "\xff\xfe", 2) || !memcmp(reader->bytes, "\xfe\xff", 2));
    return marked || zeros * 3 > shown;
}

/* After the byte order mark, at the first row. */
static bool begin_text(TableReader *reader)
{
    Buffer lines = {0};
    bool split = false;
    size_t at = reader->size >= 3 && memcmp(reader->bytes, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    const char *text = reader->size ? reader->bytes + at : ""; /* an empty file has no bytes */
    bool ok = reader->format != TABLE_JSONL || is_utf16(reader) ||
              table_split_array(reader->path, text, reader->size - at, &lines, &split, reader->diagnostics);
    reader->position = split ? 0 : at;
    if (!split) return ok;
    buffer_free(&reader->unpacked);
    reader->unpacked = lines;
    reader->bytes = buffer_text(&reader->unpacked);
    reader->size = lines.size;
    return ok;
}

bool table_open(TableReader *reader, const char *path, TableFormat format, Diagnostics *diagnostics)
{
    *reader = (TableReader){.path = strcmp(path, "-") == 0 ? "standard input" : path, .diagnostics = diagnostics};
    reader->format = format == TABLE_BY_SUFFIX ? format_of(path) : format;
    reader->next_line = 1;
    struct stat status;
    if (stat(path, &status) == 0 && S_ISDIR(status.st_mode))
        return input_error(diagnostics, path, "name the files in it, such as .csv, .tsv, .jsonl or .conll",
                           "is a directory, not a table");
    if (!file_map(&reader->file, path, diagnostics)) return false;
    reader->bytes = (const char *)reader->file.bytes;
    reader->size = reader->file.size;
    bool ok = table_unwrap(path, reader->bytes, reader->size, &reader->unpacked, diagnostics);
    if (reader->unpacked.size) reader->bytes = buffer_text(&reader->unpacked), reader->size = reader->unpacked.size;
    ok = ok && begin_text(reader);
    if (!ok) table_close(reader);
    return ok;
}

/* Converts what iconv has not converted yet; false at what it cannot convert. */
static bool convert(iconv_t converter, char **from, size_t *rest, Buffer *text)
{
    char block[1 << 14];
    for (size_t failed = 1; *rest && failed;) {
        char *to = block;
        size_t room = sizeof block;
        failed = iconv(converter, from, rest, &to, &room) == (size_t)-1;
        buffer_append(text, block, sizeof block - room);
        if (failed && errno != E2BIG) return false;
    }
    return true;
}

bool table_decode(TableReader *reader, const char *encoding)
{
    size_t rest = reader->size;
    char *from = (char *)reader->bytes;
    iconv_t converter = iconv_open("UTF-8", encoding);
    if (converter == (iconv_t)-1)
        return usage_error(reader->diagnostics, "for example --encoding cp1252, utf-16 or latin1",
                           "skycc does not know the encoding '%s'", encoding);
    bool ok = convert(converter, &from, &rest, &reader->decoded);
    iconv_close(converter);
    if (!ok)
        return input_error(reader->diagnostics, reader->path, "leave --encoding out, or try another one",
                           "is not %s: byte %zu is 0x%02x", encoding, reader->size - rest + 1, (unsigned char)*from);
    reader->bytes = buffer_text(&reader->decoded);
    reader->size = reader->decoded.size;
    return begin_text(reader);
}

void table_select(TableReader *reader, const char *const *members, size_t count)
{
    reader->members = members;
    reader->member_count = count;
}

/* An error in the current row, at a byte of it where that is known: columns count bytes from 1. */
static bool error_at(TableReader *reader, int line, size_t column, const char *hint, const char *message)
{
    reader->wrong_rows += reader->last_wrong != line;
    reader->last_wrong = line;
    if (reader->errors++ >= MAX_REPORTED) return false;
    Place place = {.file = reader->path, .line = line, .column = (int)column};
    return diagnostics_error(reader->diagnostics, EXIT_BAD_INPUT, place, hint, "%s", message);
}

bool table_error(TableReader *reader, const char *hint, const char *format, ...)
{
    FREED_WITH(arena_free) Arena arena = {0};
    va_list arguments;
    va_start(arguments, format);
    error_at(reader, reader->line, 0, hint, arena_format_va(&arena, format, arguments));
    va_end(arguments);
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

/* Whether the first line, of this length, is a whole CSV or TSV of an old Mac. */
static bool is_one_line(const TableReader *reader, const char *text, size_t length)
{
    return reader->line == 1 && (reader->format == TABLE_CSV || reader->format == TABLE_TSV) &&
           reader->position >= reader->size && memchr(text, '\r', length);
}

static bool check_line(TableReader *reader, const char *text, size_t length)
{
    size_t valid = valid_bytes(text, length);
    const char *hint = "if a spreadsheet on Windows wrote it: --encoding cp1252";
    bool wide = reader->line == 1 && is_utf16(reader);
    if (is_one_line(reader, text, length))
        return table_error(reader, "write it again with usual ends of lines, as tr '\\r' '\\n' does",
                           "its lines end with carriage returns alone");
    if (!wide && valid == length) return true;
    reader->position = reader->size; /* the other lines would say the same */
    if (wide) return table_error(reader, "--encoding utf-16", "looks like UTF-16");
    return table_error(reader, hint, "is not UTF-8: byte %zu of the line is 0x%02x", valid + 1,
                       (unsigned char)text[valid]);
}

static void add_field(TableReader *reader, const char *text, size_t length)
{
    TableField field = {.text = text, .length = length};
    array_push(reader->fields, reader->field_count, reader->field_capacity, field);
}

/* Fields that were added in order to `unquoted`, which no longer moves. */
static void point_fields(TableReader *reader)
{
    const char *bytes = buffer_text(&reader->unquoted);
    for (size_t i = 0; i < reader->field_count; i++) {
        if (!reader->fields[i].text) continue;
        reader->fields[i].text = bytes;
        bytes += reader->fields[i].length;
    }
}

/* ---- TSV ---- */

static bool split_at_tabs(TableReader *reader, const char *text, size_t length)
{
    for (const char *end = text + length;; text++) {
        const char *tab = memchr(text, '\t', (size_t)(end - text));
        add_field(reader, text, (size_t)((tab ? tab : end) - text));
        if (!tab) return true;
        text = tab;
    }
}

/* ---- JSON lines ---- */

/* A real stays one when it is whole. */
static void add_real(TableReader *reader, double value)
{
    size_t start = reader->unquoted.size;
    json_print_number(&reader->unquoted, value);
    if (!strpbrk(buffer_text(&reader->unquoted) + start, ".eE")) buffer_append(&reader->unquoted, ".0", 2);
}

static bool add_member(TableReader *reader, const json_t *object, const char *name)
{
    json_t *value = json_object_get(object, name);
    size_t start = reader->unquoted.size;
    if (!value || json_is_null(value)) {
        add_field(reader, NULL, 0);
        return true;
    }
    if (json_is_string(value))
        buffer_append(&reader->unquoted, json_string_value(value), json_string_length(value));
    else if (json_is_integer(value))
        buffer_print(&reader->unquoted, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    else if (json_is_real(value))
        add_real(reader, json_real_value(value));
    else if (json_is_boolean(value))
        buffer_print(&reader->unquoted, "%s", json_is_true(value) ? "true" : "false");
    else if (!json_append(&reader->unquoted, value, JSON_COMPACT))
        return table_error(reader, NULL, "'%s' is nested too deeply", name);
    add_field(reader, "", reader->unquoted.size - start);
    reader->fields[reader->field_count - 1].nested = json_is_array(value) || json_is_object(value);
    return true;
}

static bool split_object(TableReader *reader, const char *text, size_t length)
{
    json_error_t error;
    json_decref(reader->object);
    json_t *object = reader->object =
        json_loadb(text, length, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY, &error);
    if (!object)
        return error_at(reader, reader->line, error.column > 0 ? (size_t)error.column : 0,
                        "every line is one whole object: jq -c . writes it so", error.text);
    bool ok = json_is_object(object) || table_error(reader,
                                                    "every line of a JSON lines file is an object: {\"NAME\": "
                                                    "VALUE, ...}",
                                                    "is not a JSON object");
    for (size_t i = 0; ok && i < reader->member_count; i++) ok = add_member(reader, object, reader->members[i]);
    point_fields(reader);
    return ok;
}

/* The next line without its end, which must be UTF-8; NULL: there is none. */
static const char *take_line(TableReader *reader, size_t *length)
{
    if (reader->position >= reader->size) return NULL;
    const char *text = reader->bytes + reader->position;
    size_t rest = reader->size - reader->position;
    const char *newline = memchr(text, '\n', rest);
    *length = newline ? (size_t)(newline - text) : rest;
    reader->position += *length + (newline != NULL);
    reader->line = reader->next_line++;
    if (*length && text[*length - 1] == '\r') --*length;
    if (!check_line(reader, text, *length)) *length = 0;
    return text;
}

static bool next_line(TableReader *reader)
{
    size_t length;
    for (const char *text; (text = take_line(reader, &length));) {
        reader->field_count = 0;
        reader->unquoted.size = 0;
        while (reader->format == TABLE_JSONL && length && strchr(" \t", text[length - 1])) length--;
        if (length &&
            (reader->format == TABLE_TSV ? split_at_tabs(reader, text, length) : split_object(reader, text, length)))
            return true;
    }
    return false;
}

/* ---- CoNLL ---- */

/* The next sentence: its words, and their tags if lines have several columns. */
static bool next_sentence(TableReader *reader)
{
    static const char blanks[] = " \t";
    FREED_WITH(buffer_free) Buffer tags = {0};
    size_t length, words = 0;
    int first = 0;
    bool tagged = false;
    reader->unquoted.size = reader->field_count = 0;
    for (const char *text; (text = take_line(reader, &length));) {
        while (length && strchr(blanks, text[length - 1])) length--;
        size_t word = 0, tag = length;
        while (word < length && !strchr(blanks, text[word])) word++;
        while (tag && !strchr(blanks, text[tag - 1])) tag--;
        if (!word && words) break;
        if (!word || (word == strlen("-DOCSTART-") && memcmp(text, "-DOCSTART-", word) == 0)) continue;
        if (words && tagged != (tag > 0)) table_error(reader, NULL, "the line has another number of columns");
        if (!words++) first = reader->line;
        tagged = tag > 0;
        buffer_append(&reader->unquoted, text, word);
        buffer_append(&reader->unquoted, "\n", 1);
        if (!tagged) continue;
        buffer_append(&tags, text + tag, length - tag);
        buffer_append(&tags, "\n", 1);
    }
    add_field(reader, "", reader->unquoted.size);
    if (tagged) add_field(reader, "", tags.size);
    buffer_append(&reader->unquoted, tags.bytes, tags.size);
    point_fields(reader);
    if (words) reader->line = first;
    return words > 0;
}

/* ---- CSV ---- */

/* The end of the record that begins at `text`: the first line end outside of quotes. *lines: its line ends. */
static const char *record_end(const char *text, const char *end, int *lines)
{
    bool quoted = false;
    for (*lines = 0; text < end; text++) {
        quoted ^= *text == '"';
        if (*text != '\n') continue;
        ++*lines;
        if (!quoted) return text;
    }
    return end;
}

/* Reads the quoted field at *text into `unquoted` and moves *text past it. */
static bool add_quoted(TableReader *reader, const char *start, const char **text, const char *end)
{
    const char *open = *text, *at = open + 1;
    size_t before = reader->unquoted.size;
    for (;;) {
        const char *quote = memchr(at, '"', (size_t)(end - at));
        if (!quote)
            return error_at(reader, reader->line, (size_t)(open - start) + 1,
                            "double the quotes inside a quoted field; in a file called .tsv quotes are text",
                            "the quote that opens here is never closed");
        bool doubled = quote + 1 < end && quote[1] == '"';
        buffer_append(&reader->unquoted, at, (size_t)(quote - at) + doubled);
        at = quote + 1 + doubled;
        if (!doubled) break;
    }
    if (at < end && *at != ',')
        return error_at(reader, reader->line, (size_t)(at - start) + 1, "double the quotes inside a quoted field",
                        "text follows a closing quote");
    add_field(reader, "", reader->unquoted.size - before);
    *text = at;
    return true;
}

static bool split_record(TableReader *reader, const char *text, const char *end)
{
    for (const char *start = text;; text++) {
        if (text < end && *text == '"') {
            if (!add_quoted(reader, start, &text, end)) return false;
        } else {
            const char *comma = memchr(text, ',', (size_t)(end - text)), *stop = comma ? comma : end;
            const char *quote = memchr(text, '"', (size_t)(stop - text));
            if (quote)
                return error_at(reader, reader->line, (size_t)(quote - start) + 1,
                                "put the whole field in quotes and double the quotes in it",
                                "a quote inside a field that does not begin with one");
            size_t before = reader->unquoted.size;
            buffer_append(&reader->unquoted, text, (size_t)(stop - text));
            add_field(reader, "", reader->unquoted.size - before);
            text = stop;
        }
        if (text >= end) break;
    }
    point_fields(reader);
    return true;
}

static bool next_record(TableReader *reader)
{
    while (reader->position < reader->size) {
        const char *text = reader->bytes + reader->position, *end = reader->bytes + reader->size;
        int lines;
        const char *stop = record_end(text, end, &lines);
        reader->position += (size_t)(stop - text) + (stop < end);
        reader->line = reader->next_line;
        reader->next_line += lines;
        reader->field_count = 0;
        reader->unquoted.size = 0;
        if (stop > text && stop[-1] == '\r') stop--;
        if (!check_line(reader, text, (size_t)(stop - text)) || stop == text) continue;
        if (split_record(reader, text, stop)) return true;
    }
    return false;
}

bool table_next(TableReader *reader)
{
    while (reader->format == TABLE_CSV     ? next_record(reader)
           : reader->format == TABLE_CONLL ? next_sentence(reader)
                                           : next_line(reader)) {
        if (!reader->width || reader->field_count == reader->width) return true;
        table_error(reader,
                    reader->format == TABLE_CSV   ? "put fields with commas in them in quotes"
                    : reader->format == TABLE_TSV ? "a tab ends a field of a .tsv file, also between quotes"
                                                  : NULL,
                    "has %zu columns where the first line has %zu", reader->field_count, reader->width);
    }
    if (reader->errors > MAX_REPORTED)
        input_error(reader->diagnostics, reader->path, NULL, "%d rows are wrong; above are the first %d errors",
                    reader->wrong_rows, MAX_REPORTED);
    return false;
}

bool table_field_is(TableField field, const char *text)
{
    return field.length == strlen(text) && memcmp(field.text, text, field.length) == 0;
}

/* Where the first name ends. */
static const char *name_end(const char *list)
{
    while (*list && *list != ',') list += list[0] == '\\' && list[1] == ',' ? 2 : 1;
    return list;
}

const char *table_next_name(const char **list, Arena *arena)
{
    if (!*list) return NULL;
    const char *end = name_end(*list);
    char *name = arena_string_n(arena, *list, (size_t)(end - *list)), *to = name;
    for (const char *at = *list; at < end; at++)
        if (at[0] != '\\' || at[1] != ',') *to++ = *at;
    *to = '\0';
    *list = *end ? end + 1 : NULL;
    return name;
}

bool table_names_several(const char *list) { return *name_end(list) == ','; }

void table_close(TableReader *reader)
{
    file_unmap_input(&reader->file);
    free(reader->fields);
    json_decref(reader->object);
    buffer_free(&reader->unquoted);
    buffer_free(&reader->decoded);
    buffer_free(&reader->unpacked);
    *reader = (TableReader){0};
}
