#include "driver/finetune/settings.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/input_files.h"
#include "base/json_writer.h"
#include "base/text.h"
#include "base/yaml.h"
#include "driver/finetune/task.h"

static const struct {
    const char *word;
    bool is_list;
} keys[SETTING_COUNT] = {
#define WORD(NAME, word) [SETTING_##NAME] = {word, false},
#define LIST(NAME, word) [SETTING_##NAME] = {word, true},
    SETTING_WORDS(WORD, LIST)};

const char *setting_word(SettingKey key) { return keys[key].word; }

const char *setting_base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

void settings_set(Settings *settings, SettingKey key, const char *value, const char *reason, ...)
{
    Setting *setting = &settings->of[key];
    *setting = (Setting){0};
    if (!value || !*value) return;
    setting->value = arena_string(&settings->arena, value);
    va_list arguments;
    va_start(arguments, reason);
    if (reason) setting->reason = arena_format_va(&settings->arena, reason, arguments);
    va_end(arguments);
}

const char *settings_path(Settings *settings, const char *path)
{
    FREED char *resolved = realpath(path, NULL);
    return arena_string(&settings->arena, resolved ? resolved : path);
}

const char *settings_list(Settings *settings, const char *const *items, size_t count)
{
    const char *text = "";
    for (size_t i = 0; i < count; i++)
        text = arena_format(&settings->arena, "%s%s%s", text, i ? LIST_SEPARATOR : "", items[i]);
    return text;
}

const char *settings_joined(Settings *settings, SettingKey key, char separator)
{
    if (!settings->of[key].value) return NULL;
    const char *value = settings->of[key].value;
    bool escapes = separator == ',' && (key == SETTING_TEXT || key == SETTING_LABEL);
    char *copy = arena_allocate(&settings->arena, 2 * strlen(value) + 1), *to = copy;
    for (; *value; value++) {
        if (escapes && *value == ',') *to++ = '\\';
        *to++ = *value == *LIST_SEPARATOR ? separator : *value;
    }
    *to = '\0';
    return copy;
}

bool settings_name_labels(const Settings *settings)
{
    static const char tasks[] = " classes multi-label ner ";
    char word[32];
    snprintf(word, sizeof word, " %.28s ", settings->of[SETTING_TASK].value);
    return strstr(tasks, word) != NULL;
}

/* ---- Out ---- */

void settings_print(const Settings *settings, const char *prefix, FILE *stream)
{
    for (SettingKey key = SETTING_MODEL; key < SETTING_COUNT; key++) {
        const Setting *setting = &settings->of[key];
        if (!setting->value) continue;
        FREED_WITH(buffer_free) Buffer line = {0};
        text_format(&line, "%s%-13s", prefix, keys[key].word);
        const char *value = setting->value;
        for (size_t length; *value; value += length + (value[length] == *LIST_SEPARATOR)) {
            length = strcspn(value, LIST_SEPARATOR);
            buffer_print(&line, value == setting->value ? " " : ", ");
            text_append(&line, value, length);
        }
        if (setting->reason) text_format(&line, "   %s", setting->reason);
        fprintf(stream, "%s\n", buffer_text(&line));
    }
    fflush(stream);
}

bool settings_write(const Settings *settings, const char *run, Diagnostics *diagnostics)
{
    FREED_WITH(buffer_free) Buffer text = {0};
    FREED char *path = NULL;
    buffer_print(&text, "# What skycc finetune decided. skycc finetune --resume goes on from this file.\n");
    for (SettingKey key = 0; key < SETTING_COUNT; key++) {
        const Setting *setting = &settings->of[key];
        if (!setting->value) continue;
        JsonWriter json = {.buffer = &text, .spaced = true};
        buffer_print(&text, "%s: ", keys[key].word);
        if (keys[key].is_list) json_open(&json, NULL, '[');
        for (const char *item = setting->value; *item;) {
            size_t length = strcspn(item, LIST_SEPARATOR);
            FREED char *copy = strndup(item, length);
            if (!copy) memory_exhausted();
            json_add_string(&json, NULL, copy);
            item += length + (item[length] == *LIST_SEPARATOR);
        }
        if (keys[key].is_list) json_close(&json, ']');
        if (setting->reason) text_format(&text, "   # %s", setting->reason);
        buffer_print(&text, "\n");
    }
    if (asprintf(&path, "%s/settings.yaml", run) < 0) memory_exhausted();
    input_files_release_path(path);
    return file_write_all(path, text.bytes, text.size, diagnostics);
}

