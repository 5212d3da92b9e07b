#include "driver/finetune/table_check.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/hash.h"
#include "base/safetensors.h"

/* ---- Columns ---- */

/* A table without names of columns has a row in their place. */
static bool check_header(TableSurvey *survey, const TaskColumns *columns, const char *table, Diagnostics *diagnostics)
{
    static const char hint[] =
        "if it is a row, write a line with the names of the columns above it, such as text,label";
    const SurveyColumn *label = columns->label_count == 1 ? table_survey_column(survey, columns->labels[0]) : NULL;
    if (label && !columns->labels_given && label->distinct <= label->most_values &&
        string_map_find(&label->values, label->name))
        return diagnostics_error(diagnostics, EXIT_BAD_INPUT, (Place){.file = table, .line = 1}, hint,
                                 "the first line names the columns, but '%.40s' is also a value of its column",
                                 label->name);
    size_t words = 0;
    for (const char *c = columns->text_count ? columns->texts[0] : ""; *c; c++) words += *c == ' ';
    if (words >= 3 && !columns->texts_given)
        diagnostics_warning(diagnostics, (Place){.file = table, .line = 1}, hint,
                            "'%.60s' is taken as the name of a column", columns->texts[0]);
    return true;
}

static bool check_texts(TableSurvey *survey, const TaskColumns *columns, const char *table, Diagnostics *diagnostics)
{
    for (size_t i = 0; i < columns->text_count; i++) {
        const SurveyColumn *column = table_survey_column(survey, columns->texts[i]);
        if (!column->filled)
            return input_error(diagnostics, table, "name the column with the texts: --text COL",
                               "has no text in any of %zu rows in column '%s'", survey->rows, column->name);
        if (column->objects)
            return input_error(diagnostics, table, "make their members columns of the table",
                               "has objects, not texts, in column '%s'", column->name);
        if (column->filled < survey->rows)
            diagnostics_warning(diagnostics, PLACE_FILE(table), "leave these rows out of the table",
                                "has no text in %zu of %zu rows in column '%s'", survey->rows - column->filled,
                                survey->rows, column->name);
    }
    return true;
}

/* The rows of the commonest and of the rarest value. */
static void warn_of_rare_classes(const SurveyColumn *label, const char *table, Diagnostics *diagnostics)
{
    enum { MUCH = 10 };
    const StringMapEntry *most = NULL, *least = NULL;
    for (size_t i = 0; i < label->values.capacity; i++) {
        const StringMapEntry *entry = &label->values.entries[i];
        if (!entry->key) continue;
        bool tie = most && entry->value == most->value && strcmp(entry->key, most->key) < 0;
        if (!most || entry->value > most->value || tie) most = entry;
        tie = least && entry->value == least->value && strcmp(entry->key, least->key) < 0;
        if (!least || entry->value < least->value || tie) least = entry;
    }
    if (!most || most->value < MUCH * least->value) return;
    diagnostics_warning(diagnostics, PLACE_FILE(table),
                        "accuracy hides rare labels: --keep-best f1 keeps the checkpoint that is best for all labels "
                        "alike",
                        "has label '%.60s' in %u of %zu rows, but '%.60s' in only %u", most->key, most->value,
                        label->filled, least->key, least->value);
}

/* What programs write for a value that is missing would be the name of a class. */
static void warn_of_missing(const SurveyColumn *label, const char *table, Diagnostics *diagnostics)
{
    static const char *const missing[] = {"NaN", "nan", "NA", "N/A", "n/a", "#N/A", "<NA>", "NULL", "null", "None"};
    for (size_t i = 0; i < sizeof missing / sizeof *missing; i++) {
        const uint32_t *rows = string_map_find(&label->values, missing[i]);
        if (rows)
            diagnostics_warning(diagnostics, PLACE_FILE(table),
                                "if no label is known for these rows, leave them out of the table",
                                "has label '%s' in %u of %zu rows: the model learns it as a class like the others",
                                missing[i], *rows, label->filled);
    }
}

/* Without blanks around it, in small letters. */
static const char *folded(Arena *arena, const char *value)
{
    value += strspn(value, " \t");
    char *copy = arena_string(arena, value);
    for (size_t end = strlen(copy); end && strchr(" \t", copy[end - 1]);) copy[--end] = '\0';
    for (char *c = copy; *c; c++) *c = (char)(*c >= 'A' && *c <= 'Z' ? *c - 'A' + 'a' : *c);
    return copy;
}

