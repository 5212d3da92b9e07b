#include "driver/finetune/task.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/parts.h"
#include "base/text.h"

const TaskText task_texts[TASK_COUNT] = {
    [TASK_CLASSES] = {"classes", " classification text-classification seqcls ", "classify texts", "accuracy",
                      "loss, accuracy, f1, matthews, perplexity", "cross-entropy", false},
    [TASK_REGRESSION] = {"regression", " ", "predict a number for each text", "loss", "loss, pearson, spearman",
                         "mean squared error", false},
    [TASK_MULTI_LABEL] = {"multi-label", " multilabel multi-label-classification ",
                          "give each text any number of labels", "f1", "loss, accuracy, f1", "binary cross-entropy",
                          false},
    [TASK_TOKENS] = {"ner", " tokens token-classification tokcls ", "tag the words of texts", "f1",
                     "loss, accuracy, f1, matthews, perplexity", "cross-entropy", false},
    [TASK_ANSWERS] = {"qa", " question-answering ", "find answers to questions in texts", "f1", "loss, exact, f1",
                      "mean cross-entropy of the first and the last token", true},
    [TASK_PAIRS] = {"pairs", " contrastive embedding ", "bring the embeddings of paired texts together", "accuracy",
                    "loss, accuracy", "contrastive", true},
    [TASK_MASKED] = {"mlm", " fill-mask ", "guess masked words", "loss", "loss, accuracy, f1, matthews, perplexity",
                     "cross-entropy of the masked tokens", false},
    [TASK_CHAT] = {"chat", " sft instruct ", "learn responses of conversations", "loss",
                   "loss, accuracy, f1, matthews, perplexity", "cross-entropy of the next token", false},
    [TASK_NEXT] = {"lm", " clm causal-lm text-generation ", "predict the next token of texts", "loss",
                   "loss, accuracy, f1, matthews, perplexity", "cross-entropy of the next token", false},
};

Task task_find(const char *word)
{
    char spaced[64];
    snprintf(spaced, sizeof spaced, " %.60s ", word);
    for (Task task = 0; task < TASK_COUNT; task++)
        if (strcmp(task_texts[task].word, word) == 0 || strstr(task_texts[task].others, spaced)) return task;
    return TASK_COUNT;
}

bool task_check_metric(Task task, const char *metric, Diagnostics *diagnostics)
{
    const TaskText *text = &task_texts[task];
    return !metric ||
           text_has_part(text->all, arena_string_n(&diagnostics->arena, metric, strcspn(metric, "-")), ", ") ||
           usage_error(diagnostics, arena_format(&diagnostics->arena, "what can be: %s", text->all),
                       "--keep-best %s cannot be measured when the task is '%s'", metric, text->word);
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
static const char *const label_names[] = {"label",    "labels",   "gold_label", "class",   "target", "score",
                                          "category", "ner_tags", "tags",       "answers", "answer"};

static bool is_label_name(const char *name)
{
    for (size_t i = 0; i < sizeof label_names / sizeof *label_names; i++)
        if (strcasecmp(label_names[i], name) == 0) return true;
    return false;
}

/* ---- What columns look like ---- */

static bool is_numeric(const SurveyColumn *column) { return column->filled && column->numbers == column->filled; }

static bool is_list(const SurveyColumn *column) { return column->filled && column->lists == column->filled; }

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
    return column->filled && !is_numeric(column) && !is_list(column) && column->words >= 2 * column->filled && varies;
}

/* ---- The choice ---- */

static bool refuse_name(TableSurvey *survey, const char *table, const char *name, const char *option,
                        Diagnostics *diagnostics)
{
    const char **names = arena_new_array(&survey->arena, const char *, survey->count);
    for (size_t c = 0; c < survey->count; c++) names[c] = survey->columns[c].name;
    const char *nearest = text_nearest(name, names, survey->count);
    bool comma = false;
    for (size_t c = 0; c < survey->count; c++) comma = comma || strchr(names[c], ',');
    return input_error(diagnostics, table,
                       arena_format(&survey->arena, "the columns are %s%s", table_survey_names(survey),
                                    comma ? "; write a comma in a name as '\\,'" : ""),
                       "has no column '%s', which %s names%s%s%s", name, option, nearest ? ": did you mean '" : "",
                       nearest ? nearest : "", nearest ? "'?" : "");
}