/* ---- In ---- */

static bool read_value(Settings *settings, const YamlFile *file, SettingKey key, YamlNode *node)
{
    const char *text;
    if (!keys[key].is_list) {
        if (!yaml_any_text(file, node, NULL, keys[key].word, &text)) return false;
        settings_set(settings, key, text, NULL);
        return true;
    }
    size_t count;
    FREED_WITH(buffer_free) Buffer list = {0};
    bool ok = yaml_sequence(file, node, keys[key].word, &count);
    for (size_t i = 0; ok && i < count; i++) {
        ok = yaml_any_text(file, yaml_item(file, node, i), NULL, keys[key].word, &text);
        if (ok) buffer_print(&list, "%s%s", i ? LIST_SEPARATOR : "", text);
    }
    if (ok) settings_set(settings, key, buffer_text(&list), NULL);
    return ok;
}

/* Without these no run goes on; settings.yaml may have been edited. */
static const SettingKey needed[] = {SETTING_FORMAT,  SETTING_MODEL, SETTING_TABLES, SETTING_TASK, SETTING_TOKENIZER,
                                    SETTING_CLUSTER, SETTING_BATCH, SETTING_EPOCHS, SETTING_SEED};
static const SettingKey counts[] = {SETTING_LENGTH, SETTING_BATCH,      SETTING_EPOCHS,
                                    SETTING_SEEDS,  SETTING_EVAL_EVERY, SETTING_PATIENCE};

/* Reasons are comments: what follows the value, which is in quotes. */
static void read_reason(Settings *settings, const char *line, const char *end)
{
    for (SettingKey key = 0; key < SETTING_COUNT; key++) {
        size_t length = strlen(keys[key].word);
        Setting *setting = &settings->of[key];
        if (!setting->value || (size_t)(end - line) <= length || line[length] != ':' ||
            memcmp(line, keys[key].word, length) != 0)
            continue;
        bool quoted = false;
        for (const char *c = line + length; end - c > 2; c++) {
            if (quoted && *c == '\\')
                c++;
            else if (*c == '"')
                quoted = !quoted;
            else if (!quoted && *c == '#')
                return (void)(setting->reason = arena_string_n(&settings->arena, c + 2, (size_t)(end - c - 2)));
        }
    }
}

static bool read_reasons(Settings *settings, const char *path, Diagnostics *diagnostics)
{
    FREED_WITH(file_unmap) MappedFile file = {0};
    if (!file_map(&file, path, diagnostics)) return false;
    const char *line = (const char *)file.bytes, *last = line + file.size, *end;
    for (; line < last && (end = memchr(line, '\n', (size_t)(last - line))); line = end + 1)
        read_reason(settings, line, end);
    return true;
}

bool settings_read(Settings *settings, const char *run, Diagnostics *diagnostics)
{
    FREED_WITH(yaml_close) YamlFile file = {0};
    YamlMember members[SETTING_COUNT];
    const char *path = arena_format(&settings->arena, "%s/settings.yaml", run);
    if (!is_run(run))
        return input_error(diagnostics, run, "give the directory that skycc finetune made",
                           "is not a run of skycc finetune: it has no settings.yaml");
    if (!yaml_read(&file, path, diagnostics)) return false;
    for (SettingKey key = 0; key < SETTING_COUNT; key++) members[key] = (YamlMember){.key = keys[key].word};
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) members[needed[i]].required = true;
    bool ok = yaml_members(&file, file.root, NULL, members, SETTING_COUNT);
    for (SettingKey key = 0; ok && key < SETTING_COUNT; key++)
        if (members[key].value) ok = read_value(settings, &file, key, members[key].value);
    if (ok && strcmp(settings->of[SETTING_FORMAT].value, RUN_FORMAT) != 0)
        ok = yaml_error(&file, members[SETTING_FORMAT].value, NULL, NULL, "is not " RUN_FORMAT);
    if (ok && task_find(settings->of[SETTING_TASK].value) == TASK_COUNT)
        ok = yaml_error(&file, members[SETTING_TASK].value, NULL, NULL, "is not a task of skycc finetune");
    for (size_t i = 0; ok && i < sizeof counts / sizeof *counts; i++)
        ok = !members[counts[i]].value || yaml_integer(&file, members[counts[i]].value, NULL, keys[counts[i]].word,
                                                       counts[i] != SETTING_PATIENCE, INT32_MAX, &(int64_t){0});
    return ok && read_reasons(settings, path, diagnostics);
}
