/* Reads JSON through jansson, with diagnostics that name the file and the path of the member. */
#ifndef BASE_JSON_H
#define BASE_JSON_H

#include <jansson.h>

#include "base/buffer.h"
#include "base/file.h"
#include "base/json_writer.h"

/* Parses a file ("-": standard input) of at most 1 GiB; duplicate keys are errors. NULL after reporting. Free with
 * json_decref. */
json_t *json_read(const char *path, Diagnostics *diagnostics);
/* The same, with all numbers as reals: a tokenizer_config.json often has a "model_max_length" of 10^30. */
json_t *json_read_reals(const char *path, Diagnostics *diagnostics);

/* A file whose one large table is read separately. The tree holds an empty array instead of the member, and `text` is
 * the array's text in the file, brackets included. Reading a table with json_scan_... is ten times as fast as building
 * a tree. Without such a member `text` is empty and the root is that of json_read. */
typedef struct JsonScan {
    const char *at, *end;
} JsonScan;

typedef struct JsonApart {
    json_t *root;
    JsonScan text; /* in `file` */
    MappedFile file;
} JsonApart;

bool json_read_apart(JsonApart *apart, const char *path, const char *key, Diagnostics *diagnostics);
void json_apart_free(JsonApart *apart);

/* Appends the value as jansson writes it with these flags; false if it cannot be written. */
bool json_append(Buffer *text, const json_t *value, size_t flags);

/* Each skips white space and takes one token, or returns false and leaves it: a bracket or comma; an integer; a string,
 * whose text is in the file as it stands there (with escapes, if it has any). */
bool json_scan_mark(JsonScan *scan, char mark);
bool json_scan_integer(JsonScan *scan, int64_t *value);
bool json_scan_string(JsonScan *scan, const char **text, size_t *length);

/* Members of `object`. `path` is where the object stands ("layers[3]"), for the message. The required forms report a
 * missing or ill-typed member and return false; the optional ones do not change *value when the member is absent.
 * Numbers must be finite. */
typedef struct JsonReader {
    const char *file;
    Diagnostics *diagnostics;
} JsonReader;

/* Reports what is wrong with the value at `path` (NULL: the document); false. */
bool json_refuse(JsonReader reader, const char *path, const char *reason);

bool json_read_string(JsonReader reader, const json_t *object, const char *path, const char *key, bool required,
                      const char **value);
bool json_read_number(JsonReader reader, const json_t *object, const char *path, const char *key, bool required,
                      double *value);
bool json_read_integer(JsonReader reader, const json_t *object, const char *path, const char *key, bool required,
                       int64_t *value);
bool json_get_array(JsonReader reader, const json_t *object, const char *path, const char *key, json_t **value);
bool json_get_object(JsonReader reader, const json_t *object, const char *path, const char *key, json_t **value);
#define json_get_string(reader, object, path, key, value) json_read_string(reader, object, path, key, true, value)
#define json_get_number(reader, object, path, key, value) json_read_number(reader, object, path, key, true, value)
#define json_get_integer(reader, object, path, key, value) json_read_integer(reader, object, path, key, true, value)
#define json_optional_string(reader, object, path, key, value) json_read_string(reader, object, path, key, false, value)
#define json_optional_number(reader, object, path, key, value) json_read_number(reader, object, path, key, false, value)
#define json_optional_integer(reader, object, path, key, value)                                                        \
    json_read_integer(reader, object, path, key, false, value)

#endif
