/* The tasks of skycc finetune, and which one a table's columns are for. */
#ifndef DRIVER_FINETUNE_TASK_H
#define DRIVER_FINETUNE_TASK_H

#include "driver/finetune/table_survey.h"

typedef enum Task {
    TASK_CLASSES,
    TASK_REGRESSION,
    TASK_MULTI_LABEL,
    TASK_TOKENS,
    TASK_ANSWERS,
    TASK_PAIRS,
    TASK_MASKED,
    TASK_CHAT,
    TASK_NEXT,
    TASK_COUNT /* the columns decide */
} Task;

typedef struct TaskText {
    const char *word;   /* of --task */
    const char *others; /* that --task takes too, with blanks around each */
    const char *does;   /* "classifies texts" */
    const char *metric; /* of the best checkpoint */
    const char *all;    /* metrics, with commas between; f1 stands for its kinds */
    const char *loss;   /* of the head */
    bool is_padded;     /* rows cannot share packed sequences: the loss compares rows, or tokens of one */
} TaskText;

extern const TaskText task_texts[TASK_COUNT];
#define TASK_OPTION_WORDS "classes", "regression", "multi-label", "ner", "qa", "pairs", "mlm", "chat", "lm"

/* TASK_COUNT: there is none of that name. */
Task task_find(const char *word);

/* Reports a metric (NULL: none is wanted) that training could not measure for the task. */
bool task_check_metric(Task task, const char *metric, Diagnostics *diagnostics);

/* Whether the model learns to predict the next token. */
static inline bool task_is_generative(Task task) { return task == TASK_CHAT || task == TASK_NEXT; }

enum { TASK_MOST_COLUMNS = 512 };

/* Columns of texts and of labels, by their names. */
typedef struct TaskColumns {
    Task task;
    const char *texts[TASK_MOST_COLUMNS], *labels[TASK_MOST_COLUMNS];
    size_t text_count, label_count;
    bool texts_given, labels_given; /* by the user */
    const char *reason;             /* for the task */
} TaskColumns;

/* Decides by the columns; `decoder`: for a model that predicts the next token. Each of `text`, `label` (names, with
 * commas) and `task` (TASK_COUNT: not given) may already be decided. Reports what is missing or ambiguous, with the
 * columns and the option that decides. */
bool task_choose(TaskColumns *chosen, TableSurvey *survey, const char *text, const char *label, Task task, bool decoder,
                 const char *table, Diagnostics *diagnostics);

#endif