/* One label that is written in two ways becomes two classes. */
static void warn_of_spellings(const SurveyColumn *label, const char *table, Diagnostics *diagnostics)
{
    FREED_WITH(arena_free) Arena arena = {0};
    FREED_WITH(string_map_free) StringMap first = {0};
    const char *one = NULL, *other = NULL;
    uint32_t count = 0;
    for (size_t i = 0; i < label->values.capacity; i++) {
        const char *value = label->values.entries[i].key;
        if (!value) continue;
        const char *key = folded(&arena, value);
        const uint32_t *same = string_map_find(&first, key);
        if (!same) {
            string_map_add(&first, key, (uint32_t)i);
            continue;
        }
        const char *a = label->values.entries[*same].key, *b = value;
        if (strcmp(a, b) > 0) a = value, b = label->values.entries[*same].key;
        if (!count++ || strcmp(a, one) < 0) one = a, other = b;
    }
    if (count)
        diagnostics_warning(diagnostics, PLACE_FILE(table), "write each label in one way",
                            "has labels '%.60s' and '%.60s', which differ only in capitals or blanks: the model learns "
                            "them as two (%u such label%s)",
                            one, other, count, count > 1 ? "s" : "");
}

/* Said here, as --dry-run does not come to where skycc tokenize refuses them. */
static void warn_of_gaps(const TableSurvey *survey, const SurveyColumn *label, Diagnostics *diagnostics)
{
    if (label->filled < survey->rows)
        diagnostics_warning(diagnostics, label->empty_place, "leave these rows out of the table",
                            "has no label in column '%s'; %zu of %zu rows have none", label->name,
                            survey->rows - label->filled, survey->rows);
}

/* Such as 3,5 or 35%. */
static bool is_written_number(const char *text) { return text && !text[strspn(text, "0123456789.,%+- ")]; }

/* Of a column with a single one. */
static const char *first_value(const SurveyColumn *column)
{
    for (size_t i = 0; i < column->values.capacity; i++)
        if (column->values.entries[i].key) return column->values.entries[i].key;
    return "";
}

static bool check_labels(TableSurvey *survey, const TaskColumns *columns, const char *table, Diagnostics *diagnostics)
{
    const char *hint = columns->labels_given ? NULL : "name the column with the labels: --label COL";
    SurveyColumn *first = columns->label_count ? table_survey_column(survey, columns->labels[0]) : NULL;
    bool names = columns->task == TASK_CLASSES || columns->task == TASK_TOKENS;
    if (!first || columns->task == TASK_ANSWERS) return true;
    if (!first->filled) return input_error(diagnostics, table, hint, "has no label in column '%s'", first->name);
    if (names && first->distinct < 2)
        return input_error(diagnostics, table, hint ? hint : "add rows with another label",
                           "has only one label in column '%s': '%.40s'", first->name, first_value(first));
    bool each = names || (columns->task == TASK_REGRESSION && columns->label_count == 1);
    if (each) warn_of_gaps(survey, first, diagnostics);
    if (columns->task == TASK_REGRESSION && columns->label_count == 1 && first->numbers &&
        first->least >= first->greatest)
        return input_error(diagnostics, table, hint, "has the same number, %g, in every row of column '%s'",
                           first->least, first->name);
    if (columns->task == TASK_REGRESSION && columns->label_count == 1 && first->odd)
        return diagnostics_error(diagnostics, EXIT_BAD_INPUT, first->odd_place, "correct it, or leave the row out",
                                 "'%.40s' in column '%s' is not a number", first->odd, first->name);
    if (names) warn_of_missing(first, table, diagnostics);
    if (names) warn_of_spellings(first, table, diagnostics);
    if (columns->task == TASK_CLASSES) warn_of_rare_classes(first, table, diagnostics);
    if (columns->task == TASK_CLASSES && first->distinct * 2 > first->filled)
        diagnostics_warning(diagnostics, PLACE_FILE(table),
                            first->numbers == first->filled ? "--task regression predicts numbers"
                            : is_written_number(first->odd) ? "write numbers as 3.5, without a comma or a percent sign"
                                                            : hint,
                            "has %zu different labels in %zu rows of column '%s': too few rows to learn most of them",
                            first->distinct, first->filled, first->name);
    for (size_t i = 0; columns->task == TASK_MULTI_LABEL && columns->label_count > 1 && i < columns->label_count; i++) {
        const SurveyColumn *column = table_survey_column(survey, columns->labels[i]);
        warn_of_gaps(survey, column, diagnostics);
        if (column->binary < column->filled)
            return input_error(diagnostics, table,
                               "several labels are columns of 0 and 1 each; for one label name one column",
                               "has other values than 0 and 1 in column '%s', one of several labels", column->name);
        if (column->distinct == 1)
            diagnostics_warning(diagnostics, PLACE_FILE(table), "leave it out of --label: nothing can be learned of it",
                                "has %s in every row of column '%s'", first_value(column), column->name);
    }
    return true;
}

static bool names_a_set(const char *value)
{
    static const char *const sets[] = {"train", "training", "validation", "valid", "val", "dev", "eval", "test"};
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
        if (strcasecmp(sets[i], value) == 0) return true;
    return false;
}

