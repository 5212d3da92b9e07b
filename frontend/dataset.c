#include "frontend/dataset.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/json.h"
#include "base/random.h"
#include "base/safetensors.h"
#include "frontend/tsv.h"

enum { NO_COLUMN = -1, LAST_COLUMN = -2, MAX_CLASSES = 1 << 20 };

typedef struct LabelName {
    const char *name;
    int label; /* -1: rows with it are left out */
} LabelName;

typedef struct Task {
    const char *name;
    int texts;
    int text_position[2], label_position; /* GLUE's */
    bool has_header;                      /* whether GLUE's files have one */
    LabelName labels[6];                  /* none: see resolve_labels */
    const char *label_names[3];           /* for the metadata */
} Task;

static const Task tasks[DATASET_TASK_COUNT] = {
    [DATASET_MNLI] = {"mnli",
                      2,
                      {8, 9},
                      LAST_COLUMN,
                      true,
                      {{"contradiction", 0}, {"entailment", 1}, {"neutral", 2}, {"-", -1}},
                      {"contradiction", "entailment", "neutral"}},
    [DATASET_MRPC] = {"mrpc",
                      2,
                      {3, 4},
                      0,
                      true,
                      {{"0", 0}, {"1", 1}, {"not_equivalent", 0}, {"equivalent", 1}},
                      {"not_equivalent", "equivalent"}},
    [DATASET_SST2] = {"sst2", 1, {0, NO_COLUMN}, 1, true, {{"0", 0}, {"1", 1}}, {"negative", "positive"}},
    [DATASET_PAIR] = {"pair", 2, {0, 1}, 2, false, {{0}}, {0}},
    [DATASET_SINGLE] = {"single", 1, {0, NO_COLUMN}, 1, false, {{0}}, {0}},
    [DATASET_MLM] = {"mlm", 1, {0, NO_COLUMN}, NO_COLUMN, false, {{0}}, {0}},
};

/* Where a row's parts stand; NO_COLUMN where there is none. */
typedef struct Columns {
    int text[2], label;
    size_t count; /* of the first line; 0: any */
} Columns;

/* The examples read so far; arrays are malloc'ed and hold `capacity` rows. */
typedef struct Examples {
    size_t count, capacity, length; /* `length` tokens each */
    int32_t *ids, *mask, *types;
    int32_t *token_labels; /* mlm: `length` a row */
    int32_t *labels;       /* else, where there are labels: one a row */
    TsvField *names;       /* of labels not yet numbered; into the mapped file */
} Examples;

typedef struct Job {
    Tokenizer *tokenizer;
    const DatasetOptions *options;
    const Task *task;
    TsvReader reader;
    Columns columns;
    Examples examples;
    TokenIds texts[2]; /* of the current row */
    DatasetSummary *summary;
    Buffer label_names; /* a JSON list; empty: labels are numbers */
} Job;

const char *dataset_task_name(DatasetTask task) { return tasks[task].name; }

bool dataset_find_task(const char *name, DatasetTask *task)
{
    for (int i = 0; i < DATASET_TASK_COUNT; i++)
        if (strcmp(tasks[i].name, name) == 0) {
            *task = (DatasetTask)i;
            return true;
        }
    return false;
}

/* ---- columns ---- */

static int find_column(const TsvReader *reader, const char *const *names)
{
    for (; *names; names++)
        for (size_t i = 0; i < reader->field_count; i++)
            if (tsv_field_is(reader->fields[i], *names)) return (int)i;
    return NO_COLUMN;
}

