#include "driver/finetune/task.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/text.h"

const TaskText task_texts[TASK_COUNT] = {
    [TASK_CLASSES] = {"classes", " classification text-classification seqcls ", "classify texts", "accuracy", false},
    [TASK_REGRESSION] = {"regression", " ", "predict a number for each text", "loss", false},
    [TASK_MULTI_LABEL] = {"multi-label", " multilabel multi-label-classification ",
                          "give each text any number of labels", "f1", false},
    [TASK_TOKENS] = {"ner", " tokens token-classification tokcls ", "tag the words of texts", "f1", false},
    [TASK_ANSWERS] = {"qa", " question-answering ", "find answers to questions in texts", "f1", true},
    [TASK_PAIRS] = {"pairs", " contrastive embedding ", "bring the embeddings of paired texts together", "accuracy",
                    true},
    [TASK_MASKED] = {"mlm", " fill-mask ", "guess masked words", "loss", false},
    [TASK_CHAT] = {"chat", " sft instruct ", "learn responses of conversations", "loss", false},
    [TASK_NEXT] = {"lm", " clm causal-lm text-generation ", "predict the next token of texts", "loss", false},
};

Task task_find(const char *word)
{
    char spaced[64];
    snprintf(spaced, sizeof spaced, " %.60s ", word);
    for (Task task = 0; task < TASK_COUNT; task++)
        if (strcmp(task_texts[task].word, word) == 0 || strstr(task_texts[task].others, spaced)) return task;
    return TASK_COUNT;
}

/* ---- Names that say it ---- */

static const char *const text_names[][4] = {
    {"question", "context"},
    {"sentence1", "sentence2"},
    {"premise", "hypothesis"},
    {"question1", "question2"},
    {"anchor", "positive"},
    {"query", "passage"},
    {"text1", "text2"},
    {"tokens"},
    {"words"},
    {"text"},
    {"sentence"},
    {"review"},
    {"content"},
};
static const char *const label_names[] = {"label", "labels",   "gold_label", "class", "target",
                                          "score", "category", "ner_tags",   "tags",  "answers"};

static bool is_label_name(const char *name)
{
    for (size_t i = 0; i < sizeof label_names / sizeof *label_names; i++)
        if (strcasecmp(label_names[i], name) == 0) return true;
    return false;
}

static bool is_chosen(const char *const *names, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0) return true;
    return false;
}

/* ---- What columns look like ---- */

static bool is_numeric(const SurveyColumn *column) { return column->filled && column->numbers == column->filled; }

static bool is_binary(const SurveyColumn *column) { return column->filled && column->binary == column->filled; }

/* A number or name of the row. */
static bool is_identifier(const TableSurvey *survey, const SurveyColumn *column)
{
    static const char *const names[] = {"id", "idx", "index", "guid", "uid", "row"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcasecmp(names[i], column->name) == 0) return true;
    return !*column->name || (survey->rows > 8 && column->whole == survey->rows &&
                              (column->distinct == survey->rows || column->distinct > SURVEY_MOST_VALUES));
}

/* Several words a row, rarely the same. */
static bool is_prose(const TableSurvey *survey, const SurveyColumn *column)
{
    bool varies = column->distinct > SURVEY_MOST_VALUES || column->distinct * 2 > survey->rows;
    return column->filled && !is_numeric(column) && !column->lists && column->words >= 2 * column->filled && varies;
}

/* ---- The choice ---- */

static bool refuse_name(TableSurvey *survey, const char *table, const char *name, const char *option,
                        Diagnostics *diagnostics)
{
    const char **names = arena_new_array(&survey->arena, const char *, survey->count);
    for (size_t c = 0; c < survey->count; c++) names[c] = survey->columns[c].name;
    const char *nearest = text_nearest(name, names, survey->count);
    return input_error(diagnostics, table,
                       arena_format(&survey->arena, "the columns are %s", table_survey_names(survey)),
                       "has no column '%s', which %s names%s%s%s", name, option, nearest ? ": did you mean '" : "",
                       nearest ? nearest : "", nearest ? "'?" : "");
}

static bool take_names(const char **names, size_t *count, const char *list, const char *option, TableSurvey *survey,
                       const char *table, Diagnostics *diagnostics)
{
    for (const char *at = list; at && *at;) {
        size_t length = strcspn(at, ",");
        const char *name = arena_string_n(&survey->arena, at, length);
        if (!table_survey_column(survey, name)) return refuse_name(survey, table, name, option, diagnostics);
        if (*count == TASK_MOST_COLUMNS) return usage_error(diagnostics, NULL, "%s names too many columns", option);
        names[(*count)++] = name;
        at += length + (at[length] == ',');
    }
    return true;
}

