#include "frontend/text/labels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/order.h"
#include "base/safetensors.h"
#include "base/text.h"
#include "runtime/program/label_names.h"

enum { MAX_CLASSES = 1 << 20, SHOWN_BYTES = 40 };
static const uint32_t UNKNOWN_LABEL = UINT32_MAX; /* in `find`: it was reported */

/* A whole number from 0 to MAX_CLASSES - 1. */
static bool is_class_number(const char *text, int32_t *number)
{
    size_t length = strlen(text);
    *number = 0;
    if (length == 0 || length > 7) return false;
    for (size_t i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9') return false;
        *number = *number * 10 + (text[i] - '0');
    }
    return *number < MAX_CLASSES;
}

bool label_is_number(const char *text, float *number)
{
    if (!*text || text[strspn(text, "0123456789+-.eE")]) return false;
    char *end;
    *number = strtof(text, &end);
    return !*end && isfinite(*number);
}

bool label_is_truth(const char *text, float *value)
{
    *value = strcasecmp(text, "true") == 0;
    return *value == 1 || strcasecmp(text, "false") == 0;
}

static uint32_t enter(LabelColumn *column, const char *text, size_t length, int line)
{
    uint32_t number = (uint32_t)column->count;
    const char *name = arena_string_n(&column->arena, text, length);
    size_t count = column->count;
    array_push(column->lines, count, column->lines_capacity, line);
    count = column->count;
    array_push(column->uses, count, column->uses_capacity, 0);
    array_push(column->names, column->count, column->names_capacity, name);
    string_map_add(&column->find, name, number);
    return number;
}

static bool take_labels(LabelColumn *column, const SafeTensors *file, const char *path, Diagnostics *diagnostics)
{
    const char *metadata = safetensors_metadata(file, "labels");
    const SafeTensor *tensor = safetensors_find(file, "labels");
    size_t count;
    const char *const *names = label_names_read(metadata, &column->arena, &count);
    if (metadata && !names) return input_error(diagnostics, path, NULL, "its label names are not a list of texts");
    column->kind = names ? LABELS_NAMES : LABELS_CLASSES;
    for (size_t i = 0; i < count; i++) {
        if (string_map_find(&column->find, names[i]))
            return input_error(diagnostics, path, NULL, "two labels are named '%s'", names[i]);
        enter(column, names[i], strlen(names[i]), 0);
    }
    if (names) return true;
    if (!tensor || tensor->shape.rank != 1 || (tensor->dtype != DTYPE_I32 && tensor->dtype != DTYPE_F32))
        return input_error(diagnostics, path, "give the training data that skycc tokenize wrote",
                           "has no tensor 'labels' with one label per row");
    if (tensor->dtype == DTYPE_F32) column->kind = LABELS_REALS;
    for (int64_t i = 0; tensor->dtype == DTYPE_I32 && i < tensor->shape.dim[0]; i++) {
        char text[16];
        snprintf(text, sizeof text, "%d", ((const int32_t *)tensor->data)[i]);
        if (!string_map_find(&column->find, text)) enter(column, text, strlen(text), 0);
    }
    return true;
}

bool labels_of_data(LabelColumn *column, const char *path, Hash tokenizer, Diagnostics *diagnostics)
{
    FREED_WITH(safetensors_close) SafeTensors file = {0};
    char own[33];
    if (!safetensors_open(&file, path, diagnostics)) return false;
    const char *made_by = safetensors_metadata(&file, "vocabulary_hash");
    bool ok = !made_by || strcmp(made_by, hash_format(tokenizer, own)) == 0 ||
              diagnostics_error(diagnostics, EXIT_USAGE, PLACE_FILE(path), "make both with the model's tokenizer",
                                "--labels-of: this data set was made by another tokenizer than the one given");
    ok = ok && take_labels(column, &file, path, diagnostics);
    column->fixed = ok;
    column->vectors = safetensors_metadata(&file, LABELS_VECTORS);
    return ok;
}

