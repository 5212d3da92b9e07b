#include "frontend/text/label_set.h"

#include <stdlib.h>
#include <string.h>

#include "frontend/text/labels.h"

enum { SHOWN_BYTES = 40 };

static bool read_value(const LabelSet *set, TableReader *reader, const char *name, TableField field, float *value)
{
    char text[64] = "";
    if (!field.text || field.length == 0) return table_error(reader, NULL, "has no '%.*s'", SHOWN_BYTES, name);
    if (field.length < sizeof text) memcpy(text, field.text, field.length);
    bool known = label_is_number(text, value) || (!set->measured && label_is_truth(text, value));
    if (known && (set->measured || *value == 0 || *value == 1)) return true;
    return table_error(reader, set->measured ? NULL : "with --regression columns of labels are values of any size",
                       "'%.*s' of '%.*s' is %s", (int)(field.length < SHOWN_BYTES ? field.length : SHOWN_BYTES),
                       field.text, SHOWN_BYTES, name, set->measured ? "no number" : "neither 0 nor 1");
}

bool label_set_add(LabelSet *set, TableReader *reader, const int *columns)
{
    if (set->row_count == set->row_capacity) {
        size_t row;
        set->row_capacity = set->row_capacity ? 2 * set->row_capacity : 256;
        if (!size_multiply(set->count, sizeof *set->values, &row)) memory_exhausted();
        set->values = memory_resize(set->values, set->row_capacity, row);
        if (!set->uses) set->uses = memory_allocate(set->count * sizeof *set->uses);
    }
    float *values = set->values + set->row_count * set->count;
    for (size_t i = 0; i < set->count; i++)
        if (!read_value(set, reader, set->names[i], reader->fields[columns[i]], &values[i])) return false;
    for (size_t i = 0; i < set->count; i++) set->uses[i] += values[i] == 1;
    set->row_count++;
    return true;
}

void label_set_describe(const LabelSet *set, char *text, size_t size)
{
    FREED_WITH(buffer_free) Buffer words = {0};
    if (set->measured) buffer_print(&words, "%zu values per row, for regression", set->count);
    for (size_t i = 0; i < set->count && !set->measured; i++)
        buffer_print(&words, "%s%zu %s (%zu rows)", i ? ", " : "", i, set->names[i], set->uses[i]);
    snprintf(text, size, words.size >= size ? "%.*s..." : "%.*s", (int)size - 4, buffer_text(&words));
}

void label_set_free(LabelSet *set)
{
    free(set->values);
    free(set->uses);
}
