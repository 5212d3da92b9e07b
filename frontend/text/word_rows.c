/* Rows whose labels are lists: a tag for every word, or any number of labels for a text. */
#include <stdlib.h>
#include <string.h>

#include "frontend/text/cells.h"
#include "frontend/text/dataset_job.h"
#include "runtime/program/label_names.h"

enum { NO_LABEL = -1 };

static json_t *read_list(Job *job, int column, const char *name)
{
    json_t *list = cell_words(job->reader.fields[column], job->reader.format);
    if (!list)
        table_error(&job->reader, "write [\"a\", \"b\"], or words with blanks between", "'%s' is not a list", name);
    return list;
}

/* The next word as a library cuts words apart. */
static bool add_word(Job *job, const char *word, const char *tag)
{
    TokenIds *ids = &job->texts[0], *labels = &job->token_labels;
    size_t before = ids->count;
    int32_t label = NO_LABEL;
    if (tag) {
        if (!labels_add(&job->labels, &job->reader, (TableField){.text = tag, .length = strlen(tag)})) return false;
        label = (int32_t)job->labels.row_count - 1;
    }
    FREED char *spelled = tokenizer_spell_word(job->tokenizer, word, strlen(word));
    job_encode(job, 0, spelled, strlen(spelled));
    for (size_t i = before; i < ids->count; i++)
        array_push(labels->items, labels->count, labels->capacity, i == before ? label : NO_LABEL);
    return true;
}

static void add_words(Job *job, const json_t *words, const json_t *tags)
{
    size_t count = json_array_size(words), begin[2];
    char numbers[2][32];
    if (tags && json_array_size(tags) != count) {
        table_error(&job->reader, "give each word one tag", "has %zu words, but %zu tags", count,
                    json_array_size(tags));
        return;
    }
    job->texts[0].count = job->token_labels.count = 0;
    for (size_t i = 0; i < count; i++) {
        const char *word = cell_item(json_array_get(words, i), numbers[0]),
                   *tag = tags ? cell_item(json_array_get(tags, i), numbers[1]) : NULL;
        if (!word || (tags && !tag)) {
            table_error(&job->reader, NULL, "word %zu, or its tag, is neither text nor a number", i + 1);
            return;
        }
        if (!add_word(job, word, tag)) return;
    }
    job_add_example(job, job->texts, false, begin);
    if (!tags) return;
    size_t row = job->examples.count - 1, kept = job->token_labels.count, length = job->examples.length;
    int32_t *labels = examples_at(&job->examples, PART_TOKENS, row);
    if (kept > length - begin[0]) kept = length - begin[0];
    for (size_t i = 0; i < length; i++) labels[i] = NO_LABEL;
    for (size_t i = 0; i < kept; i++)
        if (job->is_text[begin[0] + i]) labels[begin[0] + i] = job->token_labels.items[i];
}

void job_read_words(Job *job)
{
    json_t *words = read_list(job, job->columns.text[0], "words"),
           *tags = job->columns.label < 0 ? NULL : read_list(job, job->columns.label, "tags");
    if (words && (tags || job->columns.label < 0)) add_words(job, words, tags);
    json_decref(words);
    json_decref(tags);
}

bool job_read_list(Job *job, TableField field)
{
    char number[32];
    json_t *list = field.text ? cell_list(field, ",;|") : NULL;
    bool ok = list || table_error(&job->reader, "write [\"a\", \"b\"], or a;b", "the labels are not a list");
    for (size_t i = 0; ok && i < json_array_size(list); i++) {
        const char *item = cell_label(json_array_get(list, i), number);
        ok = item ? labels_add(&job->labels, &job->reader, (TableField){.text = item, .length = strlen(item)})
                  : table_error(&job->reader, NULL, "label %zu is neither text nor a number", i + 1);
    }
    if (ok) array_push(job->list_ends, job->list_count, job->list_capacity, job->labels.row_count);
    list_form_take(&job->list_form, list);
    json_decref(list);
    return ok;
}

/* ---- At the end ---- */

static void name_by_number(Job *job, size_t count)
{
    const char **names = arena_new_array(&job->arena, const char *, count);
    for (size_t i = 0; i < count; i++) names[i] = arena_format(&job->arena, "%zu", i);
    label_names_print(&job->label_names, names, count);
}

static bool fill_lists(Job *job, const int32_t *classes, const float *reals)
{
    Examples *examples = &job->examples;
    const ListForm *form = &job->list_form;
    bool vectors = job->labels.fixed ? job->labels.vectors : list_form_is_vectors(form);
    if (vectors && (!list_form_is_vectors(form) || (job->labels.fixed && form->width != job->labels.count)))
        return table_error(&job->reader, NULL,
                           "lists of labels have another length, or other values, than those of "
                           "the training set");
    if (!vectors && !classes)
        return table_error(&job->reader, NULL, "lists of labels hold fractions, but they are no vectors of one length");
    if (!job->labels.row_count) return table_error(&job->reader, NULL, "no row has a label");
    bool named = job->labels.kind == LABELS_NAMES && !vectors;
    job->labels.vectors = vectors;
    size_t count = named ? job->labels.count : list_form_labels(form, job->labels.count), cells;
    if (!job->label_names.size) name_by_number(job, count);
    if (!size_multiply(count, examples->count, &cells) || !size_multiply(cells, sizeof(float), &cells))
        memory_exhausted();
    examples->reals = memory_allocate(cells + 1);
    examples->reals_per_row = count;
    for (size_t r = 0, i = 0; r < job->list_count; r++)
        for (size_t k = 0; i < job->list_ends[r]; i++, k++)
            examples->reals[r * count + (vectors ? k : (size_t)classes[i])] = !vectors  ? 1
                                                                              : classes ? (float)classes[i]
                                                                                        : reals[i];
    return true;
}

bool job_resolve_lists(Job *job)
{
    int32_t *classes = NULL, *tokens = job->examples.parts[PART_TOKENS];
    FREED float *reals = NULL;
    bool ok = true;
    labels_resolve(&job->labels, job->reader.path, &classes, &reals, &job->label_names, job->reader.diagnostics);
    if (job->list_ends)
        ok = fill_lists(job, classes, reals);
    else if (!classes)
        ok = table_error(&job->reader, NULL, "tags are fractions, but words have classes");
    for (size_t i = 0; classes && tokens && i < job->examples.count * job->examples.length; i++)
        tokens[i] = tokens[i] == NO_LABEL ? DATASET_IGNORED_LABEL : classes[tokens[i]];
    free(classes);
    return ok;
}
