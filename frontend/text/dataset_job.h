/* A data set that is being made, for the files that read its rows. */
#ifndef FRONTEND_TEXT_DATASET_JOB_H
#define FRONTEND_TEXT_DATASET_JOB_H

#include "frontend/text/dataset_options.h"
#include "frontend/text/examples.h"
#include "frontend/text/cells.h"
#include "frontend/text/label_set.h"
#include "frontend/text/labels.h"
#include "frontend/text/tokenizer.h"

/* The columns of a row's parts; -1: none. */
typedef struct Columns {
    int text[3], label; /* where there are several labels, the first */
    const int *labels;  /* all of several labels */
    size_t count;       /* of the first line; 0: any */
} Columns;

typedef struct Job {
    Tokenizer *tokenizer;
    const DatasetOptions *options;
    TableReader reader;
    Columns columns;
    Examples examples;
    LabelColumn labels;
    LabelSet label_set; /* instead, where --label names more columns than one */
    size_t *list_ends;  /* where each row has a list of labels: how many of `labels` there are up to its end */
    size_t list_count, list_capacity;
    ListForm list_form;
    const char **names; /* columns of texts, then of labels, as the options name them */
    size_t text_count, label_count, name_count, name_capacity;
    size_t extras[3];    /* of a table with a header: tools and the like (chat_rows.c), 1 + the column; 0: none */
    size_t table_rows;   /* that gave examples */
    Buffer answer_texts; /* of each: the text and its right answers, each ended by a zero byte, and one more */
    size_t *text_ends;   /* of each, in answer_texts */
    size_t text_end_count, text_end_capacity;
    Arena arena, row_arena;
    TokenIds texts[2];     /* of the current row */
    TokenIds token_labels; /* of the tokens of the first text, by number in `labels`; -1: none */
    bool *is_text;         /* of its tokens */
    size_t searched;       /* answers without a place, which are searched for */
    DatasetSummary *summary;
    Buffer label_names; /* a JSON list; empty: labels are numbers */
} Job;

/* Appends the ids of text to texts[which]; reports what is wrong with it. */
bool job_encode(Job *job, int which, const char *text, size_t length);
/* Frames texts as the next example. begin: the first token of each. */
void job_add_example(Job *job, const TokenIds texts[2], bool pair, size_t begin[2]);
/* Reads a row of words with tags (word_rows.c), or of a question with its answers (answer_rows.c). */
void job_read_words(Job *job);
void job_read_answers(Job *job);
/* Reads a row of messages, or of a prompt with its response; adds a document, in windows (chat_rows.c). */
void job_read_chat(Job *job);
/* Finds the columns next to messages in the first line, which stands in the reader. */
void job_find_extras(Job *job);
void job_add_document(Job *job, const char *text, size_t length);
/* A row's list of labels, and at the end what all rows have. */
bool job_read_list(Job *job, TableField field);
bool job_resolve_lists(Job *job);

#endif
