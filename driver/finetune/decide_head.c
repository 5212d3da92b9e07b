#include "driver/finetune/decide_head.h"

#include <string.h>
#include <strings.h>

#include "base/text.h"
#include "frontend/huggingface/add_head.h"
#include "frontend/text/labels.h"
#include "runtime/program/label_names.h"

#define set(key, value, ...) settings_set(decision->settings, SETTING_##key, value, __VA_ARGS__)
#define text_of(...) arena_format(&decision->settings->arena, __VA_ARGS__)

static size_t classes_of(const HeadDecision *decision)
{
    const TaskColumns *columns = decision->columns;
    if (columns->label_count != 1) return columns->label_count;
    const SurveyColumn *label = table_survey_column(decision->survey, columns->labels[0]);
    return columns->task == TASK_MULTI_LABEL ? list_form_labels(&label->form, label->distinct) : label->distinct;
}

/* The names of the classes, in their order; NULL: they have none, or each is a column. */
static const char *names_of_classes(const HeadDecision *decision)
{
    const TaskColumns *columns = decision->columns;
    Task task = columns->task;
    if (columns->label_count != 1 || (task != TASK_CLASSES && task != TASK_TOKENS && task != TASK_MULTI_LABEL))
        return NULL;
    const SurveyColumn *label = table_survey_column(decision->survey, columns->labels[0]);
    const StringMap *values = &label->values;
    if (task == TASK_MULTI_LABEL && !label->form.words) return NULL;
    Arena *arena = &decision->settings->arena;
    const char **names = arena_new_array(arena, const char *, classes_of(decision));
    size_t count = 0;
    for (size_t i = 0; i < values->capacity; i++)
        if (values->entries[i].key) names[count++] = values->entries[i].key;
    labels_sort(names, count);
    return label_names_some(names, count, arena);
}

static void set_head(const HeadDecision *decision, const char *kind)
{
    const TaskColumns *columns = decision->columns;
    size_t classes = classes_of(decision);
    const char *names = names_of_classes(decision);
    static const char *const heads[TASK_COUNT] = {
        "seqcls:%zu", "regression", "multilabel:%zu", "tokcls:%zu", "qa", "pairs:mean", "mlm", "lm", "lm"};
    if (!kind)
        kind = strchr(heads[columns->task], '%')
                   ? text_of("%.*s%zu", (int)strcspn(heads[columns->task], "%"), heads[columns->task], classes)
                   : heads[columns->task];
    set(HEAD, kind, "loss: %s%s%s%s", task_texts[columns->task].loss, names ? "; classes: " : "", names ? names : "",
        columns->task == TASK_PAIRS ? "; two texts through the same weights" : "");
}

static bool is_among(const char *text, const char *const *names, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (strcasecmp(text, names[i]) == 0) return true;
    return false;
}

/* The table's labels, by the head's names: how many the head has, and one that it lacks. Data sets meet models in the
 * same way (runtime/storage/data_origin.h). */
static size_t count_known(const HeadDecision *decision, const char *const *names, int64_t count, const char **unknown)
{
    const TaskColumns *columns = decision->columns;
    size_t known = 0;
    if (columns->label_count > 1) {
        for (size_t i = 0; i < columns->label_count; i++)
            if (is_among(columns->labels[i], names, count))
                known++;
            else
                *unknown = columns->labels[i];
        return known;
    }
    const StringMap *values = &table_survey_column(decision->survey, columns->labels[0])->values;
    for (size_t i = 0; i < values->capacity; i++)
        if (values->entries[i].key) {
            if (is_among(values->entries[i].key, names, count))
                known++;
            else
                *unknown = values->entries[i].key;
        }
    return known;
}

/* Whether the head that is there is one for the table; how its labels meet the table's. */
static bool keep_head(const HeadDecision *decision, const Head *wanted, Diagnostics *diagnostics)
{
    const FoundHead *found = &decision->model->found;
    const char *path = decision->model->path, *unknown = NULL, *needs = decision->settings->of[SETTING_HEAD].value;
    const char *const *names = found->head.names;
    Head head = *wanted;
    head.labels = found->head.labels;
    size_t labels = classes_of(decision);
    if (!found_head_is(found, &head))
        return input_error(
            diagnostics, path,
            "give the encoder without its head or its Hugging Face folder, or with --task and --label what the head is "
            "for",
            found->head.kind == HEAD_FROM_FOLDER ? "needs a head, or hidden states for a new one; it has the outputs %s"
                                                 : "has another head: %s; the task '%s' of this table needs %s",
            found->head.kind == HEAD_FROM_FOLDER ? found->all : head_text(&decision->settings->arena, &found->head),
            decision->settings->of[SETTING_TASK].value, needs);
    size_t known = names ? count_known(decision, names, head.labels, &unknown) : 0;
    if (known && known < labels) {
        const char *nearest = text_nearest(unknown, names, (size_t)head.labels);
        return input_error(diagnostics, path,
                           "correct the table, or give the encoder without its head, or its Hugging Face folder",
                           "has a head for the labels %s, but not for '%s' of the table%s%s%s",
                           label_names_some(names, (size_t)head.labels, &decision->settings->arena), unknown,
                           nearest ? ": did you mean '" : "", nearest ? nearest : "", nearest ? "'?" : "");
    }
    if (wanted->labels && (known ? wanted->several && known < (size_t)head.labels : wanted->labels != head.labels))
        return input_error(diagnostics, path,
                           "give the encoder without its head or its Hugging Face folder, or another table",
                           "has a head of %lld labels, but the table has %zu", (long long)head.labels, labels);
    bool counts = wanted->kind == HEAD_SEQUENCE || wanted->kind == HEAD_TOKENS;
    set_head(decision, head_text(&decision->settings->arena, &head));
    set(AS_IS,
        known    ? KEPT_NAMES
        : counts ? "labels of the table"
                 : "true",
        !counts ? "the model's own head is trained on"
        : known ? "the model's own head is trained on; the table's labels are its own, by their names: %s"
        : names ? "the model's own head is trained on; none of its labels (%s) is one of the table's, which take its "
                  "outputs in their order"
                : "the model's own head is trained on; its labels have no names: the table's take its outputs in their "
                  "order",
        names ? label_names_some(names, (size_t)head.labels, &decision->settings->arena) : "");
    return true;
}

bool head_decide(const HeadDecision *decision, Diagnostics *diagnostics)
{
    const SourceModel *model = decision->model;
    Head wanted;
    set_head(decision, NULL);
    if (model->is_folder) return true;
    if (!head_parse(decision->settings->of[SETTING_HEAD].value, &wanted))
        bug("no head '%s'", decision->settings->of[SETTING_HEAD].value);
    if (!model->found.imported)
        set(RESULT, "model.onnx",
            "skycc did not import the model, so run/model is no Hugging Face folder of weights: it "
            "holds model.onnx and the tokenizer");
    return model->found.head.kind == HEAD_NONE ? head_can_be_added(&model->found, &wanted, model->has_mask, model->path,
                                                                   &decision->settings->arena, diagnostics)
                                               : keep_head(decision, &wanted, diagnostics);
}
