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
 *   columns   the columns that the options name; labels as in labels.h, or a list of them per row
 *   ner       lists of words and of tags, or files as CoNLL's: the first token of a word has its tag, others -100
 *   qa        question, text and answer: windows of long texts, start_positions and end_positions
 *   pairs     two texts, apart: input_ids and input_ids_2, and so on
 *   chat      lists of messages, or a prompt and a response: tokens of responses are their own labels, others -100
 *   lm        documents, or files of plain text: windows, in which every token is its own label
 *   multi-label   lists of labels, or columns of 0 and 1
 *
 * Without a label column (test sets) no labels are written, with a warning. */
#ifndef FRONTEND_TEXT_TEXT_DATASET_H
#define FRONTEND_TEXT_TEXT_DATASET_H

#include "frontend/text/dataset_options.h"
#include "frontend/text/tokenizer.h"

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
