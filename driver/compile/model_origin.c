#include "driver/compile/model_origin.h"

#include <string.h>
#include <sys/stat.h>

#include "frontend/huggingface/import_folder.h"
#include "frontend/huggingface/config.h"
#include "frontend/huggingface/tokenizers.h"
#include "runtime/program/label_names.h"

/* As a JSON list; "": generic names, or none. */
static const char *label_list(const char *config, Arena *arena)
{
    size_t count, generic = 0;
    const char *const *names = config_labels(config, arena, &count);
    for (size_t i = 0; i < count; i++) generic += strncmp(names[i], "LABEL_", strlen("LABEL_")) == 0;
    if (generic == count) return "";
    FREED_WITH(buffer_free) Buffer list = {0};
    label_names_print(&list, names, count);
    return arena_string(arena, buffer_text(&list));
}

DataOrigin model_origin(const OnnxModel *model, const char *called, Arena *arena)
{
    const char *config = onnx_model_property(model, PROPERTY_CONFIG), *text = onnx_model_property(model, PROPERTY_HEAD),
               *tokenizers = onnx_model_property(model, PROPERTY_TOKENIZERS),
               *names = onnx_model_property(model, PROPERTY_LABELS);
    Head head = {0};
    bool named = config && text && head_parse(text, &head) && head.labels;
    return (DataOrigin){.called = called,
                        .labels = names   ? arena_string(arena, names)
                                  : named ? label_list(config, arena)
                                          : "",
                        .tokenizers = tokenizers ? arena_string(arena, tokenizers) : "",
                        .is_model = true};
}

bool model_texts(ModelTexts *texts, const char *path, Arena *arena, Diagnostics *diagnostics)
{
    struct stat status;
    FREED_WITH(config_free) HuggingFaceConfig config = {0};
    FREED_WITH(onnx_model_close) OnnxModel model = {0};
    *texts = (ModelTexts){.most_positions = INT64_MAX};
    bool is_folder = stat(path, &status) == 0 && S_ISDIR(status.st_mode), ok = true, known = is_folder;
    if (is_folder) {
        texts->folder = arena_string(arena, path);
        ok = config_read(&config, arena_format(arena, "%s/config.json", path), arena, diagnostics);
    } else {
        if (!onnx_model_open(&model, path, true, diagnostics)) return false;
        const char *text = onnx_model_property(&model, PROPERTY_CONFIG),
                   *folder = onnx_model_property(&model, PROPERTY_FOLDER);
        texts->folder = tokenizer_folder(path, folder, arena);
        known = text != NULL;
        ok = !known || config_parse(&config, text, path, arena, diagnostics);
    }
    if (ok && known) texts->most_positions = encoder_most_positions(&config);
    return ok;
}

bool model_labels(DataLabels *labels, const char *path, const DataOrigin *model, Arena *arena, Diagnostics *diagnostics)
{
    FREED_WITH(safetensors_close) SafeTensors data = {0};
    bool adopted;
    if (!data_labels_read(labels, path, arena, diagnostics) || !safetensors_open(&data, path, diagnostics))
        return false;
    FREED_WITH(diagnostics_free) Diagnostics found = {0}; /* in other numbers, the same names are no news here */
    bool ok = data_origin_match(&data, path, model, &adopted, &found);
    if (!ok) diagnostics_append(diagnostics, &found);
    if (ok && adopted) labels->names = label_names_read(model->labels, arena, &labels->count);
    return ok;
}