/* A table of all rows of a data set, with a column that says which are for what. */
static void warn_of_sets(const TableSurvey *survey, const char *table, Diagnostics *diagnostics)
{
    for (size_t c = 0; c < survey->count; c++) {
        const SurveyColumn *column = &survey->columns[c];
        bool all = column->distinct > 1 && column->distinct < 8;
        for (size_t i = 0; all && i < column->values.capacity; i++)
            all = !column->values.entries[i].key || names_a_set(column->values.entries[i].key);
        if (all)
            diagnostics_warning(diagnostics, PLACE_FILE(table),
                                "write a table for each, and give them as TABLE, --eval FILE and --test FILE",
                                "says in column '%s' which rows are for training and for tests, but skycc trains on "
                                "all of them",
                                column->name);
    }
}

/* As skycc tokenize does, which cannot tell which of the two is meant. */
static bool check_names(TableSurvey *survey, const char *const *names, size_t count, const char *table,
                        Diagnostics *diagnostics)
{
    for (size_t i = 0; i < count; i++)
        for (size_t c = 0, found = 0; c < survey->count; c++) {
            found += strcmp(survey->columns[c].name, names[i]) == 0;
            if (found == 2)
                return input_error(diagnostics, table,
                                   arena_format(&survey->arena, "the columns are %s", table_survey_names(survey)),
                                   "names the column '%s' twice", names[i]);
        }
    return true;
}

bool table_check(TableSurvey *survey, const TaskColumns *columns, const char *table, Diagnostics *diagnostics)
{
    if (!check_names(survey, columns->texts, columns->text_count, table, diagnostics) ||
        !check_names(survey, columns->labels, columns->label_count, table, diagnostics))
        return false;
    warn_of_sets(survey, table, diagnostics);
    return check_header(survey, columns, table, diagnostics) && check_texts(survey, columns, table, diagnostics) &&
           check_labels(survey, columns, table, diagnostics);
}

/* ---- Data sets ---- */

static int by_value(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return (left > right) - (left < right);
}

/* A number for the tokens of every row, in their order; malloc'ed. Padding does not count: both texts of a pair do. */
static uint64_t *row_hashes(const SafeTensors *data, size_t *count)
{
    static const char *const names[][2] = {{"input_ids", "attention_mask"}, {"input_ids_2", "attention_mask_2"}};
    uint64_t *hashes = NULL;
    for (int text = 0; text < 2; text++) {
        const SafeTensor *ids = safetensors_find(data, names[text][0]), *mask = safetensors_find(data, names[text][1]);
        if (!ids || !mask || ids->dtype != DTYPE_I32 || ids->shape.rank != 2 || !shape_equal(&ids->shape, &mask->shape))
            continue;
        size_t length = (size_t)ids->shape.dim[1];
        *count = (size_t)ids->shape.dim[0];
        if (!hashes) hashes = memory_allocate((*count + 1) * sizeof *hashes);
        for (size_t i = 0; i < *count; i++) {
            const int32_t *row = (const int32_t *)ids->data + i * length,
                          *kept = (const int32_t *)mask->data + i * length;
            size_t end = length;
            while (end && !kept[end - 1]) end--;
            hashes[i] = hash_extend((Hash){0, hashes[i]}, row, end * sizeof *row).low;
        }
    }
    return hashes;
}

static bool read_hashes(const char *path, uint64_t **hashes, size_t *count)
{
    FREED_WITH(diagnostics_free) Diagnostics ignored = {0};
    FREED_WITH(safetensors_close) SafeTensors data = {0};
    *hashes = NULL;
    if (safetensors_open(&data, path, &ignored)) *hashes = row_hashes(&data, count);
    return *hashes != NULL;
}

enum { FEW = 20 };

void data_overlap_check(const char *train, const char *other, const char *called, Diagnostics *diagnostics)
{
    FREED uint64_t *known = NULL, *rows = NULL;
    size_t known_count = 0, count = 0, found = 0;
    if (read_hashes(train, &known, &known_count) && read_hashes(other, &rows, &count)) {
        qsort(known, known_count, sizeof *known, by_value);
        for (size_t i = 0; i < count; i++)
            found += bsearch(&rows[i], known, known_count, sizeof *known, by_value) != NULL;
    }
    if (count && count < FEW)
        diagnostics_warning(diagnostics, PLACE_FILE(called), "give a larger table with --eval FILE, or try --seeds 5",
                            "has only %zu rows to evaluate on: metrics are mostly chance", count);
    if (found)
        diagnostics_warning(diagnostics, PLACE_FILE(called), "remove the repeated rows from the tables",
                            "%zu of %zu rows to evaluate on have the same text as a row that is trained on: metrics "
                            "look better than they are",
                            found, count);
}
