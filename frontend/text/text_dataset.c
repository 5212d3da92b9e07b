#include "frontend/text/text_dataset.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/outputs.h"
#include "base/parts.h"
#include "base/text.h"
#include "frontend/text/cells.h"
#include "frontend/text/dataset_job.h"
#include "runtime/program/label_names.h"

enum { NO_COLUMN = -1, LAST_COLUMN = -2 };

typedef struct LabelName {
    const char *name;
    int label; /* -1: rows with it are left out */
} LabelName;

static const LabelName mnli[] = {{"contradiction", 0}, {"entailment", 1}, {"neutral", 2}, {"-", -1}, {0}},
                       mrpc[] = {{"0", 0}, {"1", 1}, {"not_equivalent", 0}, {"equivalent", 1}, {0}},
                       sst2[] = {{"0", 0}, {"1", 1}, {0}};

typedef struct Task {
    const char *name;
    int texts;
    int text_position[2], label_position; /* GLUE's */
    bool has_header;                      /* whether GLUE's files have one */
    const LabelName *labels;              /* NULL: any, see labels.h */
    const char *label_names[3];           /* for the metadata */
} Task;

static const Task tasks[DATASET_TASK_COUNT] = {
    [DATASET_MNLI] = {"mnli", 2, {8, 9}, LAST_COLUMN, true, mnli, {"contradiction", "entailment", "neutral"}},
    [DATASET_MRPC] = {"mrpc", 2, {3, 4}, 0, true, mrpc, {"not_equivalent", "equivalent"}},
    [DATASET_SST2] = {"sst2", 1, {0, NO_COLUMN}, 1, true, sst2, {"negative", "positive"}},
    [DATASET_PAIR] = {"pair", 2, {0, 1}, 2, false, NULL, {0}},
    [DATASET_SINGLE] = {"single", 1, {0, NO_COLUMN}, 1, false, NULL, {0}},
    [DATASET_MLM] = {"mlm", 1, {0, NO_COLUMN}, NO_COLUMN, false, NULL, {0}},
    [DATASET_COLUMNS] = {"columns", 0, {NO_COLUMN, NO_COLUMN}, NO_COLUMN, true, NULL, {0}},
    [DATASET_NER] = {"ner", 1, {0, NO_COLUMN}, 1, true, NULL, {0}},
    [DATASET_QA] = {"qa", 2, {NO_COLUMN, NO_COLUMN}, NO_COLUMN, true, NULL, {0}},
    [DATASET_PAIRS] = {"pairs", 2, {NO_COLUMN, NO_COLUMN}, NO_COLUMN, true, NULL, {0}},
    [DATASET_MULTI_LABEL] = {"multi-label", 0, {NO_COLUMN, NO_COLUMN}, NO_COLUMN, true, NULL, {0}},
    [DATASET_CHAT] = {"chat", 1, {NO_COLUMN, NO_COLUMN}, NO_COLUMN, true, NULL, {0}},
    [DATASET_LM] = {"lm", 1, {NO_COLUMN, NO_COLUMN}, NO_COLUMN, true, NULL, {0}},
};

/* Named columns, where the options name none. */
static const struct {
    const char *texts, *labels;
} usual_columns[DATASET_TASK_COUNT] = {[DATASET_NER] = {"tokens", "ner_tags"},
                                       [DATASET_QA] = {"question,context", "answers"},
                                       [DATASET_CHAT] = {"messages", NULL},
                                       [DATASET_LM] = {"text", NULL}};

/* Tokens are their own labels. */
static bool predicts_next(const Job *job)
{
    return job->options->task == DATASET_CHAT || job->options->task == DATASET_LM;
}

static const Task *task_of(const Job *job) { return &tasks[job->options->task]; }

bool dataset_find_task(const char *name, DatasetTask *task)
{
    for (*task = 0; *task < DATASET_TASK_COUNT; ++*task)
        if (strcmp(tasks[*task].name, name) == 0) return true;
    return false;
}

/* ---- columns ---- */

