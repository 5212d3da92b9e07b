#include "frontend/huggingface/step_model.h"

#include <string.h>

#include "frontend/huggingface/config.h"
#include "frontend/huggingface/export_folder.h"
#include "frontend/huggingface/import_folder.h"

/* Only --untie makes parameters with a number. */
static bool keep_values(void *unused, const char *name, TrainedTensor *tensor)
{
    (void)unused;
    *tensor = (TrainedTensor){.data = NULL};
    return !strchr(name, '#');
}

static bool is_decoder(const char *path, int64_t *original, Diagnostics *diagnostics)
{
    FREED_WITH(onnx_model_close) OnnxModel model = {0};
    FREED_WITH(config_free) HuggingFaceConfig config = {0};
    FREED_WITH(arena_free) Arena arena = {0};
    if (!onnx_model_open(&model, path, true, diagnostics)) return false;
    const char *text = onnx_model_property(&model, PROPERTY_CONFIG);
    bool is = text && onnx_model_is_distinct(&model) && config_parse(&config, text, path, &arena, diagnostics) &&
              config.type->family == FAMILY_DECODER && config.head.kind == HEAD_NEXT;
    *original = is && config.decoder.rotary[0].kind == ROTARY_LONGROPE ? config.decoder.rotary[0].original : INT64_MAX;
    return is;
}

const char *step_model_write(const char *model, const char *folder, int64_t room, int64_t *original, Arena *arena)
{
    FREED_WITH(diagnostics_free) Diagnostics unused = {0};
    const FolderExport wanted = {.output = folder};
    const char *path = arena_format(arena, "%s/step.onnx", folder);
    bool ok = is_decoder(model, original, &unused) && folder_export(model, &wanted, keep_values, NULL, &unused) &&
              folder_import_step(folder, path, room, &unused);
    return ok ? path : NULL;
}
