/* Data sets: rows of text in, padded token ids with their labels out, as the stage programs read them.
 *
 * Columns are found by name (sentence1, sentence2, sentence, text; gold_label, label; also MRPC's "#1 String", "#2
 * String", "Quality"): a first line with one of these must name all texts. Otherwise they have the task's positions in
 * GLUE, and the first line is a header only if the task's files have one and the line has no label in the label column.
 *
 *   mnli      sentence1, sentence2: contradiction 0, entailment 1, neutral 2; rows with "-" (no agreement) are left out
 *   mrpc      sentence1, sentence2: 0, 1 (or not_equivalent, equivalent)
 *   sst2      sentence: 0, 1
 *   pair      sentence1, sentence2: whole numbers as they are, or names, numbered in byte order
 *   single    sentence: the same
 *   mlm       sentence(1), sentence2: the masked tokens' own ids, -100 elsewhere; further columns are ignored
 *   columns   the columns that the options name; labels as in labels.h
 *
 * Without a label column (test sets) no labels are written, with a warning. */
#ifndef FRONTEND_TEXT_TEXT_DATASET_H
#define FRONTEND_TEXT_TEXT_DATASET_H

#include "frontend/text/table.h"
#include "frontend/text/tokenizer.h"

typedef enum DatasetTask {
    DATASET_MNLI,
    DATASET_MRPC,
    DATASET_SST2,
    DATASET_PAIR,
    DATASET_SINGLE,
    DATASET_MLM,
    DATASET_COLUMNS,
    DATASET_TASK_COUNT
} DatasetTask;

enum { DATASET_LEAST_LENGTH = 4, DATASET_MOST_LENGTH = 1 << 16, DATASET_IGNORED_LABEL = -100 };

typedef struct DatasetOptions {
    DatasetTask task;
    int max_length; /* tokens per example, framing included; shorter ones are padded, longer ones cut */
    uint64_t seed;  /* of masking and of the choice of rows that are held out */
    TableFormat format;
    /* Of columns and mlm: names of one or two columns of texts, with a comma between; NULL: as the task has it. */
    const char *text_columns;
    const char *label_column; /* of columns; NULL: none; several with commas between: 0 and 1 each */
    bool regression;          /* labels are measured values, also where all are whole numbers */
    bool unlabelled;          /* no warning where there are no labels */
    const char *labels_of;    /* a data set whose labels' numbers are kept; NULL: none */
    /* How many rows are written to another file: a share below 1, or a number from 1 on; 0: none. */
    double holdout;
    bool balance; /* repeat rows of the rarer classes, not of those held out, until all are as frequent */
} DatasetOptions;

typedef struct DatasetSummary {
    size_t examples;
    size_t left_out;        /* rows without agreed label */
    size_t truncated;       /* examples that were cut */
    size_t tokens, unknown; /* before cutting, without framing */
    size_t held_out;        /* of the examples */
    size_t repeated;        /* copies, in addition to the examples */
    char labels[256];       /* what labels were taken for, and how many rows have each; empty: no labels */
} DatasetSummary;

const char *dataset_task_name(DatasetTask task);
bool dataset_find_task(const char *name, DatasetTask *task); /* false if unknown */

/* Reads a table ("-": standard input) and writes `input_ids`, `attention_mask`, `token_type_ids` int32 [N,S], `lengths`
 * int32 [N], a row's tokens that are no padding, and `labels` int32 [N], or [N,S] for mlm, or float32 [N] for values
 * and [N,labels] where --label names several columns, to `output` as safetensors; rows that are held out to the file
 * that dataset_holdout_path names. Metadata: format, task, vocabulary (size and hash), max_length, labels (a JSON list
 * of their names) and, of several labels a row, problem_type. All malformed rows (up to 20) are reported with their
 * lines, and nothing is written. */
bool dataset_tokenize(Tokenizer *tokenizer, const DatasetOptions *options, const char *table, const char *output,
                      DatasetSummary *summary, Diagnostics *diagnostics);

/* "data.holdout.safetensors" of "data.safetensors"; free() it. */
char *dataset_holdout_path(const char *output);

#endif
