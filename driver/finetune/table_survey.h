/* What is in a table, before it is tokenized: its columns, what their fields are, and how long its texts are. */
#ifndef DRIVER_FINETUNE_TABLE_SURVEY_H
#define DRIVER_FINETUNE_TABLE_SURVEY_H

#include "base/options.h"
#include "base/string_map.h"
#include "frontend/text/table.h"
#include "frontend/text/tokenizer.h"

enum { SURVEY_MOST_VALUES = 1000, SURVEY_MOST_COLUMNS = 1024 };

typedef struct SurveyColumn {
    const char *name;
    size_t filled;          /* rows in which it is not empty */
    size_t whole, numbers;  /* of these: whole numbers; numbers, also whole ones */
    size_t binary;          /* 0 and 1, or true and false */
    size_t lists;           /* lists of items: `distinct` and `values` are of these */
    size_t width;           /* items of the last list */
    bool no_vectors;        /* some list has another width, or an item that is no number */
    bool fractions, counts; /* some item is no whole number from 0 on; is one above 1 */
    size_t words;           /* between blanks, of all rows */
    size_t distinct;        /* different values, up to SURVEY_MOST_VALUES + 1 */
    double least, greatest; /* of the numbers */
    StringMap values;       /* and how often each is there, if these are not more than SURVEY_MOST_VALUES */
} SurveyColumn;

typedef struct TableSurvey {
    Arena arena;
    SurveyColumn *columns;
    size_t count, capacity;
    size_t rows;
} TableSurvey;

/* Reads all tables, which are one, in this encoding (NULL: UTF-8): their columns must have the same names. Free it
 * in any case. */
bool table_survey_read(TableSurvey *survey, const TextList *tables, const char *encoding, Diagnostics *diagnostics);
void table_survey_free(TableSurvey *survey);
SurveyColumn *table_survey_column(const TableSurvey *survey, const char *name); /* NULL: there is none */
/* How many labels lists have: vectors of 0 and 1 one for each item, as frontend/text/word_rows.c tells them. */
size_t table_survey_labels(const SurveyColumn *column);
/* "a, b and c", as many as a message has room for; in the survey's arena. */
const char *table_survey_names(TableSurvey *survey);

/* The tokens of every row of one or two columns (`apart`: of the longer one) with their frame, ascending; malloc'ed.
 * NULL after reporting. */
uint32_t *table_survey_lengths(const TableSurvey *survey, const TextList *tables, const char *encoding,
                               const char *const *columns, size_t count, bool apart, Tokenizer *tokenizer,
                               Diagnostics *diagnostics);

#endif