static bool refuse(TableSurvey *survey, const char *table, const char *option, const char *problem,
                   Diagnostics *diagnostics)
{
    const char *hint =
        arena_format(&survey->arena, "the columns are %s; say which one with %s", table_survey_names(survey), option);
    return diagnostics_error(diagnostics, EXIT_USAGE, PLACE_FILE(table), hint, "%s", problem);
}

/* By their names, else the only column of prose, else the only one with texts. */
static bool choose_texts(TaskColumns *chosen, TableSurvey *survey, const char *table, Diagnostics *diagnostics)
{
    for (size_t i = 0; i < sizeof text_names / sizeof *text_names; i++) {
        size_t found = 0, wanted = 0;
        for (; wanted < 2 && text_names[i][wanted]; wanted++)
            found += table_survey_column(survey, text_names[i][wanted]) &&
                     !is_chosen(chosen->labels, chosen->label_count, text_names[i][wanted]);
        if (found < wanted) continue;
        for (size_t k = 0; k < wanted; k++) chosen->texts[chosen->text_count++] = text_names[i][k];
        return true;
    }
    for (int strict = 1; strict >= 0; strict--) {
        size_t found = 0;
        for (size_t c = 0; c < survey->count; c++) {
            const SurveyColumn *column = &survey->columns[c];
            if (is_chosen(chosen->labels, chosen->label_count, column->name) || is_identifier(survey, column)) continue;
            if (strict ? !is_prose(survey, column)
                       : !column->filled || is_numeric(column) || is_label_name(column->name))
                continue;
            chosen->texts[found++ ? 1 : 0] = column->name;
        }
        if (found > 1)
            return refuse(survey, table, "--text COL, or --text COL,COL for pairs",
                          arena_format(&survey->arena, "several columns may hold the texts ('%s', '%s')",
                                       chosen->texts[0], chosen->texts[1]),
                          diagnostics);
        if (found) return chosen->text_count = 1, true;
    }
    return refuse(survey, table, "--text COL", "no column looks like text", diagnostics);
}

/* The columns that could be labels, those with a label's name first. */
static size_t find_labels(const TaskColumns *chosen, const TableSurvey *survey, const char **found)
{
    size_t count = 0, named = 0, binary = 0;
    for (int round = 0; round < 2; round++)
        for (size_t c = 0; c < survey->count && count < TASK_MOST_COLUMNS; c++) {
            const SurveyColumn *column = &survey->columns[c];
            if (is_chosen(chosen->texts, chosen->text_count, column->name)) continue;
            if (is_label_name(column->name) != (round == 0)) continue;
            if (round && (is_identifier(survey, column) || is_prose(survey, column) || !column->filled)) continue;
            found[count++] = column->name;
            named += round == 0;
            binary += is_binary(column);
        }
    if (named == 1) return 1;
    return count > 1 && binary == count ? count : named ? named : count;
}

static bool choose_labels(TaskColumns *chosen, TableSurvey *survey, Task task, const char *table,
                          Diagnostics *diagnostics)
{
    bool several = true;
    size_t count = find_labels(chosen, survey, chosen->labels);
    for (size_t i = 0; i < count; i++) several &= is_binary(table_survey_column(survey, chosen->labels[i]));
    chosen->label_count = count == 1 || (count > 1 && several) ? count : 0;
    if (chosen->label_count) return true;
    if (count)
        return refuse(survey, table, "--label COL",
                      arena_format(&survey->arena, "several columns may hold the labels ('%s', '%s')",
                                   chosen->labels[0], chosen->labels[1]),
                      diagnostics);
    size_t others = 0;
    for (size_t c = 0; c < survey->count; c++)
        others += !is_chosen(chosen->texts, chosen->text_count, survey->columns[c].name) &&
                  !is_identifier(survey, &survey->columns[c]);
    return (!others && task == TASK_COUNT) ||
           refuse(survey, table, "--label COL, or train without labels with --task mlm", "no column looks like labels",
                  diagnostics);
}

