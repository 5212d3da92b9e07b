#include "driver/commands/run_options.h"

#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/input_files.h"
#include "driver/finetune/single_commands.h"
#include "driver/finetune/source_model.h"

static const char *there(Settings *settings, const char *run, const char *name)
{
    const char *path = run_file(&settings->arena, run, name);
    return access(path, F_OK) == 0 ? path : NULL;
}

void run_find_tokenizer(Settings *settings, const char *run)
{
    const char *own = settings->of[SETTING_TOKENIZER].value, *name = own ? strrchr(own, '/') : NULL;
    const char *copy = name ? there(settings, run, arena_format(&settings->arena, "model%s", name)) : NULL;
    if (name && !copy) copy = there(settings, run, arena_format(&settings->arena, "model.tokenizer%s", name));
    if (copy) settings->of[SETTING_TOKENIZER].value = copy;
}

static int note_input(const char *path, const struct stat *status, int type, struct FTW *place)
{
    (void)status, (void)place;
    if (type == FTW_F) input_files_note_path(path);
    return 0;
}

/* The run is an input as a whole: no output may replace a part of it, whether that is read or not. */
static void note_inputs(Settings *settings, const char *run)
{
    for (const char *const *part = run_parts; *part; part++)
        nftw(run_file(&settings->arena, run, *part), note_input, 16, 0);
}

bool run_options_complete(Options *completed, const Options *options, Settings *settings, const char *hint,
                          Diagnostics *diagnostics)
{
    const char *run = options->model;
    *completed = *options;
    if (!is_run(run)) return true;
    if (options->checkpoint)
        return usage_error(diagnostics, hint, "a run has its own checkpoints: leave out '%s'", options->checkpoint);
    if (!settings_read(settings, run, diagnostics) || !source_model_check(settings, false, diagnostics)) return false;
    note_inputs(settings, run);
    completed->model = run_file(&settings->arena, run, "model.onnx");
    completed->checkpoint = run_file(&settings->arena, run, "checkpoints");
    if (access(completed->checkpoint, F_OK) != 0)
        return input_error(diagnostics, run, "go on with it by skycc finetune --resume", "has no checkpoint yet");
    const char *embedding = there(settings, run, "embedding.onnx");
    if (embedding) completed->model = embedding, completed->checkpoint = NULL;
    if (!options->labels && settings_name_labels(settings))
        completed->labels = there(settings, run, "data/train.safetensors");
    run_find_tokenizer(settings, run);
    if (!options->tokenizer) {
        completed->tokenizer = settings->of[SETTING_TOKENIZER].value;
        completed->cased |= settings->of[SETTING_CASED].value != NULL;
    }
    if (!options->source) completed->source = there(settings, run, "model");
    if (options->data && !options->texts[0]) completed->texts[0] = settings_joined(settings, SETTING_TEXT, ',');
    if (settings->of[SETTING_LENGTH].value) completed->dataset.max_length = atoi(settings->of[SETTING_LENGTH].value);
    return true;
}
