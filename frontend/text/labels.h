/* The labels of a data set: turns the texts of a column into numbers, and names the numbers.
 *
 * Whole numbers from 0 on are classes as they stand. Other numbers are measured values, for regression. Other texts are
 * names of classes, numbered in byte order, so that the order of rows does not matter. */
#ifndef FRONTEND_TEXT_LABELS_H
#define FRONTEND_TEXT_LABELS_H

#include "base/buffer.h"
#include "base/hash.h"
#include "base/string_map.h"
#include "frontend/text/table.h"

typedef enum LabelKind { LABELS_UNDECIDED, LABELS_CLASSES, LABELS_REALS, LABELS_NAMES } LabelKind;

typedef struct LabelColumn {
    LabelKind kind;
    bool fixed;   /* to the names, or numbers, of another data set */
    bool vectors; /* where fixed: its rows had lists with a place for each label (list_form_is_vectors) */
    Arena arena;
    StringMap find;
    const char **names; /* the different labels, numbered by first appearance; of a fixed column as there */
    int *lines;         /* of their first appearance */
    uint32_t *uses;
    size_t count, names_capacity, lines_capacity, uses_capacity;
    uint32_t *rows; /* each row's label, by number in `names` */
    size_t row_count, row_capacity;
} LabelColumn;

/* Whether a text is a finite number. */
bool label_is_number(const char *text, float *number);
/* Whether it is true or false, also in capitals: 1 or 0 in *value. */
bool label_is_truth(const char *text, float *value);
/* Sorts names of classes as they are numbered: whole numbers by their values, else in byte order. */
void labels_sort(const char **names, size_t count);
/* The labels of a data set that skycc tokenize wrote, by the same tokenizer: its names or its numbers. */
bool labels_of_data(LabelColumn *column, const char *path, Hash tokenizer, Diagnostics *diagnostics);
/* Adds the label of a row. Returns false if it is empty, not a number although kind is REALS, or not among the fixed
 * labels, and reports that: the last in the first row with this label. */
bool labels_add(LabelColumn *column, TableReader *reader, TableField field);
/* Decides the kind of labels, unless it is fixed. Gives the rows' labels in *classes or *reals (malloc'ed) and their
 * names as a JSON list in `names`, which stays empty for numbers. Warns if labels look like a mistake. */
void labels_resolve(LabelColumn *column, const char *path, int32_t **classes, float **reals, Buffer *names,
                    Diagnostics *diagnostics);
/* Describes the labels in words, cut to fit: "0 no (17 rows), 1 yes (20 rows)". After labels_resolve. */
void labels_describe(const LabelColumn *column, const Buffer *names, char *text, size_t size);
void labels_free(LabelColumn *column);

/* problem_type of rows that have any number of labels at once. */
#define LABELS_SEVERAL "multi_label_classification"

/* Metadata of data sets whose rows had lists with a place for each label. */
#define LABELS_VECTORS "label_vectors"

/* The description of labels in a data set. */
typedef struct DataLabels {
    const char *const *names; /* by number */
    size_t count;
    const char *problem; /* what the Hugging Face library calls problem_type; NULL: it does not say */
} DataLabels;

/* Reads that of the data set at `path` into the arena; reports a file without names. */
bool data_labels_read(DataLabels *labels, const char *path, Arena *arena, Diagnostics *diagnostics);

#endif