static const LabelName *find_label(const Task *task, TsvField field)
{
    for (const LabelName *label = task->labels; label->name; label++)
        if (tsv_field_is(field, label->name)) return label;
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

/* Decides from the first line, which stands in the reader, where everything is. *is_header: the line is no example. */
static bool find_columns(Job *job, bool *is_header)
{
    static const char *const first[] = {"sentence1", "#1 String", NULL},
                             *const second[] = {"sentence2", "#2 String", NULL},
                             *const only[] = {"sentence", "text", "sentence1", NULL},
                             *const labels[] = {"gold_label", "label", "Quality", NULL};
    const Task *task = job->task;
    bool mlm = job->options->task == DATASET_MLM;
    Columns *columns = &job->columns;
    columns->count = job->reader.field_count;
    columns->text[0] = find_column(&job->reader, task->texts == 2 ? first : only);
    columns->text[1] = task->texts == 2 || mlm ? find_column(&job->reader, second) : NO_COLUMN;
    columns->label = mlm ? NO_COLUMN : find_column(&job->reader, labels);
    bool named = columns->text[0] >= 0 || columns->text[1] >= 0 || columns->label >= 0;
    for (int i = 0; named && i < task->texts; i++)
        if (columns->text[i] < 0)
            return tsv_error(&job->reader, naming_hint(task), "names columns, but none is %s",
                             task->texts == 1 ? "sentence"
                             : i              ? "sentence2"
                                              : "sentence1");
    *is_header = named;
    if (named) return true;
    for (int i = 0; i < task->texts; i++) {
        columns->text[i] = glue_position(job, task->text_position[i]);
        if (columns->text[i] < 0)
            return tsv_error(&job->reader, naming_hint(task),
                             "the text is expected in column %d, but there are only %zu", task->text_position[i] + 1,
                             job->reader.field_count);
    }
    columns->label = glue_position(job, task->label_position);
    *is_header = task->has_header && !(columns->label >= 0 && find_label(task, job->reader.fields[columns->label]));
    if (mlm) columns->count = 0; /* plain text: a tab is nothing special */
    return true;
}

/* ---- rows ---- */

static void reserve_row(Examples *examples, bool mlm)
{
    if (examples->count < examples->capacity) return;
    size_t row;
    examples->capacity = examples->capacity ? 2 * examples->capacity : 256;
    if (!size_multiply(examples->length, sizeof(int32_t), &row)) memory_exhausted();
    examples->ids = memory_resize(examples->ids, examples->capacity, row);
    examples->mask = memory_resize(examples->mask, examples->capacity, row);
    examples->types = memory_resize(examples->types, examples->capacity, row);
    if (mlm) examples->token_labels = memory_resize(examples->token_labels, examples->capacity, row);
    examples->labels = memory_resize(examples->labels, examples->capacity, sizeof *examples->labels);
    examples->names = memory_resize(examples->names, examples->capacity, sizeof *examples->names);
}

/* Cuts tokens one by one from the longer text, from the second where they are equally long. */
static bool truncate_pair(size_t counts[2], size_t room)
{
    bool cut = false;
    for (; counts[0] + counts[1] > room; cut = true) counts[counts[0] > counts[1] ? 0 : 1]--;
    return cut;
}

/* Replaces 15% of the tokens at ids[first ... last - 1] of an example, at least one, for a model to guess: four in five
 * by [MASK], one in ten by any piece, the rest by themselves (Devlin et al. 2018). Framing is never masked. */
static void mask_tokens(const Job *job, int32_t *ids, int32_t *labels, size_t count, size_t first_end)
{
    RandomStream row =
        random_substream(random_stream(job->options->seed, "tokenize/mask"), (uint64_t)job->examples.count);
    RandomStream choices = random_substream(row, 1), replacements = random_substream(row, 2);
    uint32_t *positions = memory_allocate(2 * count * sizeof *positions), *order = positions + count;
    size_t candidates = 0;
    for (size_t i = 1; i + 1 < count; i++) /* between [CLS] and the last [SEP] */
        if (i != first_end) positions[candidates++] = (uint32_t)i;
    random_permutation(row, order, candidates);
    size_t masked = (candidates * 15 + 50) / 100;
    if (masked == 0 && candidates) masked = 1;
    for (size_t i = 0; i < masked; i++) {
        uint32_t at = positions[order[i]];
        labels[at] = ids[at];
        float choice = random_uniform(choices, i);
        if (choice < 0.8f)
            ids[at] = tokenizer_specials(job->tokenizer)->mask;
        else if (choice < 0.9f)
            ids[at] = (int32_t)random_below(replacements, i, (uint64_t)tokenizer_size(job->tokenizer));
    }
    free(positions);
}

/* Frames the current row's texts: [CLS] text [SEP], and text [SEP] again for a pair. */
static void add_example(Job *job, bool pair)
{
    Examples *examples = &job->examples;
    bool mlm = job->options->task == DATASET_MLM;
    reserve_row(examples, mlm);
    const TokenizerSpecials *specials = tokenizer_specials(job->tokenizer);
    size_t length = examples->length, at = examples->count * length, n = 0;
    int32_t *ids = examples->ids + at, *mask = examples->mask + at, *types = examples->types + at;
    size_t counts[2] = {job->texts[0].count, pair ? job->texts[1].count : 0};
    job->summary->truncated += truncate_pair(counts, length - (pair ? 3 : 2));
    ids[n++] = specials->classify;
    for (size_t i = 0; i < counts[0]; i++) ids[n++] = job->texts[0].items[i];
    size_t first_end = n;
    ids[n++] = specials->separate;
    if (pair) {
        for (size_t i = 0; i < counts[1]; i++) ids[n++] = job->texts[1].items[i];
        ids[n++] = specials->separate;
    }
    for (size_t i = 0; i < length; i++) {
        mask[i] = i < n;
        types[i] = i > first_end && i < n;
        if (i >= n) ids[i] = specials->pad;
    }
    if (mlm) {
        for (size_t i = 0; i < length; i++) examples->token_labels[at + i] = DATASET_IGNORED_LABEL;
        mask_tokens(job, ids, examples->token_labels + at, n, first_end);
    }
    examples->count++;
}

/* False if the row is to be left out, after reporting where that is an error. */
static bool read_label(Job *job, int32_t *label)
{
    TsvField field = job->reader.fields[job->columns.label];
    *label = 0;
    if (!job->task->labels[0].name) return true; /* numbered later */
    const LabelName *known = find_label(job->task, field);
    if (!known)
        return tsv_error(&job->reader, NULL, "'%.*s' is not a label of %s",
                         (int)(field.length < 40 ? field.length : 40), field.text, job->task->name);
    *label = known->label;
    job->summary->left_out += known->label < 0;
    return known->label >= 0;
}

static void read_row(Job *job)
{
    const Columns *columns = &job->columns;
    TsvReader *reader = &job->reader;
    int32_t label = 0;
    if (columns->count && reader->field_count != columns->count) {
        tsv_error(reader, NULL, "has %zu columns where the first line has %zu", reader->field_count, columns->count);
        return;
    }
    if (columns->label >= 0 && !read_label(job, &label)) return;
    bool pair = columns->text[1] >= 0;
    for (int t = 0; t < 1 + pair; t++) {
        TsvField field = reader->fields[columns->text[t]];
        job->texts[t].count = 0;
        if (!tokenizer_encode(job->tokenizer, field.text, field.length, &job->texts[t]))
            bug("the TSV reader let through what is not UTF-8");
        job->summary->tokens += job->texts[t].count;
        for (size_t i = 0; i < job->texts[t].count; i++)
            job->summary->unknown += job->texts[t].items[i] == tokenizer_specials(job->tokenizer)->unknown;
    }
    add_example(job, pair);
    job->examples.labels[job->examples.count - 1] = label;
    if (columns->label >= 0) job->examples.names[job->examples.count - 1] = reader->fields[columns->label];
}

/* ---- labels of tasks that do not say what theirs are ---- */

static int compare_fields(const void *a, const void *b)
{
    const TsvField *left = a, *right = b;
    size_t common = left->length < right->length ? left->length : right->length;
    int order = memcmp(left->text, right->text, common);
    if (order || left->length == right->length) return order;
    return left->length < right->length ? -1 : 1;
}

/* A whole number from 0 to MAX_CLASSES - 1. */
static bool is_class_number(TsvField field, int32_t *number)
{
    *number = 0;
    if (field.length == 0 || field.length > 7) return false;
    for (size_t i = 0; i < field.length; i++) {
        if (field.text[i] < '0' || field.text[i] > '9') return false;
        *number = *number * 10 + (field.text[i] - '0');
    }
    return *number < MAX_CLASSES;
}

/* Numbers stay as they are if all labels are numbers; else the names are numbered in byte order. */
static void resolve_labels(Job *job)
{
    Examples *examples = &job->examples;
    bool numbers = true;
    for (size_t i = 0; i < examples->count && numbers; i++)
        numbers = is_class_number(examples->names[i], &examples->labels[i]);
    if (numbers) return;
    TsvField *sorted = memory_allocate(examples->count * sizeof *sorted);
    memcpy(sorted, examples->names, examples->count * sizeof *sorted);
    qsort(sorted, examples->count, sizeof *sorted, compare_fields);
    size_t classes = 0;
    Arena arena = {0};
    for (size_t i = 0; i < examples->count; i++) {
        if (classes && compare_fields(&sorted[classes - 1], &sorted[i]) == 0) continue;
        buffer_append(&job->label_names, classes ? "," : "[", 1);
        json_print_string(&job->label_names, arena_string_n(&arena, sorted[i].text, sorted[i].length));
        sorted[classes++] = sorted[i];
    }
    buffer_append(&job->label_names, "]", 1);
    for (size_t i = 0; i < examples->count; i++) {
        const TsvField *found = bsearch(&examples->names[i], sorted, classes, sizeof *sorted, compare_fields);
        examples->labels[i] = (int32_t)(found - sorted);
    }
    if (classes > 1000 || classes * 2 > examples->count + 4)
        diagnostics_warning(job->reader.diagnostics, PLACE_FILE(job->reader.path), NULL,
                            "%zu different labels in %zu examples: is the label column the right one?", classes,
                            examples->count);
    arena_free(&arena);
    free(sorted);
}

static void name_labels(Job *job)
{
    const Task *task = job->task;
    if (!task->labels[0].name) {
        resolve_labels(job);
        return;
    }
    for (size_t i = 0; i < 3 && task->label_names[i]; i++) {
        buffer_append(&job->label_names, i ? "," : "[", 1);
        json_print_string(&job->label_names, task->label_names[i]);
    }
    buffer_append(&job->label_names, "]", 1);
}

/* ---- the whole ---- */

static bool read_rows(Job *job)
{
    bool is_header = false, columns_known = false;
    while (tsv_next(&job->reader)) {
        if (!columns_known) {
            if (!find_columns(job, &is_header)) return false;
            columns_known = true;
            if (is_header) continue;
        }
        read_row(job);
    }
    if (job->reader.errors) return false;
    Place place = PLACE_FILE(job->reader.path);
    if (!job->examples.count)
        return diagnostics_error(job->reader.diagnostics, EXIT_BAD_INPUT, place, NULL, "holds no examples");
    if (job->summary->left_out)
        diagnostics_warning(job->reader.diagnostics, place, NULL, "%zu rows without an agreed label were left out",
                            job->summary->left_out);
    if (job->columns.label >= 0)
        name_labels(job);
    else if (job->options->task != DATASET_MLM)
        diagnostics_warning(job->reader.diagnostics, place, NULL, "has no label column: no labels are written");
    return true;
}

static Hash hash_vocabulary(const Tokenizer *tokenizer)
{
    Hash hash = hash_bytes("", 0);
    for (int32_t id = 0; id < tokenizer_size(tokenizer); id++) {
        const char *piece = tokenizer_piece(tokenizer, id);
        hash = hash_extend(hash, piece, strlen(piece) + 1);
    }
    return hash;
}

static bool write_examples(const Job *job, const char *output, Diagnostics *diagnostics)
{
    const Examples *examples = &job->examples;
    SafeTensorsWriter *writer = safetensors_writer();
    char text[33];
    safetensors_writer_metadata(writer, "format", "skycc.data/1");
    safetensors_writer_metadata(writer, "task", job->task->name);
    snprintf(text, sizeof text, "%zu", examples->length);
    safetensors_writer_metadata(writer, "max_length", text);
    snprintf(text, sizeof text, "%ld", (long)tokenizer_size(job->tokenizer));
    safetensors_writer_metadata(writer, "vocabulary_size", text);
    safetensors_writer_metadata(writer, "vocabulary_hash", hash_format(hash_vocabulary(job->tokenizer), text));
    if (job->label_names.size) safetensors_writer_metadata(writer, "labels", buffer_text(&job->label_names));
    const Shape matrix = {2, {(int64_t)examples->count, (int64_t)examples->length}};
    const Shape vector = {1, {(int64_t)examples->count}};
    safetensors_writer_add(writer, "input_ids", DTYPE_I32, &matrix, examples->ids);
    safetensors_writer_add(writer, "attention_mask", DTYPE_I32, &matrix, examples->mask);
    safetensors_writer_add(writer, "token_type_ids", DTYPE_I32, &matrix, examples->types);
    if (examples->token_labels)
        safetensors_writer_add(writer, "labels", DTYPE_I32, &matrix, examples->token_labels);
    else if (job->columns.label >= 0)
        safetensors_writer_add(writer, "labels", DTYPE_I32, &vector, examples->labels);
    return safetensors_write(writer, output, diagnostics);
}

bool dataset_tokenize(Tokenizer *tokenizer, const DatasetOptions *options, const char *tsv, const char *output,
                      DatasetSummary *summary, Diagnostics *diagnostics)
{
    *summary = (DatasetSummary){0};
    if (options->max_length < DATASET_LEAST_LENGTH || options->max_length > DATASET_MOST_LENGTH)
        bug("examples of %d tokens", options->max_length);
    if (options->task == DATASET_MLM && tokenizer_specials(tokenizer)->mask < 0)
        return diagnostics_error(diagnostics, EXIT_BAD_INPUT, PLACE_NONE, NULL, "the vocabulary has no piece [MASK]");
    Job job = {.tokenizer = tokenizer, .options = options, .task = &tasks[options->task], .summary = summary};
    job.examples.length = (size_t)options->max_length;
    bool ok = tsv_open(&job.reader, tsv, diagnostics) && read_rows(&job) && write_examples(&job, output, diagnostics);
    summary->examples = job.examples.count;
    tsv_close(&job.reader);
    free(job.examples.ids);
    free(job.examples.mask);
    free(job.examples.types);
    free(job.examples.token_labels);
    free(job.examples.labels);
    free(job.examples.names);
    free(job.texts[0].items);
    free(job.texts[1].items);
    buffer_free(&job.label_names);
    return ok;
}
