#include "driver/finetune/table_survey.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/units.h"

/* ---- Columns ---- */

static void add_column(TableSurvey *survey, const char *name, size_t length)
{
    SurveyColumn column = {.name = arena_string_n(&survey->arena, name, length)};
    array_push(survey->columns, survey->count, survey->capacity, column);
}

/* JSON lines have no header: the columns are the members of the first object. */
static bool name_members(TableSurvey *survey, TableReader *reader, Diagnostics *diagnostics)
{
    const char *text = (const char *)reader->file.bytes;
    size_t size = reader->file.size, begin = 0;
    while (begin < size && isspace((unsigned char)text[begin])) begin++;
    const char *end = memchr(text + begin, '\n', size - begin);
    json_t *object = json_loadb(text + begin, end ? (size_t)(end - text) - begin : size - begin, 0, NULL);
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value) add_column(survey, key, strlen(key));
    json_decref(object);
    return survey->count || input_error(diagnostics, reader->path, "write one object per line: {\"text\": ..., ...}",
                                        "does not begin with a JSON object");
}

/* Finds the columns of a table, or takes the first table's. After this the reader stands before the first row. */
static bool open_table(TableSurvey *survey, TableReader *reader, size_t *at, Diagnostics *diagnostics)
{
    bool first = !survey->count, lines = reader->format == TABLE_JSONL;
    if (lines && first && !name_members(survey, reader, diagnostics)) return false;
    if (!lines && !table_next(reader))
        return reader->errors == 0 && input_error(diagnostics, reader->path, "its first line names the columns",
                                                  reader->file.size ? "has no rows" : "is empty");
    for (size_t i = 0; !lines && first && i < reader->field_count; i++)
        add_column(survey, reader->fields[i].text, reader->fields[i].length);
    const char **names = arena_new_array(&survey->arena, const char *, survey->count);
    for (size_t c = 0; c < survey->count; c++) {
        names[c] = survey->columns[c].name, at[c] = lines ? c : 0;
        while (!lines && at[c] < reader->field_count && !table_field_is(reader->fields[at[c]], names[c])) at[c]++;
        if (!lines && at[c] == reader->field_count)
            return input_error(diagnostics, reader->path, "several tables are read as one",
                               "has no column '%s', which the first table has", names[c]);
    }
    if (lines) table_select(reader, names, survey->count);
    return true;
}

SurveyColumn *table_survey_column(const TableSurvey *survey, const char *name)
{
    for (size_t i = 0; i < survey->count; i++)
        if (strcmp(survey->columns[i].name, name) == 0) return &survey->columns[i];
    return NULL;
}

const char *table_survey_names(TableSurvey *survey)
{
    const char *text = "";
    for (size_t i = 0; i < survey->count && i < 40; i++)
        text = arena_format(&survey->arena, "%s%s%s", text, i ? ", " : "", survey->columns[i].name);
    return text;
}

/* ---- Fields ---- */

static void take_field(TableSurvey *survey, SurveyColumn *column, TableField field)
{
    if (!field.text || !field.length) return;
    char *text = arena_string_n(&survey->arena, field.text, field.length);
    double number;
    bool real = field.length < 64 && units_parse_number(text, &number);
    column->filled++;
    column->lists += text[0] == '[' && text[field.length - 1] == ']';
    for (const char *c = text; *c; c++)
        column->words += c == text || (isspace((unsigned char)c[-1]) && !isspace((unsigned char)*c));
    if (real) {
        if (!column->numbers || number < column->least) column->least = number;
        if (!column->numbers || number > column->greatest) column->greatest = number;
        column->numbers++;
        column->whole += !text[strspn(text, "+-0123456789")];
        column->binary += strcmp(text, "0") == 0 || strcmp(text, "1") == 0;
    }
    if (column->distinct <= SURVEY_MOST_VALUES && string_map_add(&column->values, text, 0)) column->distinct++;
}

static bool each_row(TableSurvey *survey, const TextList *tables, TableFormat format,
                     bool (*take)(void *context, TableReader *reader, const size_t *at), void *context,
                     Diagnostics *diagnostics)
{
    bool ok = true;
    for (size_t t = 0; ok && t < tables->count; t++) {
        TableReader reader;
        size_t at[1024];
        if (!table_open(&reader, tables->items[t], format, diagnostics)) return false;
        ok = open_table(survey, &reader, at, diagnostics);
        while (ok && table_next(&reader)) ok = take(context, &reader, at);
        ok &= reader.errors == 0;
        table_close(&reader);
    }
    return ok;
}

static bool take_row(void *context, TableReader *reader, const size_t *at)
{
    TableSurvey *survey = context;
    for (size_t c = 0; c < survey->count; c++)
        if (at[c] < reader->field_count) take_field(survey, &survey->columns[c], reader->fields[at[c]]);
    survey->rows++;
    return true;
}

bool table_survey_read(TableSurvey *survey, const TextList *tables, TableFormat format, Diagnostics *diagnostics)
{
    *survey = (TableSurvey){0};
    return each_row(survey, tables, format, take_row, survey, diagnostics) &&
           (survey->rows ||
            input_error(diagnostics, tables->items[0], "its first line names the columns, each further line is a row",
                        "has no rows after its header"));
}

void table_survey_free(TableSurvey *survey)
{
    for (size_t i = 0; i < survey->count; i++) string_map_free(&survey->columns[i].values);
    free(survey->columns);
    arena_free(&survey->arena);
}

/* ---- Lengths ---- */

typedef struct Lengths {
    Tokenizer *tokenizer;
    size_t columns[2], count;
    TokenIds ids;
    uint32_t *items;
    size_t rows, capacity;
} Lengths;

static bool take_length(void *context, TableReader *reader, const size_t *at)
{
    Lengths *lengths = context;
    lengths->ids.count = 0;
    for (size_t i = 0; i < lengths->count; i++) {
        size_t place = at[lengths->columns[i]];
        if (place >= reader->field_count || !reader->fields[place].text) continue; /* tokenize reports it */
        const TableField field = reader->fields[place];
        tokenizer_encode(lengths->tokenizer, field.text, field.length, &lengths->ids);
    }
    size_t frame = tokenizer_least_length(lengths->tokenizer, lengths->count > 1) - lengths->count;
    array_push(lengths->items, lengths->rows, lengths->capacity, (uint32_t)(frame + lengths->ids.count));
    return true;
}

static int ascending(const void *a, const void *b)
{
    uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;
    return (left > right) - (left < right);
}

uint32_t *table_survey_lengths(const TableSurvey *survey, const TextList *tables, TableFormat format,
                               const char *const *columns, size_t count, Tokenizer *tokenizer, Diagnostics *diagnostics)
{
    Lengths lengths = {.tokenizer = tokenizer, .count = count};
    for (size_t i = 0; i < count; i++)
        lengths.columns[i] = (size_t)(table_survey_column(survey, columns[i]) - survey->columns);
    TableSurvey again = {.columns = survey->columns, .count = survey->count};
    bool ok = each_row(&again, tables, format, take_length, &lengths, diagnostics);
    arena_free(&again.arena);
    free(lengths.ids.items);
    if (ok)
        qsort(lengths.items, lengths.rows, sizeof *lengths.items, ascending);
    else
        free(lengths.items), lengths.items = NULL;
    return lengths.items;
}
