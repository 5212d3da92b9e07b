#include "driver/predict/text_rows.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "frontend/huggingface/folder.h"
#include "frontend/text/cells.h"

enum { MOST_TOKENIZER_BYTES = 1 << 28 };

static const char *const input_names[ROW_TENSORS] = {"input_ids",   "attention_mask",   "token_type_ids",
                                                     "input_ids_2", "attention_mask_2", "token_type_ids_2"};

/* ---- Tokenizers ---- */

/* Whether tokenizer_config.json says that capitals are kept. False if it cannot be read. */
static bool read_case(const char *folder, const char *path, bool *cased, Diagnostics *diagnostics)
{
    FolderEntry entry = folder_find(folder, "tokenizer_config.json", MOST_TOKENIZER_BYTES, diagnostics);
    if (entry != FOLDER_PRESENT) return entry == FOLDER_ABSENT;
    json_t *config = json_read_reals(path, diagnostics);
    if (!config) return false;
    if (json_is_false(json_object_get(config, "do_lower_case"))) *cased = true;
    json_decref(config);
    return true;
}

static Tokenizer *open_in_folder(const char *folder, bool cased, Arena *arena, bool *absent, Diagnostics *diagnostics)
{
    FolderEntry json = folder_find(folder, "tokenizer.json", MOST_TOKENIZER_BYTES, diagnostics);
    if (json == FOLDER_PRESENT)
        return tokenizer_open_json(arena_format(arena, "%s/tokenizer.json", folder), diagnostics);
    if (json == FOLDER_REFUSED) return NULL;
    FolderEntry vocabulary = folder_find(folder, "vocab.txt", MOST_TOKENIZER_BYTES, diagnostics);
    *absent = vocabulary == FOLDER_ABSENT;
    const char *config = arena_format(arena, "%s/tokenizer_config.json", folder);
    if (vocabulary != FOLDER_PRESENT || !read_case(folder, config, &cased, diagnostics)) return NULL;
    return tokenizer_open(arena_format(arena, "%s/vocab.txt", folder), !cased, diagnostics);
}

Tokenizer *text_tokenizer_of_folder(const char *folder, const char *model, bool cased, Diagnostics *diagnostics)
{
    FREED_WITH(arena_free) Arena arena = {0};
    struct stat status;
    bool there = folder && stat(folder, &status) == 0 && S_ISDIR(status.st_mode), absent = !there;
    Tokenizer *tokenizer = there ? open_in_folder(folder, cased, &arena, &absent, diagnostics) : NULL;
    if (absent)
        input_error(diagnostics, model, "give its tokenizer.json or vocabulary with --tokenizer FILE",
                    "has no tokenizer: %s%s",
                    there    ? "there is neither tokenizer.json nor vocab.txt in "
                    : folder ? "the folder it was imported from is gone: "
                             : "it was not imported from a folder",
                    folder ? folder : "");
    return tokenizer;
}

/* ---- A text, or a pair ---- */

static bool encode(Tokenizer *tokenizer, const char *const texts[2], TokenIds ids[2], Diagnostics *diagnostics)
{
    for (int t = 0; t < 2; t++) {
        const char *problem = texts[t] ? tokenizer_encode(tokenizer, texts[t], strlen(texts[t]), &ids[t]) : NULL;
        if (problem) return usage_error(diagnostics, NULL, "the %s %s", t ? "second text" : "text", problem);
    }
    return true;
}

static int64_t tokens_needed(const Tokenizer *tokenizer, const TokenIds ids[2], bool pair)
{
    int64_t least = (int64_t)tokenizer_least_length(tokenizer, pair);
    int64_t needed = least - (pair ? 2 : 1) + (int64_t)ids[0].count + (int64_t)ids[1].count;
    return needed < least ? least : needed;
}

/* Fills `rows` from ids[0] and ids[1], or one row from both. */
static void frame(TextRows *rows, const Tokenizer *tokenizer, const TokenIds rows_ids[2][2], bool pair,
                  Diagnostics *diagnostics)
{
    int32_t *values[3];
    size_t width = (size_t)rows->width;
    for (int i = 0; i < 3; i++) {
        values[i] = arena_new_array(&rows->arena, int32_t, (size_t)rows->count * width);
        rows->tensors[i] = (RowTensor){input_names[i], DTYPE_I32, values[i]};
    }
    for (int64_t r = 0; r < rows->count; r++) {
        bool cut;
        size_t at = (size_t)r * width;
        const TokenRow row = {values[0] + at, values[1] + at, values[2] + at, NULL, width};
        int64_t used = (int64_t)tokenizer_frame(tokenizer, rows_ids[r], pair, &row, &cut);
        if (used > rows->longest) rows->longest = used;
        if (cut)
            diagnostics_warning(diagnostics, PLACE_NONE, "raise --max-length to read more of them",
                                "the text was cut to %lld tokens; it has %lld", (long long)width,
                                (long long)tokens_needed(tokenizer, rows_ids[r], pair));
    }
}