static bool take_names(const char **names, size_t *count, const char *list, const char *option, TableSurvey *survey,
                       const char *table, Diagnostics *diagnostics)
{
    for (const char *name; list && *list && (name = table_next_name(&list, &survey->arena));) {
        if (!table_survey_column(survey, name)) return refuse_name(survey, table, name, option, diagnostics);
        if (word_index(name, names, *count) >= 0)
            return usage_error(diagnostics, NULL, "%s names the column '%s' twice", option, name);
        if (*count == TASK_MOST_COLUMNS) return usage_error(diagnostics, NULL, "%s names too many columns", option);
        names[(*count)++] = name;
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

/* Whether the columns that are no texts are neither labels nor anything else that could be. */
static bool stands_alone(const TaskColumns *chosen, const TableSurvey *survey)
{
    for (size_t c = 0; c < survey->count; c++) {
        const SurveyColumn *column = &survey->columns[c];
        bool text = word_index(column->name, chosen->texts, chosen->text_count) >= 0;
        if (text ? is_label_name(column->name) : column->filled && !is_identifier(survey, column)) return false;
    }
    return !chosen->label_count;
}

/* Two columns with lists as long as each other: words, and their tags, of which fewer are different. */
static bool choose_lists(TaskColumns *chosen, const TableSurvey *survey)
{
    const SurveyColumn *lists[2];
    size_t found = 0;
    for (size_t c = 0; c < survey->count; c++)
        if (is_list(&survey->columns[c]) && found++ < 2) lists[found - 1] = &survey->columns[c];
    if (found != 2 || chosen->label_count || lists[0]->form.items != lists[1]->form.items ||
        lists[0]->distinct == lists[1]->distinct)
        return false;
    bool swapped = lists[0]->distinct < lists[1]->distinct;
    chosen->texts[chosen->text_count++] = lists[swapped]->name;
    chosen->labels[chosen->label_count++] = lists[!swapped]->name;
    return true;
}

/* By their names, else the only column of prose, or two if there is nothing else, else the only one with texts. */
static bool choose_texts(TaskColumns *chosen, TableSurvey *survey, const char *table, Diagnostics *diagnostics)
{
    for (size_t i = 0; i < sizeof text_names / sizeof *text_names; i++) {
        size_t found = 0, wanted = 0;
        for (; wanted < 2 && text_names[i][wanted]; wanted++)
            found += table_survey_column(survey, text_names[i][wanted]) &&
                     word_index(text_names[i][wanted], chosen->labels, chosen->label_count) < 0;
        if (found < wanted) continue;
        for (size_t k = 0; k < wanted; k++) chosen->texts[chosen->text_count++] = text_names[i][k];
        return true;
    }
    for (int strict = 1; strict >= 0; strict--) {
        size_t found = 0;
        for (size_t c = 0; c < survey->count; c++) {
            const SurveyColumn *column = &survey->columns[c];
            if (word_index(column->name, chosen->labels, chosen->label_count) >= 0 || is_identifier(survey, column))
                continue;
            if (strict ? !is_prose(survey, column)
                       : !column->filled || is_numeric(column) || is_label_name(column->name))
                continue;
            chosen->texts[found++ ? 1 : 0] = column->name;
        }
        chosen->text_count = found;
        if (found == 2 && strict && stands_alone(chosen, survey)) return true;
        if (found > 1)
            return refuse(survey, table, "--text COL, or --text COL,COL for pairs",
                          arena_format(&survey->arena, "several columns may hold the texts ('%s', '%s')",
                                       chosen->texts[0], chosen->texts[1]),
                          diagnostics);
        if (found || choose_lists(chosen, survey)) return true;
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
            if (word_index(column->name, chosen->texts, chosen->text_count) >= 0) continue;
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
        others += word_index(survey->columns[c].name, chosen->texts, chosen->text_count) < 0 &&
                  !is_identifier(survey, &survey->columns[c]);
    return (!others && task == TASK_COUNT) ||
           refuse(survey, table, "--label COL, or train without labels with --task mlm", "no column looks like labels",
                  diagnostics);
}

/* Whether the cells have words with blanks between, and a tag for each. */
static bool are_cut_words(const SurveyColumn *text, const SurveyColumn *label)
{
    static const char *const words[] = {"tokens", "words"}, *const tags[] = {"ner_tags", "tags", "labels"};
    return word_index(text->name, words, sizeof words / sizeof *words) >= 0 &&
           word_index(label->name, tags, sizeof tags / sizeof *tags) >= 0 && text->words == label->words &&
           text->words > text->filled;
}

/* Parts of the context. A column 'answer' with a few different texts, such as yes and no, has classes. */
static bool is_answer(const TaskColumns *chosen, const TableSurvey *survey, const SurveyColumn *label)
{
    enum { FEW = 20 };
    bool many = label->distinct > FEW || label->distinct * 2 > survey->rows;
    return chosen->text_count == 2 && strcmp(chosen->texts[0], "question") == 0 &&
           strcmp(chosen->texts[1], "context") == 0 &&
           (strcmp(label->name, "answers") == 0 ||
            (strcmp(label->name, "answer") == 0 && (many || table_survey_column(survey, "answer_start"))));
}

static Task task_of_numbers(TaskColumns *chosen, TableSurvey *survey, const SurveyColumn *label)
{
    bool whole = label->integral == label->numbers;
    chosen->reason = arena_format(&survey->arena, "'%s' has numbers from %g to %g%s", label->name, label->least,
                                  label->greatest, whole ? "; --task classes takes them as names of classes" : "");
    return TASK_REGRESSION;
}

static Task task_of_labels(TaskColumns *chosen, TableSurvey *survey)
{
    enum { MANY = 20 };
    Arena *arena = &survey->arena;
    if (!chosen->label_count) {
        chosen->reason = arena_format(arena, "%s without labels", chosen->text_count > 1 ? "two texts" : "texts");
        return chosen->text_count > 1 ? TASK_PAIRS : TASK_MASKED;
    }
    const SurveyColumn *label = table_survey_column(survey, chosen->labels[0]);
    if (is_answer(chosen, survey, label)) {
        chosen->reason = "question, context and answers";
        return TASK_ANSWERS;
    }
    if (chosen->label_count > 1) {
        chosen->reason = arena_format(arena, "%zu columns of 0 and 1, or false and true", chosen->label_count);
        return TASK_MULTI_LABEL;
    }
    const SurveyColumn *text = table_survey_column(survey, chosen->texts[0]);
    if ((is_list(label) && is_list(text)) || are_cut_words(text, label)) {
        chosen->reason = arena_format(arena, "'%s' has lists of words, '%s' their tags", text->name, label->name);
        return TASK_TOKENS;
    }
    if (is_list(label)) {
        chosen->reason = arena_format(arena, "'%s' has lists of labels", label->name);
        return TASK_MULTI_LABEL;
    }
    if (is_numeric(label) && label->whole < label->numbers) return task_of_numbers(chosen, survey, label);
    chosen->reason = arena_format(
        arena, "'%s' has %s%zu different %s", label->name, label->distinct > label->most_values ? "more than " : "",
        label->distinct - (label->distinct > label->most_values), is_numeric(label) ? "whole numbers" : "texts");
    if (is_numeric(label) && label->distinct > MANY)
        chosen->reason = arena_format(arena, "%s; --task regression takes them as numbers", chosen->reason);
    return TASK_CLASSES;
}

/* Of a column that no row fills, such as the inputs of instructions that need none, there is nothing to learn. */
static bool has_filled(TableSurvey *survey, const char *name)
{
    const SurveyColumn *column = table_survey_column(survey, name);
    return column && column->filled;
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
        while (count < 3 && names[i][count] && has_filled(survey, names[i][count])) count++;
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

/* A number that is none would make a name of a class of every other. */
static bool check_numbers(const TaskColumns *chosen, const TableSurvey *survey, Diagnostics *diagnostics)
{
    const SurveyColumn *label = chosen->label_count ? table_survey_column(survey, chosen->labels[0]) : NULL;
    if (chosen->task != TASK_CLASSES || !label->odd || label->whole == label->numbers ||
        label->numbers * 2 <= label->filled || label->distinct * 2 <= label->filled)
        return true;
    return diagnostics_error(diagnostics, EXIT_BAD_INPUT, label->odd_place,
                             "correct it or leave the row out; --task classes takes all values as names of classes",
                             "'%.40s' in column '%s' is not a number, but %zu of its %zu values are", label->odd,
                             label->name, label->numbers, label->filled);
}

bool task_choose(TaskColumns *chosen, TableSurvey *survey, const char *text, const char *label, Task task, bool decoder,
                 const char *table, Diagnostics *diagnostics)
{
    *chosen = (TaskColumns){.task = task, .texts_given = text, .labels_given = label};
    if (!take_names(chosen->texts, &chosen->text_count, text, "--text", survey, table, diagnostics) ||
        !take_names(chosen->labels, &chosen->label_count, label, "--label", survey, table, diagnostics))
        return false;
    for (size_t i = 0; i < chosen->label_count; i++)
        if (word_index(chosen->labels[i], chosen->texts, chosen->text_count) >= 0)
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
    if (chosen->task == TASK_ANSWERS && chosen->label_count == 1 && table_survey_column(survey, "answer_start"))
        chosen->labels[chosen->label_count++] = "answer_start";
    return task != TASK_COUNT || check_numbers(chosen, survey, diagnostics);
}
