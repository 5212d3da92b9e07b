/* Tab-separated text as GLUE has it: one row per line, no quoting, UTF-8, perhaps with a byte order mark or CRLF. */
#ifndef FRONTEND_TSV_H
#define FRONTEND_TSV_H

#include "base/file.h"

typedef struct TsvField {
    const char *text; /* in the mapping, not terminated */
    size_t length;
} TsvField;

typedef struct TsvReader {
    MappedFile file;
    const char *path; /* for messages */
    Diagnostics *diagnostics;
    size_t position;
    int line;         /* of the current row, counted from 1 */
    TsvField *fields; /* of the current row */
    size_t field_count, field_capacity;
    int errors; /* malformed lines so far */
} TsvReader;

/* "-": standard input. */
bool tsv_open(TsvReader *reader, const char *path, Diagnostics *diagnostics);
/* The next row into reader->fields; false at the end. Blank lines are skipped, and so are lines that are not UTF-8,
 * which are reported. */
bool tsv_next(TsvReader *reader);
/* Reports an error in the current row, up to a limit, and counts it. Returns false. */
bool tsv_error(TsvReader *reader, const char *hint, const char *format, ...) __attribute__((format(printf, 3, 4)));
bool tsv_field_is(TsvField field, const char *text);
void tsv_close(TsvReader *reader);

#endif
