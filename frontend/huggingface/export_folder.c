#include "frontend/huggingface/export_folder.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/directory.h"
#include "frontend/huggingface/folder.h"
#include "frontend/huggingface/import_folder.h"
#include "frontend/huggingface/tokenizers.h"
#include "frontend/onnx/write_model.h"

typedef struct Job {
    const FolderExport *wanted;
    OutputDirectory directory;
    OnnxModel *model;
    Arena arena;
    Diagnostics *diagnostics;
} Job;

static const char *place_of(Job *job, const char *name)
{
    return arena_format(&job->arena, "%s/%s", job->directory.temporary, name);
}

static bool write_tensors(Job *job)
{
    if (job->wanted->as_is) return onnx_write_model(job->model, place_of(job, "model.onnx"), job->diagnostics);
    const Onnx__GraphProto *graph = job->model->proto->graph;
    SafeTensorsWriter *writer = safetensors_writer();
    safetensors_writer_metadata(writer, "format", "pt");
    for (size_t i = 0; i < graph->n_initializer; i++) {
        const Onnx__TensorProto *tensor = graph->initializer[i];
        Shape shape = {(int)tensor->n_dims, {0}};
        for (size_t k = 0; k < tensor->n_dims; k++) shape.dim[k] = tensor->dims[k];
        safetensors_writer_add(writer, tensor->name, onnx_dtype(tensor->data_type), &shape, tensor->raw_data.data);
    }
    return safetensors_write(writer, place_of(job, "model.safetensors"), job->diagnostics);
}

/* Replaces the labels in the configuration by those of the data set. */
static bool name_labels(const Job *job, json_t *config)
{
    const FolderExport *wanted = job->wanted;
    const json_t *former = json_object_get(config, "id2label");
    if (!wanted->labels) return true;
    if (json_object_size(former) != wanted->label_count)
        return input_error(job->diagnostics, job->model->path,
                           "give the labels of the data that the model was trained with",
                           "has %zu labels, but %zu names are given", json_object_size(former), wanted->label_count);
    json_t *names = json_object(), *numbers = json_object();
    for (size_t i = 0; i < wanted->label_count; i++) {
        char key[32];
        snprintf(key, sizeof key, "%zu", i);
        json_object_set_new(names, key, json_string(wanted->labels[i]));
        json_object_set_new(numbers, wanted->labels[i], json_integer((json_int_t)i));
    }
    json_object_set_new(config, "id2label", names);
    json_object_set_new(config, "label2id", numbers);
    if (wanted->problem) json_object_set_new(config, "problem_type", json_string(wanted->problem));
    return true;
}

static bool write_config(Job *job, const char *text)
{
    json_error_t error;
    json_auto_t *config = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    bool ok = json_is_object(config) || input_error(job->diagnostics, job->model->path, NULL,
                                                    "its property " PROPERTY_CONFIG " is not a JSON object");
    FREED_WITH(buffer_free) Buffer buffer = {0};
    ok = ok && name_labels(job, config);
    if (ok) {
        config_print_json(config, &buffer);
        ok = file_write_part(place_of(job, "config.json"), buffer.bytes, buffer.size, job->diagnostics);
    }
    return ok;
}

static bool copy_tokenizer(Job *job, const char *source)
{
    size_t copied = 0;
    struct stat status;
    bool there = source && stat(source, &status) == 0 && S_ISDIR(status.st_mode);
    if (job->wanted->source && !there) return file_error(job->diagnostics, job->wanted->source, "cannot open");
    bool ok = !there || tokenizer_copy(source, job->directory.temporary, &copied, job->diagnostics);
    if (ok && !copied)
        diagnostics_warning(job->diagnostics, PLACE_FILE(job->wanted->output),
                            "give the folder that holds tokenizer.json or vocab.txt with --source",
                            "has no tokenizer: %s%s", there ? "there is none in " : "there is no folder ",
                            source ? source : "");
    return ok;
}

/* Reports parameters without a name in the library. */
static bool check_model(const Job *job)
{
    const Onnx__GraphProto *graph = job->model->proto->graph;
    if (job->wanted->as_is) return true;
    if (!onnx_model_property(job->model, PROPERTY_CONFIG) || !onnx_model_is_distinct(job->model))
        return diagnostics_error(
            job->diagnostics, EXIT_BAD_INPUT, PLACE_FILE(job->model->path),
            "only models from skycc import can; write this one as ONNX with -o",
            "cannot become a Hugging Face folder: skycc did not import it from one, so config.json and the "
            "library's names of its tensors are missing");
    for (size_t i = 0; i < graph->n_initializer; i++) {
        const Onnx__TensorProto *tensor = graph->initializer[i];
        if (tensor->has_raw_data && dtype_is_float(onnx_dtype(tensor->data_type)) && tensor->n_dims <= MAX_RANK &&
            !strchr(tensor->name, '#'))
            continue;
        char object[512];
        snprintf(object, sizeof object, "parameter '%.400s'", tensor->name);
        return diagnostics_error(job->diagnostics, EXIT_BAD_INPUT, (Place){.file = job->model->path, .object = object},
                                 "train it without --untie", "does not exist in the Hugging Face library");
    }
    return true;
}

static bool write_folder(void *context, OnnxModel *model, Diagnostics *diagnostics)
{
    Job job = {.wanted = context, .model = model, .diagnostics = diagnostics};
    if (!check_model(&job) || !directory_create(&job.directory, job.wanted->output, false, diagnostics)) return false;
    const char *source = job.wanted->source
                             ? job.wanted->source
                             : tokenizer_folder(model->path, onnx_model_property(model, PROPERTY_FOLDER), &job.arena);
    const char *config = onnx_model_property(model, PROPERTY_CONFIG);
    bool ok = (!config || write_config(&job, config)) && write_tensors(&job) && copy_tokenizer(&job, source);
    if (ok)
        ok = directory_commit(&job.directory, diagnostics);
    else
        directory_abandon(&job.directory);
    arena_free(&job.arena);
    return ok;
}

bool folder_export(const char *model, const FolderExport *wanted, FindTrained *find, void *context,
                   Diagnostics *diagnostics)
{
    return export_model(model, find, context, write_folder, (void *)wanted, diagnostics);
}