static int find_column(const TableReader *reader, const char *const *names)
{
    for (; *names; names++)
        for (size_t i = 0; i < reader->field_count; i++)
            if (table_field_is(reader->fields[i], *names)) return (int)i;
    return NO_COLUMN;
}

static const LabelName *find_label(const Task *task, TableField field)
{
    for (const LabelName *label = task->labels; label && label->name; label++)
        if (table_field_is(field, label->name)) return label;
    return NULL;
}

static int glue_position(const Job *job, int position)
{
    int count = (int)job->reader.field_count;
    if (position == LAST_COLUMN) return count - 1;
    return position < count ? position : NO_COLUMN;
}

static const char *naming_hint(const Task *task)
{
    return task->texts == 2 ? "name the columns sentence1, sentence2 and label in the first line"
                            : "name the columns sentence and label in the first line";
}

/* Adds the names between the commas of an option. */
static bool cut_names(Job *job, const char *option, const char *list)
{
    const char *rest = list;
    for (const char *name; (name = table_next_name(&rest, &job->arena));) {
        if (!*name)
            return usage_error(job->reader.diagnostics, NULL, "%s takes column names separated by commas, not '%s'",
                               option, list);
        array_push(job->names, job->name_count, job->name_capacity, name);
    }
    return true;
}

static bool name_columns(Job *job)
{
    const DatasetOptions *options = job->options;
    bool usual = !options->text_columns;
    if (!cut_names(job, "--text", usual ? usual_columns[options->task].texts : options->text_columns)) return false;
    job->text_count = job->name_count;
    if (job->text_count > (options->task == DATASET_CHAT ? 3 : options->task == DATASET_LM ? 1 : 2))
        return usage_error(job->reader.diagnostics, "--text premise,hypothesis",
                           "--text takes one column name, or two separated by a comma, not '%s'",
                           options->text_columns);
    const char *label = usual && !options->label_column ? usual_columns[options->task].labels : options->label_column;
    if (!cut_names(job, "--label", label)) return false;
    size_t labels = job->label_count = job->name_count - job->text_count;
    if (options->task == DATASET_QA) labels = 0;
    if (labels > 1 && options->labels_of)
        return usage_error(job->reader.diagnostics, "leave out --labels-of",
                           "several labels take their names from their columns");
    if (labels > 1)
        job->label_set =
            (LabelSet){.names = job->names + job->text_count, .count = labels, .measured = options->regression};
    if (job->reader.format == TABLE_JSONL) table_select(&job->reader, job->names, job->name_count);
    return true;
}

static bool refuse_column(Job *job, bool twice, const char *name)
{
    const TableReader *reader = &job->reader;
    size_t count = 0, capacity = 0;
    const char **there = NULL, *key;
    json_t *value;
    json_object_foreach(reader->object, key, value) array_push(there, count, capacity, key);
    for (size_t i = 0; !reader->object && i < reader->field_count; i++) {
        const char *column = arena_string_n(&job->arena, reader->fields[i].text, reader->fields[i].length);
        array_push(there, count, capacity, column);
    }
    const char *nearest = twice ? NULL : text_nearest(name, there, count);
    const char *hint = arena_format(&job->arena, "the columns are %s", label_names_some(there, count, &job->arena));
    for (const char *c = count == 1 && !reader->object ? ",;\t" : ""; *c; c++)
        if (strchr(there[0], *c))
            hint = arena_format(&job->arena, "%s; are its columns between '%s'? %s", hint,
                                *c == '\t' ? "tabs" : (char[]){*c, 0},
                                *c == ','    ? "--format csv"
                                : *c == '\t' ? "--format tsv"
                                             : "save it with commas between");
    if (job->options->task == DATASET_NER && !reader->object)
        hint = arena_format(&job->arena, "%s; a file with a word and its tag a line needs a name in .conll", hint);
    const char *problem = twice            ? "names the column '%s' twice%s%s%s"
                          : reader->object ? "has no '%s'%s%s%s"
                                           : "names no column '%s'%s%s%s";
    const char *message = arena_format(&job->arena, problem, name, nearest ? ": did you mean '" : "",
                                       nearest ? nearest : "", nearest ? "'?" : "");
    table_error(&job->reader, hint, "%s", message);
    free(there);
    return false;
}