bool text_rows_encode(TextRows *rows, Tokenizer *tokenizer, const char *const texts[2], bool apart, int64_t width,
                      int64_t most, Diagnostics *diagnostics)
{
    *rows = (TextRows){.count = apart && texts[1] ? 2 : 1};
    TokenIds ids[2] = {0};
    bool ok = encode(tokenizer, texts, ids, diagnostics), pair = texts[1] && !apart;
    const TokenIds row_ids[2][2] = {{ids[0], pair ? ids[1] : (TokenIds){0}}, {ids[1], {0}}};
    int64_t least = (int64_t)tokenizer_least_length(tokenizer, pair), needed = 0;
    rows->texts = arena_allocate(&rows->arena, 2 * sizeof *rows->texts);
    for (int64_t r = 0; ok && r < rows->count; r++) {
        int64_t own = tokens_needed(tokenizer, row_ids[r], pair);
        if (own > needed) needed = own;
        rows->texts[r][0] = texts[r], rows->texts[r][1] = pair ? texts[1] : NULL;
    }
    rows->width = width > 0 ? width : needed < most ? needed : most;
    if (ok && rows->width < least)
        ok = usage_error(diagnostics, NULL, "%lld tokens leave no room for text: this tokenizer needs %lld",
                         (long long)rows->width, (long long)least);
    if (ok) frame(rows, tokenizer, row_ids, pair, diagnostics);
    for (int t = 0; t < 2; t++) free(ids[t].items);
    return ok;
}

/* ---- Tables ---- */

/* Finds the columns by the first line; false if one is missing. */
static bool find_columns(const TableReader *reader, const char *const *names, size_t count, size_t *at)
{
    for (size_t n = 0; n < count; n++) {
        at[n] = 0;
        while (at[n] < reader->field_count && !table_field_is(reader->fields[at[n]], names[n])) at[n]++;
        if (at[n] == reader->field_count) return false;
    }
    return true;
}

/* The words of a list become a text, with blanks between. */
static bool take_words(TextRows *rows, int64_t row, TableField field, TableFormat format)
{
    json_auto_t *list = cell_words(field, format);
    ListedWords *words = &rows->words[row];
    FREED_WITH(buffer_free) Buffer text = {0};
    char number[32];
    bool ok = list != NULL;
    words->ends = arena_new_array(&rows->arena, size_t, json_array_size(list));
    for (; ok && words->count < json_array_size(list); words->count++) {
        const char *word = cell_item(json_array_get(list, words->count), number);
        ok = word != NULL;
        if (ok) buffer_print(&text, "%s%s", words->count ? " " : "", word);
        words->ends[words->count] = text.size;
    }
    rows->texts[row][0] = arena_string_n(&rows->arena, buffer_text(&text), text.size);
    return ok;
}

static bool read_texts(TextRows *rows, TableReader *reader, const char *const *names, size_t count)
{
    size_t at[2] = {0, 1};
    int64_t row = 0;
    if (reader->format == TABLE_JSONL)
        table_select(reader, names, count);
    else if (reader->format != TABLE_CONLL && (!table_next(reader) || !find_columns(reader, names, count, at)))
        return false;
    for (; row < rows->count && table_next(reader); row++)
        for (size_t n = 0; n < count; n++) {
            if (at[n] >= reader->field_count || !reader->fields[at[n]].text) return false;
            const TableField field = reader->fields[at[n]];
            if (rows->words && !take_words(rows, row, field, reader->format)) return false;
            if (!rows->words) rows->texts[row][n] = arena_string_n(&rows->arena, field.text, field.length);
        }
    return row == rows->count && !table_next(reader);
}

