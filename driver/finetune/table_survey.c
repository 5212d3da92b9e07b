#include "driver/finetune/table_survey.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/units.h"
#include "frontend/text/labels.h"

/* ---- Columns ---- */

static void add_column(TableSurvey *survey, const char *name, size_t length)
{
    SurveyColumn column = {.name = arena_string_n(&survey->arena, name, length), .most_values = SURVEY_MOST_VALUES};
    array_push(survey->columns, survey->count, survey->capacity, column);
}

/* JSON lines have no header: the columns are the members of all objects, which need not have each of them. */
static bool name_members(TableSurvey *survey, TableReader *reader, Diagnostics *diagnostics)
{
    const size_t begin = reader->position;
    const int line = reader->next_line;
    const char *key;
    json_t *value;
    while (survey->count <= SURVEY_MOST_COLUMNS && table_next(reader)) json_object_foreach(reader->object, key, value)
        {
            if (!table_survey_column(survey, key)) add_column(survey, key, strlen(key));
        }
    reader->position = begin, reader->next_line = line;
    return reader->errors == 0 &&
           (survey->count || input_error(diagnostics, reader->path, "write an object per line: {\"text\": ..., ...}",
                                         reader->size ? "has no rows" : "is empty"));
}

/* A header of one column, where another character than the format's separates. */
static bool check_separator(const TableReader *reader, Diagnostics *diagnostics)
{
    static const struct {
        char separator;
        const char *called, *hint;
    } others[] = {{';', "semicolons", "save it as CSV with commas between the columns"},
                  {'|', "bars", "save it as CSV with commas between the columns"},
                  {'\t', "tabs", "give the file a name that ends in .tsv"},
                  {',', "commas", "give the file a name that ends in .csv"}};
    const TableField *header = &reader->fields[0];
    for (size_t i = 0; reader->field_count == 1 && i < sizeof others / sizeof *others; i++)
        if (memchr(header->text, others[i].separator, header->length))
            return input_error(diagnostics, reader->path, others[i].hint,
                               "names one column, '%.*s': its columns seem to be between %s",
                               header->length < 60 ? (int)header->length : 60, header->text, others[i].called);
    return true;
}

