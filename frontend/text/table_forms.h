/* Tables that are wrapped: compressed with gzip, or an array of JSON objects instead of lines. And what is none. */
#ifndef FRONTEND_TEXT_TABLE_FORMS_H
#define FRONTEND_TEXT_TABLE_FORMS_H

#include "base/buffer.h"
#include "base/diagnostics.h"

/* The length of the path without ".gz". */
size_t table_path_length(const char *path);
/* Refuses Parquet, workbooks and archives by name, and unpacks gzip. What is neither leaves `unpacked` empty. */
bool table_unwrap(const char *path, const char *bytes, size_t size, Buffer *unpacked, Diagnostics *diagnostics);
/* Of JSON in UTF-8: [{...}, ...] and {"data": [{...}, ...]} become lines, whose numbers are those of the rows. Sets
 * *split where that is so. */
bool table_split_array(const char *path, const char *text, size_t size, Buffer *lines, bool *split,
                       Diagnostics *diagnostics);

#endif
