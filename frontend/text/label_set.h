/* Rows with several labels: each label is a column, which gives its name and holds 0 and 1, or measured values. */
#ifndef FRONTEND_TEXT_LABEL_SET_H
#define FRONTEND_TEXT_LABEL_SET_H

#include "frontend/text/table.h"

typedef struct LabelSet {
    const char *const *names; /* of the columns; the caller's */
    size_t count;
    bool measured; /* any numbers; else 0 and 1, or false and true */
    float *values; /* [row_count][count] */
    size_t row_count, row_capacity;
    size_t *uses; /* [count]: rows that have the label, where they are not measured */
} LabelSet;

/* Adds the labels of a row: fields[columns[i]] belongs to names[i]. Reports and returns false if one is missing or not
 * such a number. */
bool label_set_add(LabelSet *set, TableReader *reader, const int *columns);
/* Describes the labels in words, cut to fit: "toxic (17 rows), threat (2 rows)". */
void label_set_describe(const LabelSet *set, char *text, size_t size);
void label_set_free(LabelSet *set);

#endif
