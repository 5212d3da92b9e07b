/* Data sets: rows of text in, padded token ids with their labels out, as the stage programs read them.
 *
 * Columns are found by name (sentence1, sentence2, sentence, text; gold_label, label; also MRPC's "#1 String", "#2
 * String", "Quality"): a first line with one of these must name all texts. Else they are found by the positions GLUE
 * gives the task, and the first line is a header only if the task's files have one and it holds no label where a label
 * would stand.
 *
 *   mnli      sentence1, sentence2: contradiction 0, entailment 1, neutral 2; rows with "-" (no agreement) are left out
 *   mrpc      sentence1, sentence2: 0, 1 (or not_equivalent, equivalent)
 *   sst2      sentence: 0, 1
 *   pair      sentence1, sentence2: whole numbers as they are, or names, numbered in byte order
 *   single    sentence: the same
 *   mlm       sentence(1), sentence2: the masked tokens' own ids, -100 elsewhere; further columns are ignored
 *
 * Where there is no label column (test sets) no labels are written, with a warning. */
#ifndef FRONTEND_DATASET_H
#define FRONTEND_DATASET_H

#include "frontend/tokenizer.h"

typedef enum DatasetTask {
    DATASET_MNLI,
    DATASET_MRPC,
    DATASET_SST2,
    DATASET_PAIR,
    DATASET_SINGLE,
    DATASET_MLM,
    DATASET_TASK_COUNT
} DatasetTask;

enum { DATASET_LEAST_LENGTH = 4, DATASET_MOST_LENGTH = 1 << 16, DATASET_IGNORED_LABEL = -100 };

typedef struct DatasetOptions {
    DatasetTask task;
    int max_length; /* tokens per example, framing included; shorter ones are padded, longer ones cut */
    uint64_t seed;  /* of masking */
} DatasetOptions;

typedef struct DatasetSummary {
    size_t examples;
    size_t left_out;        /* rows without agreed label */
    size_t truncated;       /* examples that were cut */
    size_t tokens, unknown; /* before cutting, without framing */
} DatasetSummary;

const char *dataset_task_name(DatasetTask task);
bool dataset_find_task(const char *name, DatasetTask *task); /* false if unknown */

/* Reads the TSV file ("-": standard input) and writes `input_ids`, `attention_mask`, `token_type_ids` int32 [N,S] and
 * `labels` int32 [N], or [N,S] for mlm, to `output` as safetensors. A pair is cut token by token from the longer of its
 * texts. Metadata: format, task, vocabulary (size and hash), max_length and labels (a JSON list of their names).
 * Malformed rows are all reported with their line (up to 20), and nothing is written then. */
bool dataset_tokenize(Tokenizer *tokenizer, const DatasetOptions *options, const char *tsv, const char *output,
                      DatasetSummary *summary, Diagnostics *diagnostics);

#endif