/* The only fixed label that another writing of it means: 1 and 1.0, true and True. */
static const uint32_t *find_same(const LabelColumn *column, const char *text)
{
    enum { MOST_DIGITS = 15 }; /* more are not exact in a double */
    float rounded;
    bool number = label_is_number(text, &rounded) && strlen(text) <= MOST_DIGITS,
         truth = label_is_truth(text, &rounded);
    const uint32_t *found = NULL;
    for (size_t i = 0; (number || truth) && i < column->count; i++) {
        const char *name = column->names[i];
        if (number ? !label_is_number(name, &rounded) || strtod(name, NULL) != strtod(text, NULL)
                   : strcasecmp(name, text) != 0)
            continue;
        if (found) return NULL;
        found = string_map_find(&column->find, name);
    }
    return found;
}

/* Reports an unknown label, in the first row that has it. */
static bool refuse_unknown(LabelColumn *column, TableReader *reader, const char *name)
{
    FREED_WITH(arena_free) Arena arena = {0};
    const char *nearest = text_nearest(name, column->names, column->count);
    const char *hint =
        arena_format(&arena, "its labels are %s", label_names_some(column->names, column->count, &arena));
    table_error(reader, hint, "'%.*s' is not a label of the given data set%s%s%s", SHOWN_BYTES, name,
                nearest ? ": did you mean '" : "", nearest ? nearest : "", nearest ? "'?" : "");
    string_map_add(&column->find, arena_string(&column->arena, name), UNKNOWN_LABEL);
    return false;
}

bool labels_add(LabelColumn *column, TableReader *reader, TableField field)
{
    if (!field.text || field.length == 0) return table_error(reader, "leave the row out of the table", "has no label");
    if (memchr(field.text, '\0', field.length)) return table_error(reader, NULL, "the label contains a zero byte");
    FREED char *name = memory_allocate(field.length + 1);
    memcpy(name, field.text, field.length);
    const uint32_t *known = string_map_find(&column->find, name);
    if (!known && column->fixed) known = find_same(column, name);
    float real;
    bool ok = !known || *known != UNKNOWN_LABEL;
    if (ok && column->kind == LABELS_REALS && !label_is_number(name, &real))
        ok = table_error(reader, NULL, "the label '%.*s' is not a number", SHOWN_BYTES, name);
    else if (ok && !known && column->fixed && column->kind != LABELS_REALS)
        ok = refuse_unknown(column, reader, name);
    if (ok) {
        uint32_t number = known ? *known : enter(column, field.text, field.length, reader->line);
        column->uses[number]++;
        array_push(column->rows, column->row_count, column->row_capacity, number);
    }
    return ok;
}

/* ---- what the labels are ---- */

static void decide_kind(LabelColumn *column, const char *path, Diagnostics *diagnostics)
{
    size_t whole = 0, reals = 0, odd = column->count;
    for (size_t i = 0; i < column->count; i++) {
        int32_t number;
        float real;
        whole += is_class_number(column->names[i], &number);
        bool measured = label_is_number(column->names[i], &real);
        reals += measured;
        if (!measured && odd == column->count) odd = i;
    }
    column->kind = whole == column->count ? LABELS_CLASSES : reals == column->count ? LABELS_REALS : LABELS_NAMES;
    if (column->kind == LABELS_NAMES && reals)
        diagnostics_warning(
            diagnostics, (Place){.file = path, .line = column->lines[odd]}, NULL,
            "'%.*s' is not a number, but %zu of the %zu different labels are: skycc takes all of them as names",
            SHOWN_BYTES, column->names[odd], reals, column->count);
    size_t rows = column->row_count;
    if (column->kind == LABELS_NAMES && (column->count > 1000 || column->count * 2 > rows + 4))
        diagnostics_warning(diagnostics, PLACE_FILE(path), NULL,
                            "%zu different labels in %zu examples: is the label column the right one?", column->count,
                            rows);
}

static int compare_numbers(const void *a, const void *b)
{
    long long left = atoll(*(char *const *)a), right = atoll(*(char *const *)b);
    return left == right ? order_texts(a, b) : left < right ? -1 : 1;
}