static Task task_of_labels(TaskColumns *chosen, TableSurvey *survey)
{
    Arena *arena = &survey->arena;
    if (!chosen->label_count) {
        chosen->reason = arena_format(arena, "%s without labels", chosen->text_count > 1 ? "two texts" : "texts");
        return chosen->text_count > 1 ? TASK_PAIRS : TASK_MASKED;
    }
    const SurveyColumn *label = table_survey_column(survey, chosen->labels[0]);
    if (chosen->label_count > 1) {
        chosen->reason = arena_format(arena, "%zu columns of 0 and 1", chosen->label_count);
        return TASK_MULTI_LABEL;
    }
    const SurveyColumn *text = table_survey_column(survey, chosen->texts[0]);
    if (label->lists == label->filled && text->lists == text->filled) {
        chosen->reason = arena_format(arena, "'%s' has lists of words, '%s' their tags", text->name, label->name);
        return TASK_TOKENS;
    }
    if (strcmp(chosen->texts[0], "question") == 0 && strcmp(label->name, "answers") == 0) {
        chosen->reason = "question, context and answers";
        return TASK_ANSWERS;
    }
    if (label->lists == label->filled) {
        chosen->reason = arena_format(arena, "'%s' has lists of labels", label->name);
        return TASK_MULTI_LABEL;
    }
    if (is_numeric(label) && label->whole < label->numbers) {
        chosen->reason =
            arena_format(arena, "'%s' has numbers from %g to %g", label->name, label->least, label->greatest);
        return TASK_REGRESSION;
    }
    chosen->reason = arena_format(arena, "'%s' has %zu different %s", label->name, label->distinct,
                                  is_numeric(label) ? "whole numbers" : "texts");
    return TASK_CLASSES;
}

/* Columns of conversations, or of prompts and responses. */
static void find_chat(TaskColumns *chosen, TableSurvey *survey)
{
    static const char *const names[][3] = {{"messages"},
                                           {"conversations"},
                                           {"instruction", "input", "output"},
                                           {"instruction", "output"},
                                           {"instruction", "response"},
                                           {"prompt", "completion"},
                                           {"prompt", "response"},
                                           {"question", "answer"},
                                           {"question", "response"}};
    for (size_t i = 0; i < sizeof names / sizeof *names && !chosen->text_count; i++) {
        size_t count = 0;
        while (count < 3 && names[i][count] && table_survey_column(survey, names[i][count])) count++;
        if (count < 3 && names[i][count]) continue;
        for (size_t k = 0; k < count; k++) chosen->texts[chosen->text_count++] = names[i][k];
        chosen->reason =
            count == 1 ? arena_format(&survey->arena, "'%s' has conversations", names[i][0])
                       : arena_format(&survey->arena, "'%s' asks, '%s' answers", names[i][0], names[i][count - 1]);
    }
}

/* Decoders learn conversations, or without labels the texts themselves; false: the columns are for another task. */
static bool choose_generative(TaskColumns *chosen, TableSurvey *survey, const char *label, bool decoder)
{
    bool given = chosen->task != TASK_COUNT;
    if (given ? chosen->task != TASK_CHAT : !decoder || label) return false;
    if (!chosen->text_count) find_chat(chosen, survey);
    if (given) chosen->reason = "as --task says";
    if (!chosen->reason) return false;
    chosen->task = TASK_CHAT;
    return true;
}

bool task_choose(TaskColumns *chosen, TableSurvey *survey, const char *text, const char *label, Task task, bool decoder,
                 const char *table, Diagnostics *diagnostics)
{
    *chosen = (TaskColumns){.task = task};
    if (!take_names(chosen->texts, &chosen->text_count, text, "--text", survey, table, diagnostics) ||
        !take_names(chosen->labels, &chosen->label_count, label, "--label", survey, table, diagnostics))
        return false;
    for (size_t i = 0; i < chosen->label_count; i++)
        if (is_chosen(chosen->texts, chosen->text_count, chosen->labels[i]))
            return usage_error(diagnostics, "a label that is also a text is known before it is predicted",
                               "--text and --label name the same column, '%s'", chosen->labels[i]);
    if (choose_generative(chosen, survey, label, decoder))
        return chosen->text_count > 0 || refuse(survey, table, "--text messages, or --text PROMPT,RESPONSE",
                                                "no column looks like conversations", diagnostics);
    if ((!chosen->text_count && !choose_texts(chosen, survey, table, diagnostics))) return false;
    if (chosen->text_count > 2)
        return usage_error(diagnostics, "--text premise,hypothesis", "--text takes one column or two");
    bool unlabelled = task == TASK_MASKED || task == TASK_PAIRS || task == TASK_NEXT;
    if (!chosen->label_count && !unlabelled && !choose_labels(chosen, survey, task, table, diagnostics)) return false;
    if (task != TASK_COUNT)
        chosen->reason = "as --task says";
    else
        chosen->task = task_of_labels(chosen, survey);
    if (decoder && task == TASK_COUNT && chosen->task == TASK_MASKED) chosen->task = TASK_NEXT;
    return true;
}
