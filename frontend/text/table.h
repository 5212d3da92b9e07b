/* Tables of text, row by row: UTF-8, perhaps with a byte order mark or CRLF.
 *
 * TSV as in GLUE: one row per line, tabs between fields, quotes are text. CSV as in RFC 4180: commas between fields; a
 * field with commas, line ends or quotes is quoted and its quotes are doubled. JSON lines: an object per line; numbers,
 * true and false become text, lists and objects stay JSON, and null counts as absent. CoNLL: a word per line, with its
 * columns between blanks, and empty lines between sentences; a row is a sentence with the first and the last column,
 * whose items are on lines. */
#ifndef FRONTEND_TEXT_TABLE_H
#define FRONTEND_TEXT_TABLE_H

#include "base/buffer.h"
#include "base/file.h"
#include "base/json.h"

typedef enum TableFormat { TABLE_BY_SUFFIX, TABLE_TSV, TABLE_CSV, TABLE_JSONL, TABLE_CONLL } TableFormat;

typedef struct TableField {
    const char *text; /* in the mapping or of the reader, until the next row; not terminated; NULL: absent */
    size_t length;
    bool nested; /* of JSON lines: a list or an object, as JSON */
} TableField;

typedef struct TableReader {
    MappedFile file;
    Buffer unpacked; /* what a .gz holds; the rows of a JSON array as lines */
    Buffer decoded;  /* its text in UTF-8, if it has another encoding */
    const char *bytes;
    size_t size;      /* of the last of these that there is */
    const char *path; /* for messages */
    TableFormat format;
    Diagnostics *diagnostics;
    size_t position;
    size_t width; /* after the first row, which the caller looks at: how many fields all others must have; 0: any */
    int line, next_line; /* of the current row, counted from 1, and of the next */
    TableField *fields;  /* of the current row */
    size_t field_count, field_capacity;
    Buffer unquoted;            /* texts of the current row that the file spells differently */
    int errors;                 /* of malformed rows so far */
    int wrong_rows, last_wrong; /* how many rows have errors; the line of the last one */
    /* Of JSON lines: the members that fields are. */
    const char *const *members;
    size_t member_count;
    json_t *object; /* the current row */
} TableReader;

/* "-": standard input. By suffix, perhaps before .gz: .csv; .jsonl, .json or .ndjson; .conll, .bio or .iob2; else TSV.
 * A JSON file may also be an array of objects. Parquet files, workbooks and archives are refused by name. */
bool table_open(TableReader *reader, const char *path, TableFormat format, Diagnostics *diagnostics);
/* Before the first row: the table is not UTF-8, but has this encoding, by the names of iconv. Reports an unknown
 * name, and what has not this encoding. */
bool table_decode(TableReader *reader, const char *encoding);
/* For JSON lines, before the first row: its fields are these members, in this order. The names are kept. */
void table_select(TableReader *reader, const char *const *members, size_t count);
/* The next row into reader->fields; false at the end. Blank lines are skipped, and so are malformed rows, which are
 * reported. */
bool table_next(TableReader *reader);
/* Reports an error in the current row, up to a limit, and counts it; the end of the table says how many rows have one
 * where not all were reported. Returns false. */
bool table_error(TableReader *reader, const char *hint, const char *format, ...) __attribute__((format(printf, 3, 4)));
bool table_field_is(TableField field, const char *text);
/* Cuts the first name off a list with commas between; "\\," is a comma of the name. NULL: none is left. */
const char *table_next_name(const char **list, Arena *arena);
/* Whether it holds several names. */
bool table_names_several(const char *list);
void table_close(TableReader *reader);

#endif
