#include "driver/finetune/model_card.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/directory.h"
#include "base/input_files.h"
#include "base/json.h"
#include "base/text.h"
#include "driver/deploy/sha256.h"

static const struct {
    const char *task, *pipeline;
} pipelines[] = {
    {"classes", "text-classification"},
    {"multi-label", "text-classification"},
    {"regression", "text-classification"},
    {"ner", "token-classification"},
    {"qa", "question-answering"},
    {"pairs", "sentence-similarity"},
    {"mlm", "fill-mask"},
    {"chat", "text-generation"},
    {"lm", "text-generation"},
};

static void print_head(Buffer *text, const Settings *settings)
{
    const char *task = settings->of[SETTING_TASK].value, *model = setting_base_name(settings->of[SETTING_MODEL].value);
    bool graph = settings->of[SETTING_RESULT].value != NULL;
    buffer_print(text, "---\nlibrary_name: %s\n", graph ? "onnx" : "transformers");
    for (size_t i = 0; i < sizeof pipelines / sizeof *pipelines; i++)
        if (strcmp(pipelines[i].task, task) == 0) buffer_print(text, "pipeline_tag: %s\n", pipelines[i].pipeline);
    text_format(text, "tags: [skycc]\n---\n\n# %s, fine-tuned: %s\n\nMade by `skycc finetune`.\n", model,
                settings->of[SETTING_TASK].reason ? settings->of[SETTING_TASK].reason : task);
}

static bool print_table(Buffer *text, const char *what, const char *path, Diagnostics *diagnostics)
{
    Sha256Text hash;
    uint64_t bytes;
    if (!sha256_file(path, &hash, &bytes, diagnostics)) return false;
    text_format(text, "| %s | %s | %llu | `%s` |\n", what, setting_base_name(path), (unsigned long long)bytes,
                hash.digits);
    return true;
}

static bool print_data(Buffer *text, Settings *settings, Diagnostics *diagnostics)
{
    buffer_print(text, "\n## Data\n\n| set | file | bytes | SHA-256 |\n|---|---|---|---|\n");
    char *rest = (char *)settings_joined(settings, SETTING_TABLES, *LIST_SEPARATOR);
    for (char *table; rest && (table = strsep(&rest, LIST_SEPARATOR));)
        if (!print_table(text, "training", table, diagnostics)) return false;
    const char *evaluation = settings->of[SETTING_EVAL].value, *test = settings->of[SETTING_TEST].value;
    return (!evaluation || print_table(text, "evaluation", evaluation, diagnostics)) &&
           (!test || print_table(text, "test", test, diagnostics));
}

static bool print_metrics(Buffer *text, Settings *settings, const char *run, const char *name, const char *title,
                          Diagnostics *diagnostics)
{
    const char *path = arena_format(&settings->arena, "%s/%s", run, name);
    if (access(path, F_OK) != 0) return true;
    json_t *root = json_read(path, diagnostics), *value;
    const char *key;
    input_files_release_path(path);
    if (!root) return false;
    buffer_print(text, "\n## %s\n\n| metric | value |\n|---|---|\n", title);
    json_object_foreach(root, key, value) if (json_is_number(value))
        text_format(text, "| %s | %.6g |\n", key, json_number_value(value));
    json_decref(root);
    return true;
}

static void print_settings(Buffer *text, Settings *settings)
{
    buffer_print(text, "\n## Settings\n\n| setting | value |\n|---|---|\n");
    for (SettingKey key = SETTING_TASK; key < SETTING_COUNT; key++) {
        const char *value = settings_joined(settings, key, ',');
        if (value)
            text_format(text, "| %s | %s |\n", setting_word(key), value[0] == '/' ? setting_base_name(value) : value);
    }
}

/* The folder's list, so that another export replaces the card too. */
static void list_file(const char *folder, const char *name)
{
    FREED char *path = directory_join(folder, DIRECTORY_LIST);
    FILE *list = fopen(path, "a");
    if (list) fprintf(list, "%s\n", name), fclose(list);
}

bool model_card_write(Settings *settings, const char *run, Diagnostics *diagnostics)
{
    FREED_WITH(buffer_free) Buffer text = {0};
    const char *folder = arena_format(&settings->arena, "%s/model", run);
    print_head(&text, settings);
    bool ok = print_metrics(&text, settings, run, "metrics.json", "Metrics on the evaluation set", diagnostics) &&
              print_metrics(&text, settings, run, "test.json", "Metrics on the test set", diagnostics) &&
              print_data(&text, settings, diagnostics);
    if (ok) {
        print_settings(&text, settings);
        ok = file_write_all(arena_format(&settings->arena, "%s/README.md", folder), text.bytes, text.size, diagnostics);
    }
    if (ok) list_file(folder, "README.md");
    return ok;
}