/* `at`: where the names are. */
static void take_columns(Job *job, const int *at)
{
    job->columns.text[0] = at[0];
    job->columns.text[1] = job->text_count > 1 ? at[1] : NO_COLUMN;
    job->columns.text[2] = job->text_count > 2 ? at[2] : NO_COLUMN;
    job->columns.labels = at + job->text_count;
    job->columns.label = job->name_count > job->text_count ? at[job->text_count] : NO_COLUMN;
}

/* Finds the named columns in the first line, which stands in the reader. */
static bool find_named_columns(Job *job)
{
    int *at = arena_new_array(&job->arena, int, job->name_count);
    for (size_t n = 0; n < job->name_count; n++) {
        at[n] = NO_COLUMN;
        for (size_t i = 0; i < job->reader.field_count; i++) {
            if (!table_field_is(job->reader.fields[i], job->names[n])) continue;
            if (at[n] >= 0) return refuse_column(job, true, job->names[n]);
            at[n] = (int)i;
        }
        if (at[n] < 0) return refuse_column(job, false, job->names[n]);
    }
    job->columns.count = job->reader.field_count;
    take_columns(job, at);
    if (job->options->task == DATASET_CHAT) job_find_extras(job);
    return true;
}

/* Finds all columns by the first line, which the reader holds. *is_header: the line is not an example. */
static bool find_columns(Job *job, bool *is_header)
{
    static const char *const first[] = {"sentence1", "#1 String", NULL},
                             *const second[] = {"sentence2", "#2 String", NULL},
                             *const only[] = {"sentence", "text", "sentence1", NULL},
                             *const labels[] = {"gold_label", "label", "Quality", NULL};
    const Task *task = task_of(job);
    bool mlm = job->options->task == DATASET_MLM;
    Columns *columns = &job->columns;
    columns->count = job->reader.field_count;
    columns->text[0] = find_column(&job->reader, task->texts == 2 ? first : only);
    columns->text[1] = task->texts == 2 || mlm ? find_column(&job->reader, second) : NO_COLUMN;
    columns->label = mlm ? NO_COLUMN : find_column(&job->reader, labels);
    bool named = columns->text[0] >= 0 || columns->text[1] >= 0 || columns->label >= 0;
    for (int i = 0; named && i < task->texts; i++)
        if (columns->text[i] < 0)
            return table_error(&job->reader, naming_hint(task), "names columns, but none is %s",
                               task->texts == 1 ? "sentence"
                               : i              ? "sentence2"
                                                : "sentence1");
    *is_header = named;
    if (named) return true;
    for (int i = 0; i < task->texts; i++) {
        columns->text[i] = glue_position(job, task->text_position[i]);
        if (columns->text[i] < 0)
            return table_error(&job->reader, naming_hint(task),
                               "the text must be in column %d, but the row has only %zu", task->text_position[i] + 1,
                               job->reader.field_count);
    }
    columns->label = glue_position(job, task->label_position);
    *is_header = task->has_header && !(columns->label >= 0 && find_label(task, job->reader.fields[columns->label]));
    if (mlm) columns->count = 0; /* plain text: a tab is nothing special */
    return true;
}

/* ---- rows ---- */

/* By the first row: a list of labels stands in the cell. */
static bool takes_lists(const Job *job, TableField field)
{
    if (job->list_count || job->labels.row_count) return job->list_count;
    if (job->options->task != DATASET_COLUMNS || !field.text) return job->options->task == DATASET_MULTI_LABEL;
    json_auto_t *list = cell_read(field);
    return json_is_array(list);
}

/* False if the row is to be left out, after reporting where that is an error. */
static bool read_label(Job *job)
{
    TableField field = job->reader.fields[job->columns.label];
    if (job->label_set.count) return label_set_add(&job->label_set, &job->reader, job->columns.labels);
    if (takes_lists(job, field)) return job_read_list(job, field);
    if (!task_of(job)->labels) return labels_add(&job->labels, &job->reader, field);
    const LabelName *known = find_label(task_of(job), field);
    if (!known)
        return table_error(&job->reader, NULL, "'%.*s' is not a label of %s",
                           (int)(field.length < 40 ? field.length : 40), field.text, task_of(job)->name);
    job->summary->left_out += known->label < 0;
    if (known->label < 0) return false;
    LabelColumn *labels = &job->labels;
    array_push(labels->rows, labels->row_count, labels->row_capacity, (uint32_t)known->label);
    return true;
}

