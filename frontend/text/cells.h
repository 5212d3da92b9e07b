/* Lists and objects in the cells of tables: JSON, or Python's literals as pandas writes them, such as ['a', "b", 3]. */
#ifndef FRONTEND_TEXT_CELLS_H
#define FRONTEND_TEXT_CELLS_H

#include "base/json.h"
#include "frontend/text/table.h"

/* A list or an object, which the caller frees by json_decref; NULL: the cell is neither. */
json_t *cell_read(TableField field);
/* A list; a cell that is none is cut at any of the separators. NULL: a damaged list. */
json_t *cell_list(TableField field, const char *separators);
/* An item that is text or a number, as text; NULL: it is neither. */
const char *cell_item(const json_t *item, char number[static 32]);

#endif
