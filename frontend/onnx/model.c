#include "frontend/onnx/model.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* protobuf-c frees piece by piece; the arena frees everything at once. */
static void *unpack_allocate(void *arena, size_t bytes) { return arena_allocate(arena, bytes); }
static void unpack_free(void *arena, void *pointer) { (void)arena, (void)pointer; }

ProtobufCAllocator onnx_allocator(Arena *arena) { return (ProtobufCAllocator){unpack_allocate, unpack_free, arena}; }

static void append_to_stream(ProtobufCBuffer *buffer, size_t size, const uint8_t *data)
{
    fwrite(data, 1, size, ((OnnxStream *)buffer)->stream); /* file_commit finds out about errors */
}

OnnxStream onnx_stream(FILE *stream) { return (OnnxStream){{append_to_stream}, stream}; }

const Onnx__TensorShapeProto *onnx_value_shape(const Onnx__ValueInfoProto *value)
{
    const Onnx__TypeProto *type = value->type;
    return type && type->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE ? type->tensor_type->shape : NULL;
}

const char *onnx_model_property(const OnnxModel *model, const char *key)
{
    for (size_t i = 0; i < model->proto->n_metadata_props; i++) {
        const Onnx__StringStringEntryProto *entry = model->proto->metadata_props[i];
        if (entry->key && entry->value && strcmp(entry->key, key) == 0) return entry->value;
    }
    return NULL;
}

bool onnx_model_is_distinct(const OnnxModel *model)
{
    const char *meaning = onnx_model_property(model, PROPERTY_PARAMETERS);
    return meaning && strcmp(meaning, PARAMETERS_ARE_INITIALIZERS) == 0;
}

static bool refuse(const OnnxModel *model, Diagnostics *diagnostics, const char *hint, const char *problem)
{
    return input_error(diagnostics, model->path, hint, "%s", problem);
}

/* A file of printable characters is no protobuf message. */
static bool looks_like_text(const MappedFile *file)
{
    size_t length = file->size < 512 ? file->size : 512;
    if (length < 4) return false;
    for (size_t i = 0; i < length; i++)
        if (!file->bytes[i] || (file->bytes[i] < 0x20 && !strchr("\t\n\r\f", file->bytes[i])) || file->bytes[i] == 0x7f)
            return false;
    return true;
}

static bool begins_with(const MappedFile *file, const char *bytes, size_t count)
{
    return file->size >= count && memcmp(file->bytes, bytes, count) == 0;
}

/* Eight bytes of length, then JSON. */
static bool looks_like_safetensors(const MappedFile *file)
{
    uint64_t length;
    if (file->size < 10 || file->bytes[8] != '{') return false;
    memcpy(&length, file->bytes, sizeof length);
    return length >= 2 && length <= file->size - 8;
}

/* Recognises other kinds of files that users give instead of a model and reports these; true if the kind is unknown. */
static bool check_kind(const OnnxModel *model, Diagnostics *diagnostics)
{
    const MappedFile *file = &model->file;
    static const char export[] = "export the model itself: torch.onnx.export(model, inputs, \"model.onnx\")";
    bool text = looks_like_text(file);
    size_t head = file->size < 4096 ? file->size : 4096;
    if (text && file->bytes[0] == '{' && memmem(file->bytes, head, "\"added_tokens\"", 14))
        return refuse(model, diagnostics, export, "is a tokenizer (tokenizer.json), not an ONNX model");
    if (text) return refuse(model, diagnostics, export, "is text, not an ONNX model");
    if (looks_like_safetensors(file))
        return refuse(model, diagnostics, "the graph is missing: skycc import makes one from a Hugging Face folder",
                      "holds weights only (safetensors), not an ONNX model");
    if (begins_with(file, "PK\3\4", 4) || begins_with(file, "\x80\2", 2))
        return refuse(model, diagnostics, "load it in PyTorch, then torch.onnx.export(...)",
                      "is a PyTorch checkpoint, not an ONNX model");
    if (begins_with(file, "\x89HDF", 4))
        return refuse(model, diagnostics, "convert it, with tf2onnx", "is an HDF5 file, not an ONNX model");
    return true;
}

static bool unpack(OnnxModel *model, Diagnostics *diagnostics)
{
    const MappedFile *file = &model->file;
    if (!file->size) return refuse(model, diagnostics, NULL, "is empty, not an ONNX model");
    if (!check_kind(model, diagnostics)) return false;
    if (!wire_scan(file->bytes, file->size, &onnx__model_proto__descriptor, model->path, diagnostics)) return false;
    FREED_WITH(buffer_free) Buffer thin = {0};
    wire_strip_weights(file->bytes, file->size, &thin, &model->weights, &model->weight_count);
    ProtobufCAllocator allocator = onnx_allocator(&model->arena);
    model->proto = onnx__model_proto__unpack(&allocator, thin.size, (const uint8_t *)buffer_text(&thin));
    model->weight_capacity = model->weight_count;
    if (!model->proto) return refuse(model, diagnostics, NULL, "is not a valid ONNX model");
    if (!model->proto->graph) return refuse(model, diagnostics, "the file may be cut short", "has no graph");
    return true;
}

bool onnx_model_open(OnnxModel *model, const char *path, bool tolerate_missing_data, Diagnostics *diagnostics)
{
    *model = (OnnxModel){.path = path, .external = {.model_path = path, .tolerate_missing = tolerate_missing_data}};
    struct stat status;
    if (stat(path, &status) == 0 && S_ISDIR(status.st_mode))
        return refuse(model, diagnostics, "name the ONNX file in it; skycc import makes one from a Hugging Face folder",
                      "is a directory");
    if (!file_map(&model->file, path, diagnostics)) return false;
    if (!unpack(model, diagnostics)) {
        onnx_model_close(model);
        return false;
    }
    const Onnx__GraphProto *graph = model->proto->graph;
    for (size_t i = 0; i < graph->n_initializer; i++)
        if (!graph->initializer[i]->name || !*graph->initializer[i]->name) {
            refuse(model, diagnostics, NULL, "has an initializer without a name");
            onnx_model_close(model);
            return false;
        }
    model->hash = hash_bytes(model->file.bytes, model->file.size);
    return true;
}

void onnx_model_close(OnnxModel *model)
{
    external_data_close(&model->external);
    file_unmap_input(&model->file);
    free(model->weights);
    arena_free(&model->arena);
    *model = (OnnxModel){0};
}