/* Finds the columns of a table, or takes the first table's. After this the reader stands before the first row. */
static bool open_table(TableSurvey *survey, TableReader *reader, size_t *at, Diagnostics *diagnostics)
{
    bool first = !survey->count, lines = reader->format == TABLE_JSONL;
    if (reader->format == TABLE_CONLL) {
        for (size_t i = 0; i < 2; i++) {
            if (first) add_column(survey, i ? "ner_tags" : "tokens", i ? 8 : 6);
            at[i] = i;
        }
        return true;
    }
    if (lines && first && !name_members(survey, reader, diagnostics)) return false;
    if (!lines && !table_next(reader))
        return reader->errors == 0 && input_error(diagnostics, reader->path, "its first line names the columns",
                                                  reader->size ? "has no rows" : "is empty");
    if (!lines && !check_separator(reader, diagnostics)) return false;
    for (size_t i = 0; !lines && first && i < reader->field_count; i++)
        add_column(survey, reader->fields[i].text, reader->fields[i].length);
    if (survey->count > SURVEY_MOST_COLUMNS)
        return input_error(diagnostics, reader->path, NULL, "has %zu columns, more than %d", survey->count,
                           SURVEY_MOST_COLUMNS);
    const char **names = arena_new_array(&survey->arena, const char *, survey->count);
    for (size_t c = 0; c < survey->count; c++) {
        names[c] = survey->columns[c].name, at[c] = lines ? c : 0;
        while (!lines && at[c] < reader->field_count && !table_field_is(reader->fields[at[c]], names[c])) at[c]++;
        if (!lines && at[c] == reader->field_count)
            return input_error(diagnostics, reader->path, "several tables are read as one",
                               "has no column '%s', which the first table has", names[c]);
    }
    if (lines)
        table_select(reader, names, survey->count);
    else
        reader->width = reader->field_count;
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

static void take_value(TableSurvey *survey, SurveyColumn *column, const char *text)
{
    uint32_t *rows = column->distinct > column->most_values ? NULL : string_map_find(&column->values, text);
    if (rows) ++*rows;
    if (rows || column->distinct > column->most_values) return;
    string_map_add(&column->values, arena_string(&survey->arena, text), 1);
    column->distinct++;
}

#define BLANKS " \t\r\n"

/* ["a", "b"], or, with `cut`, words with blanks between. False if it is neither. */
static bool take_list(TableSurvey *survey, SurveyColumn *column, TableField field, bool cut)
{
    char number[32];
    json_auto_t *list = cut ? cell_list(field, BLANKS) : cell_read(field);
    if (!json_is_array(list)) return false;
    for (size_t i = 0; list && i < json_array_size(list); i++) {
        const char *item = cell_label(json_array_get(list, i), number);
        if (item) take_value(survey, column, item);
    }
    list_form_take(&column->form, list);
    column->lists++;
    return true;
}

static void take_number(SurveyColumn *column, const char *text, double number)
{
    if (!column->numbers || number < column->least) column->least = number;
    if (!column->numbers || number > column->greatest) column->greatest = number;
    column->numbers++;
    column->whole += !text[strspn(text, "+-0123456789")];
    column->integral += number == floor(number);
    column->binary += number == 0 || number == 1;
}

static void take_text(TableSurvey *survey, SurveyColumn *column, const char *text, const TableReader *reader)
{
    float truth;
    column->binary += label_is_truth(text, &truth);
    if (column->odd) return;
    column->odd = arena_string(&survey->arena, text);
    column->odd_place = (Place){.file = reader->path, .line = reader->line};
}

static void take_field(TableSurvey *survey, SurveyColumn *column, const TableReader *reader, TableField field, bool cut)
{
    if (!field.text || !field.length) {
        if (!column->empty_place.file) column->empty_place = (Place){.file = reader->path, .line = reader->line};
        return;
    }
    column->filled++;
    column->objects += field.nested && field.text[0] == '{';
    for (size_t i = 0; i < field.length; i++)
        column->words += !isspace((unsigned char)field.text[i]) && (!i || isspace((unsigned char)field.text[i - 1]));
    if (take_list(survey, column, field, cut)) return;
    FREED char *text = strndup(field.text, field.length);
    if (!text) memory_exhausted();
    double number;
    const char *unsigned_text = text + (text[0] == '-' || text[0] == '+');
    if (field.length < 64 && units_parse_number(unsigned_text, &number))
        take_number(column, text, text[0] == '-' ? -number : number);
    else
        take_text(survey, column, text, reader);
    take_value(survey, column, text);
}

static bool each_row(TableSurvey *survey, const TextList *tables, const char *encoding,
                     bool (*take)(void *context, TableReader *reader, const size_t *at), void *context,
                     Diagnostics *diagnostics)
{
    bool ok = true;
    for (size_t t = 0; ok && t < tables->count; t++) {
        FREED_WITH(table_close) TableReader reader = {0};
        size_t at[SURVEY_MOST_COLUMNS];
        if (!table_open(&reader, tables->items[t], TABLE_BY_SUFFIX, diagnostics)) return false;
        ok = !encoding || table_decode(&reader, encoding);
        ok = ok && open_table(survey, &reader, at, diagnostics);
        while (ok && table_next(&reader)) ok = take(context, &reader, at);
        ok &= reader.errors == 0;
    }
    return ok;
}

static bool take_row(void *context, TableReader *reader, const size_t *at)
{
    TableSurvey *survey = context;
    bool on_lines = reader->format == TABLE_CONLL;
    for (size_t c = 0; c < survey->count; c++)
        if (at[c] < reader->field_count)
            take_field(survey, &survey->columns[c], reader, reader->fields[at[c]], on_lines);
    survey->rows++;
    return true;
}

/* Rows that are there twice would be trained on and evaluated on. */
static bool check_given_once(const TextList *tables, Diagnostics *diagnostics)
{
    struct stat one, other;
    for (size_t i = 1; i < tables->count; i++)
        for (size_t k = 0; k < i; k++)
            if (stat(tables->items[i], &one) == 0 && stat(tables->items[k], &other) == 0 &&
                one.st_dev == other.st_dev && one.st_ino == other.st_ino)
                return usage_error(diagnostics, "name each table once", "the table '%s' is given twice",
                                   tables->items[i]);
    return true;
}

bool table_survey_read(TableSurvey *survey, const TextList *tables, const char *encoding, Diagnostics *diagnostics)
{
    *survey = (TableSurvey){0};
    return check_given_once(tables, diagnostics) && each_row(survey, tables, encoding, take_row, survey, diagnostics) &&
           (survey->rows ||
            input_error(diagnostics, tables->items[0], "its first line names the columns, each further line is a row",
                        "has no rows after its header"));
}

typedef struct Rereading {
    TableSurvey *survey;
    SurveyColumn *column;
    bool cut;
} Rereading;

static bool take_again(void *context, TableReader *reader, const size_t *at)
{
    const Rereading *again = context;
    size_t place = at[again->column - again->survey->columns];
    bool cut = again->cut || reader->format == TABLE_CONLL;
    if (place < reader->field_count) take_field(again->survey, again->column, reader, reader->fields[place], cut);
    return true;
}

bool table_survey_whole(TableSurvey *survey, const TextList *tables, const char *encoding, SurveyColumn *column,
                        bool cut, Diagnostics *diagnostics)
{
    Rereading again = {survey, column, cut};
    string_map_free(&column->values);
    *column = (SurveyColumn){.name = column->name, .most_values = SIZE_MAX - 1};
    return each_row(survey, tables, encoding, take_again, &again, diagnostics);
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
    size_t columns[3], count;
    bool apart; /* each text has a row of its own */
    bool lists; /* cells are lists */
    TokenIds ids;
    uint32_t *items;
    size_t rows, capacity;
} Lengths;

/* What a chat template writes around a message: about so many tokens. */
static void frame_message(Lengths *lengths)
{
    enum { AROUND_MESSAGE = 8 };
    for (int i = 0; i < AROUND_MESSAGE; i++)
        array_push(lengths->ids.items, lengths->ids.count, lengths->ids.capacity, 0);
}

/* What only the folder's own template writes, about as long as its JSON. */
static void encode_members(Lengths *lengths, const json_t *object)
{
    static const char *const names[] = {"tools", "documents", "tool_calls", "reasoning_content"};
    enum { AROUND_TOOLS = 160 };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const json_t *member = json_object_get(object, names[i]);
        FREED char *text = member && !json_is_null(member) ? json_dumps(member, JSON_ENCODE_ANY) : NULL;
        if (text) tokenizer_encode(lengths->tokenizer, text, strlen(text), &lengths->ids);
        for (int k = 0; text && i < 2 && k < AROUND_TOOLS; k++)
            array_push(lengths->ids.items, lengths->ids.count, lengths->ids.capacity, 0);
    }
}

