/* What is in a table, before it is tokenized: its columns, what their fields are, and how long its texts are. */
#ifndef DRIVER_FINETUNE_TABLE_SURVEY_H
#define DRIVER_FINETUNE_TABLE_SURVEY_H

#include "base/options.h"
#include "base/string_map.h"
#include "frontend/text/cells.h"
#include "frontend/text/tokenizer.h"

enum { SURVEY_MOST_VALUES = 1000, SURVEY_MOST_COLUMNS = 1024 };

typedef struct SurveyColumn {
    const char *name;
    size_t filled;          /* rows in which it is not empty */
    size_t whole, numbers;  /* of these: whole numbers; numbers, also whole ones */
    size_t integral;        /* numbers without a fraction, such as 2.0 */
    size_t binary;          /* 0 and 1, or false and true */
    size_t lists;           /* lists of items: `distinct` and `values` are of these */
    size_t words;           /* between blanks, of all rows */
    size_t most_values;     /* that are counted: SURVEY_MOST_VALUES, or all */
    size_t distinct;        /* different values, up to most_values + 1 */
    double least, greatest; /* of the numbers */
    ListForm form;          /* of the lists */
    StringMap values;       /* and how often each is there, if these are not more than most_values */
    size_t objects;         /* JSON objects */
    Place empty_place;      /* of the first row in which it is empty; no file: there is none */
    const char *odd;        /* the first value that is no number, and its place; NULL: there is none */
    Place odd_place;
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
/* "a, b and c", as many as a message has room for; in the survey's arena. */
const char *table_survey_names(TableSurvey *survey);

/* Reads one column again, to count all of its values. `cut`: texts are lists of words with blanks between. */
bool table_survey_whole(TableSurvey *survey, const TextList *tables, const char *encoding, SurveyColumn *column,
                        bool cut, Diagnostics *diagnostics);

/* The tokens of every row of one or two columns (`apart`: of the longer one) with their frame, ascending; malloc'ed.
 * NULL after reporting. */
uint32_t *table_survey_lengths(const TableSurvey *survey, const TextList *tables, const char *encoding,
                               const char *const *columns, size_t count, bool apart, Tokenizer *tokenizer,
                               Diagnostics *diagnostics);

#endif