void labels_sort(const char **names, size_t count)
{
    bool whole = true;
    for (size_t i = 0; whole && i < count; i++) {
        const char *digits = names[i] + (names[i][0] == '-');
        whole = *digits && !digits[strspn(digits, "0123456789")] && strlen(digits) <= 18;
    }
    qsort(names, count, sizeof *names, whole ? compare_numbers : order_texts);
}

/* Numbers the names, of a column that is not fixed in their order, and prints them in their order. */
static void number_names(const LabelColumn *column, int32_t *numbers, Buffer *list)
{
    FREED const char **names = memory_allocate((column->count + 1) * sizeof *names);
    memcpy(names, column->names, column->count * sizeof *names);
    if (!column->fixed) labels_sort(names, column->count);
    for (size_t i = 0; i < column->count; i++) numbers[*string_map_find(&column->find, names[i])] = (int32_t)i;
    label_names_print(list, names, column->count);
}

void labels_resolve(LabelColumn *column, const char *path, int32_t **classes, float **reals, Buffer *names,
                    Diagnostics *diagnostics)
{
    if (column->kind == LABELS_UNDECIDED) decide_kind(column, path, diagnostics);
    FREED int32_t *numbers = memory_allocate((column->count + 1) * sizeof *numbers);
    FREED float *values = memory_allocate((column->count + 1) * sizeof *values);
    if (column->kind == LABELS_NAMES) number_names(column, numbers, names);
    for (size_t i = 0; i < column->count; i++) {
        if (column->kind == LABELS_CLASSES) is_class_number(column->names[i], &numbers[i]);
        if (column->kind == LABELS_REALS) label_is_number(column->names[i], &values[i]);
    }
    if (column->kind == LABELS_REALS)
        *reals = memory_allocate((column->row_count + 1) * sizeof **reals);
    else
        *classes = memory_allocate((column->row_count + 1) * sizeof **classes);
    for (size_t i = 0; i < column->row_count; i++) {
        if (column->kind == LABELS_REALS)
            (*reals)[i] = values[column->rows[i]];
        else
            (*classes)[i] = numbers[column->rows[i]];
    }
}

void labels_describe(const LabelColumn *column, const Buffer *names, char *text, size_t size)
{
    FREED_WITH(buffer_free) Buffer words = {0};
    FREED_WITH(arena_free) Arena arena = {0};
    size_t count;
    const char *const *sorted = label_names_read(names->size ? buffer_text(names) : NULL, &arena, &count);
    if (column->kind == LABELS_REALS) buffer_print(&words, "values, for regression");
    if (column->kind == LABELS_CLASSES) buffer_print(&words, "class numbers, %zu different", column->count);
    for (size_t i = 0; i < count; i++) {
        const uint32_t *number = string_map_find(&column->find, sorted[i]);
        buffer_print(&words, "%s%zu %s (%u rows)", i ? ", " : "", i, sorted[i], number ? column->uses[*number] : 0);
    }
    snprintf(text, size, words.size >= size ? "%.*s..." : "%.*s", (int)size - 4, buffer_text(&words));
}

void labels_free(LabelColumn *column)
{
    arena_free(&column->arena);
    string_map_free(&column->find);
    free(column->names);
    free(column->lines);
    free(column->uses);
    free(column->rows);
}

bool data_labels_read(DataLabels *labels, const char *path, Arena *arena, Diagnostics *diagnostics)
{
    FREED_WITH(safetensors_close) SafeTensors data = {0};
    *labels = (DataLabels){0};
    if (!safetensors_open(&data, path, diagnostics)) return false;
    const char *problem = safetensors_metadata(&data, "problem_type");
    labels->names = label_names_read(safetensors_metadata(&data, "labels"), arena, &labels->count);
    if (problem) labels->problem = arena_string(arena, problem);
    return labels->names ||
           input_error(diagnostics, path, "skycc tokenize writes them", "its metadata has no names of labels");
}