static void read_texts(Job *job)
{
    bool pair = job->columns.text[1] >= 0;
    size_t begin[2];
    if (job->columns.label >= 0 && !read_label(job)) return;
    for (int t = 0; t < 1 + pair; t++) {
        TableField field = job->reader.fields[job->columns.text[t]];
        job->texts[t].count = 0;
        job_encode(job, t, field.text, field.length);
    }
    job_add_example(job, job->texts, pair, begin);
}

static void read_row(Job *job)
{
    const Columns *columns = &job->columns;
    TableReader *reader = &job->reader;
    DatasetTask task = job->options->task;
    for (int t = 0; t < 3 && t < (int)(job->text_count ? job->text_count : 2) && columns->text[t] >= 0; t++) {
        const TableField *field = &reader->fields[columns->text[t]];
        bool input = task == DATASET_CHAT && t == 1 && job->text_count == 3; /* not all instructions have one */
        if (input && !field->text) continue;
        if (!field->text || (field->nested && task != DATASET_NER && task != DATASET_CHAT)) {
            table_error(reader, field->text ? "if it is a list of words, join them by blanks into one text" : NULL,
                        field->text ? "'%s' is neither text nor a number" : "has no '%s'", job->names[t]);
            return;
        }
    }
    if (task == DATASET_NER)
        job_read_words(job);
    else if (task == DATASET_QA)
        job_read_answers(job);
    else if (task == DATASET_CHAT)
        job_read_chat(job);
    else if (task == DATASET_LM)
        job_add_document(job, reader->fields[columns->text[0]].text, reader->fields[columns->text[0]].length);
    else
        read_texts(job);
}

static bool name_labels(Job *job)
{
    const Task *task = task_of(job);
    Examples *examples = &job->examples;
    LabelSet *set = &job->label_set;
    DatasetSummary *summary = job->summary;
    if (set->count) {
        examples->reals = set->values;
        examples->reals_per_row = set->count;
        set->values = NULL;
        label_names_print(&job->label_names, set->names, set->count);
        label_set_describe(set, summary->labels, sizeof summary->labels);
    } else if (job->list_ends || job->options->task == DATASET_NER) {
        if (!job_resolve_lists(job)) return false;
        labels_describe(&job->labels, &job->label_names, summary->labels, sizeof summary->labels);
    } else if (!task->labels) {
        labels_resolve(&job->labels, job->reader.path, &examples->parts[PART_CLASSES], &examples->reals,
                       &job->label_names, job->reader.diagnostics);
        labels_describe(&job->labels, &job->label_names, summary->labels, sizeof summary->labels);
    } else {
        examples->parts[PART_CLASSES] = memory_allocate((examples->count + 1) * sizeof(int32_t));
        memcpy(examples->parts[PART_CLASSES], job->labels.rows, examples->count * sizeof(int32_t));
        size_t names = 0;
        while (names < 3 && task->label_names[names]) names++;
        label_names_print(&job->label_names, task->label_names, names);
    }
    return true;
}

/* ---- the whole ---- */

static bool check_length(const Job *job)
{
    size_t least = tokenizer_least_length(job->tokenizer, job->columns.text[1] >= 0);
    return job->examples.length >= least ||
           usage_error(job->reader.diagnostics, NULL,
                       "--max-length %zu leaves no room for text: this tokenizer needs %zu", job->examples.length,
                       least);
}

static void use_parts(Job *job)
{
    DatasetTask task = job->options->task;
    bool labelled = job->columns.label >= 0;
    for (ExamplePart part = PART_IDS; part <= PART_LENGTHS; part++)
        if (part <= PART_TYPES || part == PART_LENGTHS || task == DATASET_PAIRS) examples_use(&job->examples, part);
    for (ExamplePart part = PART_START; part <= PART_TEXT_END; part++)
        if (task == DATASET_QA && (labelled || part == PART_ROW)) examples_use(&job->examples, part);
    if (task == DATASET_MLM || predicts_next(job) || (task == DATASET_NER && labelled))
        examples_use(&job->examples, PART_TOKENS);
}