bool text_rows_read_texts(TextRows *rows, const char *table, const char *columns, bool listed, Diagnostics *diagnostics)
{
    FREED_WITH(table_close) TableReader reader = {0};
    const char *names[2] = {table_next_name(&columns, &rows->arena)};
    names[1] = table_next_name(&columns, &rows->arena);
    rows->texts = arena_allocate(&rows->arena, (size_t)rows->count * sizeof *rows->texts);
    if (listed) rows->words = arena_allocate(&rows->arena, (size_t)rows->count * sizeof *rows->words);
    if (!table_open(&reader, table, TABLE_BY_SUFFIX, diagnostics)) return false;
    bool ok = read_texts(rows, &reader, names, names[1] ? 2 : 1);
    return ok || input_error(diagnostics, table, NULL, "changed while it was read");
}

/* ---- Data sets ---- */

static bool add_tensor(TextRows *rows, int number, Diagnostics *diagnostics)
{
    const char *name = input_names[number];
    const SafeTensor *tensor = safetensors_find(&rows->data, name);
    if (!tensor && number > 0) return true;
    const char *problem = NULL;
    if (!tensor)
        problem = "is not there";
    else if (!dtype_is_integer(tensor->dtype))
        problem = "does not hold integers";
    else if (tensor->shape.rank != 2 || shape_elements(&tensor->shape) == 0)
        problem = "is not a table with one row per text";
    else if (number && (tensor->shape.dim[0] != rows->count || tensor->shape.dim[1] != rows->width))
        problem = "has a different shape from input_ids";
    if (problem)
        return diagnostics_error(diagnostics, EXIT_BAD_INPUT, (Place){.file = rows->file, .object = name},
                                 "make the data set with skycc tokenize", "%s", problem);
    rows->tensors[number] = (RowTensor){name, tensor->dtype, tensor->data};
    rows->count = tensor->shape.dim[0], rows->width = tensor->shape.dim[1];
    return true;
}

static int64_t longest_row(const TextRows *rows)
{
    int64_t longest = 1;
    if (!rows->tensors[1].data) return rows->width;
    for (int text = 0; text < 2; text++) {
        const RowTensor *mask = &rows->tensors[3 * text + 1];
        for (int64_t r = 0; mask->data && r < rows->count; r++)
            for (int64_t c = rows->width; c > longest; c--)
                if (element_as_integer(mask->dtype, mask->data, r * rows->width + c - 1)) longest = c;
    }
    return longest;
}

bool text_rows_open(TextRows *rows, const char *path, Diagnostics *diagnostics)
{
    *rows = (TextRows){.file = path};
    rows->open = safetensors_open(&rows->data, path, diagnostics);
    if (!rows->open) return false;
    for (int i = 0; i < ROW_TENSORS; i++)
        if (!add_tensor(rows, i, diagnostics)) return false;
    rows->longest = longest_row(rows);
    return true;
}

void text_rows_free(TextRows *rows)
{
    if (rows->open) safetensors_close(&rows->data);
    arena_free(&rows->arena);
}

const RowTensor *text_rows_find(const TextRows *rows, const char *name)
{
    for (int i = 0; i < ROW_TENSORS; i++)
        if (rows->tensors[i].data && strcmp(rows->tensors[i].name, name) == 0) return &rows->tensors[i];
    return NULL;
}

/* How many parts blanks make of the line. */
static int count_parts(const char *line, const char *end)
{
    int count = 0;
    for (bool inside = false; line < end && *line != '\n'; line++) {
        bool blank = *line == ' ' || *line == '\t' || *line == '\r';
        count += !blank && !inside;
        inside = !blank;
    }
    return count;
}

/* Whether the first lines are a word and its tag each, and name no column. */
static bool has_tagged_words(const char *text, const char *end, const char *column)
{
    const char *stop = memchr(text, '\n', (size_t)(end - text));
    if (!stop || memmem(text, (size_t)(stop - text), column, strlen(column))) return false;
    int first = count_parts(text, end), second = count_parts(stop + 1, end);
    return first > 1 && (!second || first == second);
}

const char *text_rows_suffix(const char *text, size_t size, const char *words)
{
    const char *stop = size ? memchr(text, '\n', size) : NULL;
    size_t header = stop ? (size_t)(stop - text) : size;
    if (size && *text && strchr("{[", *text)) return ".jsonl";
    if (header && words && has_tagged_words(text, text + size, words)) return ".conll";
    return header && !memchr(text, '\t', header) && memchr(text, ',', header) ? ".csv" : ".tsv";
}