static void encode_field(Lengths *lengths, TableField field)
{
    json_auto_t *list = lengths->lists ? cell_list(field, BLANKS) : NULL;
    char number[32];
    for (size_t k = 0; k < json_array_size(list); k++) {
        const json_t *item = json_array_get(list, k), *content = json_object_get(item, "content");
        const char *word = cell_item(content                ? content
                                     : json_is_object(item) ? json_object_get(item, "value")
                                                            : item,
                                     number);
        if (json_is_object(item)) frame_message(lengths);
        encode_members(lengths, item);
        if (word) tokenizer_encode(lengths->tokenizer, word, strlen(word), &lengths->ids);
    }
    if (!list) tokenizer_encode(lengths->tokenizer, field.text, field.length, &lengths->ids);
}

static bool take_length(void *context, TableReader *reader, const size_t *at)
{
    Lengths *lengths = context;
    size_t tokens = 0, texts = lengths->apart ? 1 : lengths->count;
    lengths->ids.count = 0;
    if (lengths->lists) encode_members(lengths, reader->object);
    for (size_t i = 0; i < lengths->count; i++) {
        size_t place = at[lengths->columns[i]];
        if (lengths->apart) lengths->ids.count = 0;
        if (place < reader->field_count && reader->fields[place].text) /* else tokenize reports it */
            encode_field(lengths, reader->fields[place]);
        if (lengths->ids.count > tokens) tokens = lengths->ids.count;
    }
    size_t frame = tokenizer_least_length(lengths->tokenizer, texts > 1) - texts;
    array_push(lengths->items, lengths->rows, lengths->capacity, (uint32_t)(frame + tokens));
    return true;
}

static int ascending(const void *a, const void *b)
{
    uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;
    return (left > right) - (left < right);
}

uint32_t *table_survey_lengths(const TableSurvey *survey, const TextList *tables, const char *encoding,
                               const char *const *columns, size_t count, bool apart, Tokenizer *tokenizer,
                               Diagnostics *diagnostics)
{
    const SurveyColumn *first = table_survey_column(survey, columns[0]);
    Lengths lengths = {.tokenizer = tokenizer, .count = count, .apart = apart, .lists = first->lists == first->filled};
    for (size_t i = 0; i < count; i++)
        lengths.columns[i] = (size_t)(table_survey_column(survey, columns[i]) - survey->columns);
    TableSurvey again = {.columns = survey->columns, .count = survey->count};
    bool ok = each_row(&again, tables, encoding, take_length, &lengths, diagnostics);
    arena_free(&again.arena);
    free(lengths.ids.items);
    if (ok)
        qsort(lengths.items, lengths.rows, sizeof *lengths.items, ascending);
    else
        free(lengths.items), lengths.items = NULL;
    return lengths.items;
}