/* By the first row, which the reader holds. *is_header: it is not an example. */
static bool settle_columns(Job *job, bool *is_header)
{
    TableFormat format = job->reader.format;
    *is_header = format != TABLE_JSONL && format != TABLE_CONLL;
    if (format == TABLE_CONLL) {
        bool labelled = job->reader.field_count > 1 && !job->options->unlabelled;
        job->columns = (Columns){{0, NO_COLUMN}, labelled ? 1 : NO_COLUMN, NULL, job->reader.field_count};
    } else if (format == TABLE_JSONL) {
        int *at = arena_new_array(&job->arena, int, job->name_count);
        for (size_t n = 0; n < job->name_count; n++) {
            at[n] = (int)n;
            bool input = job->options->task == DATASET_CHAT && n == 1 && job->text_count == 3; /* not in all rows */
            if (!input && !json_object_get(job->reader.object, job->names[n]))
                return refuse_column(job, false, job->names[n]);
        }
        take_columns(job, at);
    } else if (!(job->name_count ? find_named_columns(job) : find_columns(job, is_header)))
        return false;
    if (!job->examples.count) use_parts(job);
    return check_length(job);
}

/* One document, not a table of them. */
static bool is_plain_text(const Job *job)
{
    return job->options->task == DATASET_LM && job->reader.format == TABLE_TSV && !job->options->text_columns;
}

static bool read_table(Job *job, bool *is_header)
{
    bool columns_known = false;
    if (is_plain_text(job)) {
        job->columns = (Columns){.text = {NO_COLUMN, NO_COLUMN, NO_COLUMN}, .label = NO_COLUMN};
        if (!job->examples.count) use_parts(job);
        job->reader.line = 1;
        job_add_document(job, job->reader.bytes, job->reader.size);
        return !job->reader.errors;
    }
    while (table_next(&job->reader)) {
        if (!columns_known) {
            if (!settle_columns(job, is_header)) return false;
            columns_known = true;
            job->reader.width = job->columns.count;
            if (*is_header) continue;
        }
        read_row(job);
    }
    return !job->reader.errors;
}

/* Whether a table of words that no suffix tells about has a line for each word. */
static bool has_word_lines(const TableReader *reader)
{
    const char *name = usual_columns[DATASET_NER].texts, *text = reader->bytes + reader->position;
    size_t rest = reader->size - reader->position;
    const char *stop = memchr(text, '\n', rest);
    return !memmem(text, stop ? (size_t)(stop - text) : rest, name, strlen(name));
}

static bool open_table(Job *job, const char *table)
{
    const DatasetOptions *options = job->options;
    Diagnostics *diagnostics = job->reader.diagnostics;
    if (!table_open(&job->reader, table, options->format, diagnostics) ||
        (options->encoding && !table_decode(&job->reader, options->encoding)))
        return false;
    bool words = options->task == DATASET_NER;
    if (words && !options->text_columns && job->reader.format == TABLE_TSV && has_word_lines(&job->reader))
        job->reader.format = TABLE_CONLL;
    if (!words && job->reader.format == TABLE_CONLL)
        return usage_error(diagnostics, NULL, "words with tags need --task ner");
    if (job->reader.format != TABLE_TSV && !options->text_columns && options->task < DATASET_COLUMNS)
        return usage_error(diagnostics, NULL, "name the columns of CSV and JSON lines: --text NAME, --label NAME");
    return true;
}

