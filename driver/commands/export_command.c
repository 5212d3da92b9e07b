/* skycc export: writes trained weights as ONNX, a Hugging Face folder, GGUF or an adapter. */
#include "driver/commands/commands.h"

#include <dirent.h>
#include <string.h>

#include "base/input_files.h"
#include "base/outputs.h"
#include "driver/commands/run_options.h"
#include "driver/compile/model_origin.h"
#include "driver/export/merging_difference.h"
#include "driver/export/peft_adapter.h"
#include "driver/export/trained_values.h"
#include "frontend/huggingface/export_folder.h"
#include "frontend/huggingface/export_gguf.h"
#include "frontend/huggingface/import_folder.h"

/* ---- What is spared ---- */

/* Models lie in the folder that they were made from, too, and may be made again. */
static bool is_output(const char *name) { return strstr(name, ".onnx") || strstr(name, ".gguf"); }

static void note_folder(const char *folder)
{
    FREED_WITH(arena_free) Arena arena = {0};
    DIR *stream = folder ? opendir(folder) : NULL;
    for (struct dirent *entry; stream && (entry = readdir(stream));)
        if (!is_output(entry->d_name)) input_files_note_path(arena_format(&arena, "%s/%s", folder, entry->d_name));
    if (stream) closedir(stream);
}

/* No output replaces a file of the folder that the model came from, whether or not it is read for this one. */
static void note_source(const Options *options)
{
    FREED_WITH(onnx_model_close) OnnxModel model = {0};
    FREED_WITH(diagnostics_free) Diagnostics unsaid = {0};
    note_folder(options->source);
    if (onnx_model_open(&model, options->model, true, &unsaid))
        note_folder(onnx_model_property(&model, PROPERTY_FOLDER));
}

/* ---- What is written ---- */

static bool read_labels(DataLabels *labels, const Options *options, Arena *arena, Diagnostics *diagnostics)
{
    FREED_WITH(onnx_model_close) OnnxModel model = {0};
    if (!onnx_model_open(&model, options->model, true, diagnostics)) return false;
    const DataOrigin origin = model_origin(&model, options->model, arena);
    return model_labels(labels, options->labels, &origin, arena, diagnostics);
}

static bool write_folder(const Options *options, FindTrained *find, void *context, Diagnostics *diagnostics)
{
    FREED_WITH(arena_free) Arena arena = {0};
    DataLabels labels = {0};
    bool ok = !options->labels || read_labels(&labels, options, &arena, diagnostics);
    FolderExport folder = {.output = options->folder,
                           .source = options->source,
                           .labels = labels.names,
                           .label_count = labels.count,
                           .problem = labels.problem,
                           .as_is = options->as_is};
    return ok && folder_export(options->model, &folder, find, context, diagnostics);
}

static bool write_gguf(const Options *options, FindTrained *find, void *context, Diagnostics *diagnostics)
{
    GgufExport gguf = {.output = options->gguf,
                       .source = options->source,
                       .q8 = options->gguf_type && strcmp(options->gguf_type, "q8_0") == 0};
    return gguf_export(options->model, &gguf, find, context, diagnostics);
}

/* All or none. `low_rank` NULL: there is no adapter. GGUF, which refuses most, comes first. */
static bool write_models(const Options *options, MergedWeights *low_rank, FindTrained *find, void *context,
                         Diagnostics *diagnostics)
{
    note_source(options);
    outputs_hold();
    bool ok = (!options->gguf || write_gguf(options, find, context, diagnostics)) &&
              (!options->adapter || !low_rank || peft_adapter_write(low_rank, options->adapter, diagnostics)) &&
              (!options->output || export_onnx(options->model, options->output, find, context, diagnostics)) &&
              (!options->folder || write_folder(options, find, context, diagnostics));
    return outputs_release(ok, diagnostics);
}

/* ---- Low-rank branches ---- */

static bool export_low_rank(const Options *options, TrainedValues *values, Diagnostics *diagnostics)
{
    FREED_WITH(merged_weights_free) MergedWeights merged = {0};
    bool ok = trained_values_merge(&merged, values, options->model, diagnostics);
    ok = ok && write_models(options, &merged, merged_weights_find, &merged, diagnostics);
    if (ok && !options->quiet && (options->output || options->folder || options->gguf))
        merging_difference_print(&merged, options->model, stderr);
    return ok;
}

static bool export_as_asked(const Options *options, TrainedValues *values, Diagnostics *diagnostics)
{
    if (trained_values_low_rank(values)) return export_low_rank(options, values, diagnostics);
    if (options->adapter)
        return input_error(diagnostics, options->checkpoint,
                           "compile with --lora to train an adapter, or write the whole model with -o",
                           "holds no low-rank branches for an adapter");
    return write_models(options, NULL, trained_values_find, values, diagnostics);
}

bool export_command(const Options *given, Diagnostics *diagnostics)
{
    FREED_WITH(trained_values_free) TrainedValues values = {0};
    FREED_WITH(settings_free) Settings settings = {0};
    Options options;
    bool ok = given->output || given->folder || given->adapter || given->gguf ||
              usage_error(diagnostics, "skycc export --help lists the options",
                          "give an output: -o TRAINED.onnx, --folder DIR, --gguf FILE or --adapter DIR");
    ok = ok && (given->gguf || !given->gguf_type ||
                usage_error(diagnostics, "give --gguf FILE too", "--gguf-type is for --gguf"));
    return ok && run_options_complete(&options, given, &settings, NULL, diagnostics) &&
           (options.checkpoint ||
            usage_error(diagnostics, "skycc export --help lists the options",
                        "give the trained weights: skycc export MODEL.onnx CHECKPOINT, or skycc export RUN")) &&
           trained_values_open(&values, options.checkpoint, diagnostics) &&
           export_as_asked(&options, &values, diagnostics);
}
