/* Lists and objects in the cells of tables: JSON, or Python's literals as pandas writes them, such as ['a', "b", 3]. */
#ifndef FRONTEND_TEXT_CELLS_H
#define FRONTEND_TEXT_CELLS_H

#include "frontend/text/table.h"

/* A list or an object, which the caller frees by json_decref; NULL: the cell is neither. */
json_t *cell_read(TableField field);
/* A list; a cell that is none is cut at any of the separators. NULL: a damaged list. */
json_t *cell_list(TableField field, const char *separators);
/* The list of words in a cell of a table of this format: JSON, or words with blanks between. NULL: there is none. */
json_t *cell_words(TableField field, TableFormat format);
/* An item that is text or a number, as text; NULL: it is neither. */
const char *cell_item(const json_t *item, char number[static 32]);
/* The same of a label: 1.0 is 1, and so is true. */
const char *cell_label(const json_t *item, char number[static 32]);

/* What lists of labels look like, over all rows. */
typedef struct ListForm {
    size_t rows, items;
    size_t width;      /* of the first list */
    bool uneven;       /* not all lists have that width */
    bool words;        /* an item is no number */
    bool fractions;    /* an item is no whole number */
    float least, most; /* of the numbers */
} ListForm;

/* Adds a row's list of labels. */
void list_form_take(ListForm *form, const json_t *list);
/* Whether every list has a place for each label: all have one width, and hold 0 and 1, or fractions. */
bool list_form_is_vectors(const ListForm *form);
/* How many labels such lists are about, of which `distinct` are different: the width of vectors, else numbers count
 * from 0, and names themselves. */
size_t list_form_labels(const ListForm *form, size_t distinct);

#endif
