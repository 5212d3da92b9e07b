/* What in a table, or in the data sets made of it, would spoil training or its metrics. */
#ifndef DRIVER_FINETUNE_TABLE_CHECK_H
#define DRIVER_FINETUNE_TABLE_CHECK_H

#include "driver/finetune/task.h"

/* Refuses a table without header, texts that are all empty, labels that are all the same or no numbers for regression,
 * and columns of several labels that are not 0 and 1. Warns of a header that could be a row, of empty texts, of classes
 * with few rows, and of a column that tells training rows from others. */
bool table_check(TableSurvey *survey, const TaskColumns *columns, const char *table, Diagnostics *diagnostics);
/* Warns if the second data set has few rows, or rows with the same tokens as rows of the first, which is trained on.
 * Both are as tokenize writes them. `called`: where the second comes from. */
void data_overlap_check(const char *train, const char *other, const char *called, Diagnostics *diagnostics);

#endif