static bool read_rows(Job *job)
{
    bool is_header = false;
    if (!read_table(job, &is_header)) return false;
    for (const char *const *more = job->options->more_tables; more && *more; more++) {
        table_close(&job->reader);
        if (!open_table(job, *more)) return false;
        if (job->reader.format == TABLE_JSONL) table_select(&job->reader, job->names, job->name_count);
        if (!read_table(job, &is_header)) return false;
    }
    Place place = PLACE_FILE(job->reader.path);
    if (!job->examples.count)
        return diagnostics_error(job->reader.diagnostics, EXIT_BAD_INPUT, place, NULL, "holds no examples%s",
                                 predicts_next(job) && job->summary->left_out
                                     ? ": no response begins before the last token that is kept (--max-length)"
                                 : !job->reader.size                    ? ": the file is empty"
                                 : !job->summary->left_out && is_header ? ": it has a header, but no rows"
                                                                        : "");
    if (job->summary->left_out)
        diagnostics_warning(job->reader.diagnostics, place, predicts_next(job) ? "raise --max-length" : NULL,
                            predicts_next(job) ? "%zu rows were left out: their first response begins after the last "
                                                 "token that is kept"
                                               : "%zu rows without an agreed label were left out",
                            job->summary->left_out);
    if (job->searched)
        diagnostics_warning(job->reader.diagnostics, place, "give {\"text\": ..., \"answer_start\": ...} to choose",
                            "%zu answers have no answer_start: skycc takes the first place where they stand",
                            job->searched);
    if (job->options->task == DATASET_QA)
        job->summary->rows = job->table_rows;
    else if (job->columns.label >= 0)
        return name_labels(job);
    else if (job->options->task != DATASET_MLM && !predicts_next(job) && job->options->task != DATASET_PAIRS &&
             !job->options->unlabelled)
        diagnostics_warning(job->reader.diagnostics, place, NULL,
                            job->name_count && job->reader.format != TABLE_CONLL
                                ? "no --label is given: no labels are written"
                                : "has no label column: no labels are written");
    return true;
}

/* The texts of these examples' rows, with which answers are compared. */
static void add_texts(const Job *job, const uint32_t *rows, size_t count, Arena *copies, SafeTensorsWriter *writer)
{
    char *bytes = arena_allocate(copies, job->answer_texts.size + 1);
    int32_t former = -1;
    size_t size = 0;
    for (size_t i = 0; i < count; i++) {
        int32_t row = *examples_at(&job->examples, PART_ROW, rows[i]);
        size_t begin = row ? job->text_ends[row - 1] : 0, end = job->text_ends[row];
        if (row != former) memcpy(bytes + size, job->answer_texts.bytes + begin, end - begin), size += end - begin;
        former = row;
    }
    safetensors_writer_add(writer, "texts", DTYPE_U8, &(Shape){1, {(int64_t)size}}, bytes);
}

static bool write_file(const Job *job, const uint32_t *rows, size_t count, const char *output, Diagnostics *diagnostics)
{
    SafeTensorsWriter *writer = safetensors_writer();
    FREED_WITH(arena_free) Arena copies = {0};
    char text[33];
    safetensors_writer_metadata(writer, "format", "skycc.data/1");
    safetensors_writer_metadata(writer, "task", task_of(job)->name);
    snprintf(text, sizeof text, "%zu", job->examples.length);
    safetensors_writer_metadata(writer, "max_length", text);
    snprintf(text, sizeof text, "%ld", (long)tokenizer_size(job->tokenizer));
    safetensors_writer_metadata(writer, "vocabulary_size", text);
    safetensors_writer_metadata(writer, "vocabulary_hash", hash_format(tokenizer_hash(job->tokenizer), text));
    if (job->label_names.size) safetensors_writer_metadata(writer, "labels", buffer_text(&job->label_names));
    if (job->label_set.count || job->list_ends)
        safetensors_writer_metadata(writer, "problem_type", job->label_set.measured ? "regression" : LABELS_SEVERAL);
    if (job->labels.vectors) safetensors_writer_metadata(writer, LABELS_VECTORS, "true");
    examples_write(&job->examples, rows, count, &copies, writer);
    if (job->text_end_count) add_texts(job, rows, count, &copies, writer);
    return safetensors_write(writer, output, diagnostics);
}

char *dataset_holdout_path(const char *output)
{
    size_t stem = text_stem(output, ".safetensors");
    Buffer path = {0};
    buffer_print(&path, "%.*s.holdout%s", (int)stem, output, output + stem);
    return path.bytes;
}

