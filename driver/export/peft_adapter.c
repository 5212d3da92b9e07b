#include "driver/export/peft_adapter.h"

#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/directory.h"
#include "base/json.h"
#include "base/safetensors.h"
#include "frontend/onnx/head_names.h"

typedef struct Adapter {
    MergedWeights *merged;
    SafeTensorsWriter *writer;
    const char **saved; /* modules that were trained as a whole */
    size_t saved_count, saved_capacity;
    bool unnamed; /* some name cannot be a module's */
    Arena arena;
} Adapter;

/* The library's prefix for names of the adapted model. */
static const char *key_of(Adapter *adapter, const char *module, const char *tensor)
{
    return arena_format(&adapter->arena, "base_model.model.%s.%s", module, tensor);
}

static void add_branches(Adapter *adapter)
{
    MergedWeights *merged = adapter->merged;
    int64_t rank = merged->low_rank.rank;
    for (size_t i = 0; i < merged->count; i++) {
        const MergedBranch *branch = &merged->branches[i];
        const char *module = branch->branch.module;
        adapter->unnamed |= strpbrk(module, ":/#") != NULL;
        safetensors_writer_add(adapter->writer, key_of(adapter, module, "lora_A.weight"), DTYPE_F32,
                               &(Shape){2, {rank, branch->weight.in}}, branch->a);
        safetensors_writer_add(adapter->writer, key_of(adapter, module, "lora_B.weight"), DTYPE_F32,
                               &(Shape){2, {branch->weight.out, rank}}, branch->b);
    }
}

/* The library saves whole modules: for a head the module of its name, otherwise the module that has the tensor. */
static void add_saved(Adapter *adapter, const char *name)
{
    size_t length = head_name_length(name);
    const char *dot = strrchr(name, '.');
    if (!length) length = dot ? (size_t)(dot - name) : strlen(name);
    for (size_t i = 0; i < adapter->saved_count; i++)
        if (strlen(adapter->saved[i]) == length && memcmp(adapter->saved[i], name, length) == 0) return;
    array_push(adapter->saved, adapter->saved_count, adapter->saved_capacity,
               arena_string_n(&adapter->arena, name, length));
}

/* Modules store weights of matrix products as [out, in]. */
static const void *as_in_module(Adapter *adapter, const ImportedParameter *parameter, TrainedTensor *tensor)
{
    ProductWeight weight = adapter->merged->weights[parameter->value];
    if (!weight.in || weight.transposed != parameter->transposed) return tensor->data;
    int64_t rows = tensor->shape.dim[0], columns = tensor->shape.dim[1];
    float *copy = arena_new_array(&adapter->arena, float, (size_t)(rows * columns));
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++)
            copy[c * rows + r] = (float)element_as_double(tensor->dtype, tensor->data, r * columns + c);
    tensor->shape = (Shape){2, {columns, rows}};
    tensor->dtype = DTYPE_F32;
    return copy;
}

static void add_modules_to_save(Adapter *adapter)
{
    MergedWeights *merged = adapter->merged;
    for (size_t i = 0; i < merged->model.parameter_count; i++) {
        const ImportedParameter *parameter = &merged->model.parameters[i];
        TrainedTensor tensor;
        if (!merged->find(merged->context, parameter->name, &tensor) || !tensor.data) continue;
        bool speaks = strchr(parameter->name, '.') && !strpbrk(parameter->name, ":/#");
        const char *name = speaks || !parameter->alias ? parameter->name : parameter->alias;
        adapter->unnamed |= !strchr(name, '.') || strpbrk(name, ":/#");
        add_saved(adapter, name);
        const void *data = as_in_module(adapter, parameter, &tensor);
        safetensors_writer_add(adapter->writer, arena_format(&adapter->arena, "base_model.model.%s", name),
                               tensor.dtype, &tensor.shape, data);
    }
}

static void print_config(Adapter *adapter, Buffer *text)
{
    const LowRank *low_rank = &adapter->merged->low_rank;
    JsonWriter json = {.buffer = text, .indent = 2};
    json_open(&json, NULL, '{');
    json_add_null(&json, "base_model_name_or_path");
    json_add_string(&json, "bias", "none");
    json_add_bool(&json, "fan_in_fan_out", false);
    json_add_bool(&json, "inference_mode", true);
    json_add_bool(&json, "init_lora_weights", true);
    json_add_number(&json, "lora_alpha", low_rank->alpha);
    json_add_number(&json, "lora_dropout", low_rank->dropout);
    if (adapter->saved_count)
        json_add_strings(&json, "modules_to_save", adapter->saved, adapter->saved_count);
    else
        json_add_null(&json, "modules_to_save");
    json_add_string(&json, "peft_type", "LORA");
    json_add_integer(&json, "r", low_rank->rank);
    json_open(&json, "target_modules", '[');
    for (size_t i = 0; i < adapter->merged->count; i++)
        json_add_string(&json, NULL, adapter->merged->branches[i].branch.module);
    json_close(&json, ']');
    json_add_null(&json, "task_type");
    json_add_bool(&json, "use_rslora", false);
    json_close(&json, '}');
    buffer_print(text, "\n");
}

static bool write_files(Adapter *adapter, const OutputDirectory *directory, Diagnostics *diagnostics)
{
    SafeTensorsWriter *writer = adapter->writer;
    adapter->writer = NULL;
    safetensors_writer_metadata(writer, "format", "pt");
    FREED_WITH(buffer_free) Buffer config = {0};
    print_config(adapter, &config);
    const char *weights = arena_format(&adapter->arena, "%s/adapter_model.safetensors", directory->temporary);
    const char *path = arena_format(&adapter->arena, "%s/adapter_config.json", directory->temporary);
    return safetensors_write(writer, weights, diagnostics) &&
           file_write_all(path, buffer_text(&config), config.size, diagnostics);
}

bool peft_adapter_write(MergedWeights *merged, const char *path, Diagnostics *diagnostics)
{
    FREED_WITH(directory_abandon) OutputDirectory directory = {0};
    if (!directory_create(&directory, path, false, diagnostics)) return false;
    Adapter adapter = {.merged = merged, .writer = safetensors_writer()};
    add_branches(&adapter);
    add_modules_to_save(&adapter);
    if (adapter.unnamed)
        diagnostics_warning(diagnostics, PLACE_FILE(merged->graph.file),
                            "use -o to write the model with the branches merged",
                            "some weight names do not name modules, so other tools cannot load the whole adapter");
    bool ok = write_files(&adapter, &directory, diagnostics) && directory_commit(&directory, diagnostics);
    free(adapter.saved);
    arena_free(&adapter.arena);
    return ok;
}
