/* What a data set is made of, and what came of it. */
#ifndef FRONTEND_TEXT_DATASET_OPTIONS_H
#define FRONTEND_TEXT_DATASET_OPTIONS_H

#include "frontend/text/folder_template.h"
#include "frontend/text/table.h"

typedef enum DatasetTask {
    DATASET_MNLI,
    DATASET_MRPC,
    DATASET_SST2,
    DATASET_PAIR,
    DATASET_SINGLE,
    DATASET_MLM,
    DATASET_COLUMNS,
    DATASET_NER,
    DATASET_QA,
    DATASET_PAIRS,
    DATASET_MULTI_LABEL,
    DATASET_CHAT,
    DATASET_LM,
    DATASET_TASK_COUNT
} DatasetTask;

enum { DATASET_LEAST_LENGTH = 4, DATASET_MOST_LENGTH = 1 << 16, DATASET_IGNORED_LABEL = -100 };

typedef struct DatasetOptions {
    DatasetTask task;
    int max_length; /* tokens per example, framing included; shorter ones are padded, longer ones cut */
    uint64_t seed;  /* of masking and of the choice of rows that are held out */
    TableFormat format;
    const char *const *more_tables; /* of the same columns, read after the first; NULL after the last */
    const char *encoding;           /* of the table; NULL: UTF-8 */
    /* Of mlm, columns and all after it: names of one or two columns of texts, with a comma between; NULL: as the task
     * has it. */
    const char *text_columns;
    const char *label_column; /* likewise; NULL: none; several with commas between: 0 and 1 each */
    int stride;               /* of qa: how many tokens two windows of a text share */
    bool classes;             /* labels are names of classes, also where all are numbers */
    bool regression;          /* labels are measured values, also where all are whole numbers */
    bool unlabelled;          /* labels are not read, and not missed */
    const char *labels_of;    /* a data set whose labels' numbers are kept; NULL: none */
    /* How many rows are written to another file: a share below 1, or a number from 1 on; 0: none. */
    double holdout;
    bool stratified; /* of every class the same share, as far as whole rows allow */
    /* Of chat and lm. */
    const ChatTemplate *chat_template;
    FolderTemplate *folder_template; /* instead; NULL: none */
    int32_t end_of_text;             /* the token */
    bool learns_all;                 /* questions too, not only responses */
    bool balance; /* repeat rows of the rarer classes, not of those held out, until all are as frequent */
} DatasetOptions;

/* How many tokens two windows of this length share, where nobody says it. */
static inline int dataset_stride(int length)
{
    enum { USUAL = 128 };
    return length / 3 < USUAL ? length / 3 : USUAL;
}

typedef struct DatasetSummary {
    size_t examples;
    size_t left_out;        /* rows without agreed label, or cut before their first response */
    size_t truncated;       /* examples that were cut */
    size_t tokens, unknown; /* before cutting, without framing */
    size_t held_out;        /* of the examples */
    size_t repeated;        /* copies, in addition to the examples */
    size_t rows, answered;  /* of qa: rows of the table; windows with an answer */
    char labels[256];       /* what labels were taken for, and how many rows have each; empty: no labels */
} DatasetSummary;

#endif
