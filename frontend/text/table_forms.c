#include "frontend/text/table_forms.h"

#include <ctype.h>
#include <string.h>
#include <zlib.h>

#include "base/json.h"
#include "base/parts.h"

#define MOST_UNPACKED ((size_t)8 << 30)

size_t table_path_length(const char *path) { return text_stem(path, ".gz"); }

static bool unpack(const char *path, const char *bytes, size_t size, Buffer *unpacked, Diagnostics *diagnostics)
{
    char block[1 << 16];
    z_stream stream = {.next_in = (Bytef *)bytes, .avail_in = 0};
    size_t rest = size;
    int state = inflateInit2(&stream, 16 + MAX_WBITS) == Z_OK ? Z_OK : Z_MEM_ERROR;
    while (state == Z_OK && (rest || stream.avail_in) && unpacked->size <= MOST_UNPACKED) {
        if (!stream.avail_in) {
            stream.avail_in = rest < 1 << 30 ? (uInt)rest : 1 << 30;
            rest -= stream.avail_in;
        }
        stream.next_out = (Bytef *)block, stream.avail_out = sizeof block;
        state = inflate(&stream, Z_NO_FLUSH);
        buffer_append(unpacked, block, sizeof block - stream.avail_out);
        if (state == Z_STREAM_END && (rest || stream.avail_in)) state = inflateReset(&stream); /* several members */
    }
    inflateEnd(&stream);
    if (unpacked->size > MOST_UNPACKED)
        return input_error(diagnostics, path, "unpack it, and give its parts as several tables",
                           "unpacks to more than 8 GiB");
    if (state == Z_STREAM_END && !unpacked->size) return input_error(diagnostics, path, NULL, "is empty");
    return state == Z_STREAM_END ||
           input_error(diagnostics, path, "fetch it again, or try gzip -t",
                       state == Z_OK || state == Z_BUF_ERROR ? "is a gzip file that ends too early"
                                                             : "is not a gzip file");
}

bool table_unwrap(const char *path, const char *bytes, size_t size, Buffer *unpacked, Diagnostics *diagnostics)
{
    static const char web_page[] = "is a web page, not a table",
                      web_hint[] = "fetch the file itself: sites that show a file have a link to its raw form";
    static const struct {
        const char *bytes;
        size_t count;
        const char *problem, *hint;
    } others[] = {
        {"PAR1", 4, "is a Parquet file, which skycc does not read",
         "python3 -c 'import pandas, sys; pandas.read_parquet(sys.argv[1]).to_json(sys.argv[2], orient=\"records\", "
         "lines=True)' FILE.parquet FILE.jsonl"},
        {"ARROW1", 6, "is an Arrow file, which skycc does not read",
         "datasets.load_from_disk(FOLDER).to_json(\"FILE.jsonl\") in Python writes JSON lines"},
        {"PK\3\4", 4, "is a ZIP archive or a workbook",
         "save a workbook as CSV in UTF-8, or unpack the archive and give the table in it"},
        {"BZh", 3, "is compressed with bzip2", "unpack it with bunzip2; skycc reads .gz as it is"},
        {"\xfd"
         "7zXZ",
         5, "is compressed with xz", "unpack it with unxz; skycc reads .gz as it is"},
        {"<!DOCTYPE html", 14, web_page, web_hint},
        {"<!doctype html", 14, web_page, web_hint},
        {"<html", 5, web_page, web_hint},
        {"\x28\xb5\x2f\xfd", 4, "is compressed with zstd", "unpack it with unzstd; skycc reads .gz as it is"}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (size >= others[i].count && memcmp(bytes, others[i].bytes, others[i].count) == 0)
            return input_error(diagnostics, path, others[i].hint, "%s", others[i].problem);
    return size < 2 || memcmp(bytes, "\x1f\x8b", 2) != 0 || unpack(path, bytes, size, unpacked, diagnostics);
}

/* Whether the JSON is one object over several lines, or begins with its list of rows. */
static bool is_whole(const char *text, const char *end)
{
    const char *next = text + 1, *line = memchr(text, '\n', (size_t)(end - text));
    if (line && line[-1] == '}' && line + 1 < end && line[1] == '{') return false; /* lines with a member "data" */
    while (next < end && isspace((unsigned char)*next)) next++;
    return memchr(text, '\n', (size_t)(next - text)) || (end - next > 6 && memcmp(next, "\"data\"", 6) == 0);
}

bool table_split_array(const char *path, const char *text, size_t size, Buffer *lines, bool *split,
                       Diagnostics *diagnostics)
{
    const char *end = text + size;
    while (text < end && isspace((unsigned char)*text)) text++;
    bool array = text < end && *text == '[';
    *split = array || (text < end && *text == '{' && is_whole(text, end));
    if (!*split) return true;
    json_error_t error;
    json_t *root = json_loadb(text, (size_t)(end - text), JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    const json_t *rows = array ? root : json_object_get(root, "data"), *row;
    size_t i;
    bool ok = json_is_array(rows);
    if (!root)
        diagnostics_error(diagnostics, EXIT_BAD_INPUT,
                          (Place){.file = path, .line = error.line, .column = error.column},
                          "write an object per line, as jq -c . does, or one array of objects", "%s", error.text);
    else if (!ok)
        input_error(diagnostics, path, "write an object per line, or [{\"text\": ...}, ...]",
                    "is one JSON object without a list \"data\"");
    json_array_foreach(rows, i, row)
    {
        ok = ok && json_append(lines, row, JSON_COMPACT | JSON_ENCODE_ANY);
        buffer_append(lines, "\n", 1);
    }
    json_decref(root);
    return ok;
}
