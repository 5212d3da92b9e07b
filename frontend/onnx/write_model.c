#include "frontend/onnx/write_model.h"

#include <stdlib.h>
#include <string.h>

/* Weights beyond this go into a file of their own: a protobuf message ends at 2 GiB, and the graph needs room too. */
#define MOST_INLINE_BYTES ((uint64_t)3 << 29)

enum { DATA_ALIGNMENT = 64 };

void onnx_set_raw_data(Onnx__TensorProto *tensor, const void *data, size_t bytes)
{
    tensor->n_float_data = tensor->n_int32_data = tensor->n_int64_data = tensor->n_double_data = 0;
    tensor->n_uint64_data = tensor->n_string_data = tensor->n_external_data = 0;
    tensor->has_data_location = false;
    tensor->has_raw_data = true;
    tensor->raw_data = (ProtobufCBinaryData){bytes, (uint8_t *)data};
}

bool onnx_restore_initializer(OnnxModel *model, size_t index, Onnx__TensorProto *tensor, Diagnostics *diagnostics)
{
    const WireSpan *span = &model->weights[index];
    if (span->present) {
        onnx_set_raw_data(tensor, model->file.bytes + span->offset, span->size);
        return true;
    }
    if (tensor->data_location != ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL) return true;
    OnnxTensor elements;
    if (!onnx_tensor_elements(model, tensor, span, tensor->name, &elements, diagnostics)) return false;
    if (!elements.data && elements.bytes) {
        char object[512];
        snprintf(object, sizeof object, "parameter '%.400s'", tensor->name);
        return diagnostics_error(diagnostics, EXIT_BAD_INPUT, (Place){.file = model->path, .object = object},
                                 "give the model that the checkpoint was made from", "has no data, and is not trained");
    }
    onnx_set_raw_data(tensor, elements.data, elements.bytes);
    return true;
}

static Onnx__StringStringEntryProto *new_entry(Arena *arena, const char *key, char *value)
{
    Onnx__StringStringEntryProto *entry = arena_new(arena, Onnx__StringStringEntryProto);
    onnx__string_string_entry_proto__init(entry);
    entry->key = arena_string(arena, key);
    entry->value = value;
    return entry;
}

/* Writes all raw data to `output`.data and leaves references in the message. */
static bool write_external(OnnxModel *model, const char *output, Diagnostics *diagnostics)
{
    Arena *arena = &model->arena;
    const Onnx__GraphProto *graph = model->proto->graph;
    const char *path = arena_format(arena, "%s.data", output), *slash = strrchr(path, '/');
    OutputFile file;
    if (!file_create(&file, path, diagnostics)) return false;
    uint64_t offset = 0;
    for (size_t i = 0; i < graph->n_initializer; i++) {
        static const char padding[DATA_ALIGNMENT];
        Onnx__TensorProto *tensor = graph->initializer[i];
        if (!tensor->has_raw_data) continue;
        size_t gap = (size_t)(-offset % DATA_ALIGNMENT);
        fwrite(padding, 1, gap, file.stream);
        fwrite(tensor->raw_data.data, 1, tensor->raw_data.len, file.stream);
        offset += gap;
        tensor->n_external_data = 3;
        tensor->external_data = arena_new_array(arena, Onnx__StringStringEntryProto *, 3);
        tensor->external_data[0] = new_entry(arena, "location", arena_string(arena, slash ? slash + 1 : path));
        tensor->external_data[1] = new_entry(arena, "offset", arena_format(arena, "%llu", (unsigned long long)offset));
        tensor->external_data[2] = new_entry(arena, "length", arena_format(arena, "%zu", tensor->raw_data.len));
        tensor->has_data_location = true;
        tensor->data_location = ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
        offset += tensor->raw_data.len;
        tensor->has_raw_data = false;
        tensor->raw_data = (ProtobufCBinaryData){0};
    }
    return file_commit(&file, diagnostics);
}

bool onnx_write_model(OnnxModel *model, const char *output, Diagnostics *diagnostics)
{
    const Onnx__GraphProto *graph = model->proto->graph;
    uint64_t raw = 0;
    for (size_t i = 0; i < graph->n_initializer; i++) raw += graph->initializer[i]->raw_data.len;
    if (raw > MOST_INLINE_BYTES && !write_external(model, output, diagnostics)) return false;
    OutputFile file;
    if (!file_create(&file, output, diagnostics)) return false;
    OnnxStream stream = onnx_stream(file.stream);
    onnx__model_proto__pack_to_buffer(model->proto, &stream.base);
    return file_commit(&file, diagnostics);
}