/* The rows that are not held out. */
static bool write_others(Job *job, const uint32_t *rows, size_t count, const char *output, Diagnostics *diagnostics)
{
    if (!job->options->balance) return write_file(job, rows, count, output, diagnostics);
    size_t balanced;
    FREED uint32_t *list = examples_balance(&job->examples, rows, count, job->options->seed, &balanced);
    bool ok = write_file(job, list, balanced, output, diagnostics);
    job->summary->repeated = balanced - count;
    return ok;
}

/* All rows, or the rows held out and the others in two files. */
static bool write_files(Job *job, const char *output, Diagnostics *diagnostics)
{
    size_t rows = examples_table_rows(&job->examples), examples = job->examples.count;
    double wanted = job->options->holdout;
    double held = wanted < 1 ? floor(wanted * (double)rows + 0.5) : wanted;
    if (wanted > 0 && (held < 1 || held >= (double)rows))
        return input_error(diagnostics, job->reader.path, NULL, "has %zu examples: --holdout leaves none %s", rows,
                           held < 1 ? "to hold out" : "to train on");
    if (job->options->balance && !job->examples.parts[PART_CLASSES])
        return input_error(diagnostics, job->reader.path, NULL,
                           "--balance needs one class per row, but these rows have %s",
                           job->examples.reals_per_row        ? "several labels"
                           : job->examples.parts[PART_TOKENS] ? "labels per token"
                           : job->examples.reals              ? "values"
                                                              : "no labels");
    FREED uint32_t *order = memory_allocate(examples * sizeof *order);
    size_t count = examples_split(&job->examples, (size_t)held, job->options->stratified, job->options->seed, order);
    FREED char *path = dataset_holdout_path(output);
    outputs_hold(); /* of two splits, rows would be in both */
    bool ok = (!count || write_file(job, order, count, path, diagnostics)) &&
              write_others(job, order + count, examples - count, output, diagnostics);
    ok = outputs_release(ok, diagnostics);
    job->summary->held_out = count;
    return ok;
}

static bool prepare(Job *job, const char *table)
{
    const DatasetOptions *options = job->options;
    if (options->regression || options->classes) job->labels.kind = options->classes ? LABELS_NAMES : LABELS_REALS;
    return open_table(job, table) && name_columns(job) &&
           (!options->labels_of ||
            labels_of_data(&job->labels, options->labels_of, tokenizer_hash(job->tokenizer), job->reader.diagnostics));
}

bool dataset_tokenize(Tokenizer *tokenizer, const DatasetOptions *options, const char *table, const char *output,
                      DatasetSummary *summary, Diagnostics *diagnostics)
{
    *summary = (DatasetSummary){0};
    if (options->max_length < DATASET_LEAST_LENGTH || options->max_length > DATASET_MOST_LENGTH)
        bug("examples of %d tokens", options->max_length);
    bool masked = options->task == DATASET_MLM;
    if (masked && tokenizer_specials(tokenizer)->mask < 0)
        return diagnostics_error(diagnostics, EXIT_BAD_INPUT, PLACE_NONE, NULL,
                                 "the vocabulary has no piece for masks");
    Job job = {.tokenizer = tokenizer, .options = options, .summary = summary};
    job.examples.length = (size_t)options->max_length;
    job.is_text = memory_allocate(job.examples.length * sizeof *job.is_text);
    job.reader.diagnostics = diagnostics;
    bool ok = prepare(&job, table) && read_rows(&job) && write_files(&job, output, diagnostics);
    summary->examples = job.examples.count;
    table_close(&job.reader);
    examples_free(&job.examples);
    labels_free(&job.labels);
    label_set_free(&job.label_set);
    free(job.names);
    free(job.list_ends);
    free(job.text_ends);
    buffer_free(&job.answer_texts);
    free(job.token_labels.items);
    arena_free(&job.arena);
    arena_free(&job.row_arena);
    free(job.is_text);
    free(job.texts[0].items);
    free(job.texts[1].items);
    buffer_free(&job.label_names);
    return ok;
}
