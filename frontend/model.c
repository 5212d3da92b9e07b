#include "frontend/model.h"

#include <stdlib.h>
#include <string.h>

/* protobuf-c frees piece by piece; the arena frees everything at once. */
static void *unpack_allocate(void *arena, size_t bytes) { return arena_allocate(arena, bytes); }
static void unpack_free(void *arena, void *pointer) { (void)arena, (void)pointer; }

ProtobufCAllocator onnx_allocator(Arena *arena) { return (ProtobufCAllocator){unpack_allocate, unpack_free, arena}; }

static bool refuse(const OnnxModel *model, Diagnostics *diagnostics, const char *hint, const char *problem)
{
    return diagnostics_error(diagnostics, EXIT_BAD_INPUT, PLACE_FILE(model->path), hint, "%s", problem);
}

/* A file of printable characters is not a protobuf message: say so, rather than which of its fields is odd. */
static bool looks_like_text(const MappedFile *file)
{
    size_t length = file->size < 512 ? file->size : 512;
    if (length < 4) return false;
    for (size_t i = 0; i < length; i++)
        if ((file->bytes[i] < 0x20 && !strchr("\t\n\r\f", file->bytes[i])) || file->bytes[i] == 0x7f) return false;
    return true;
}

static bool unpack(OnnxModel *model, Diagnostics *diagnostics)
{
    const MappedFile *file = &model->file;
    if (!file->size) return refuse(model, diagnostics, NULL, "is empty, not an ONNX model");
    if (looks_like_text(file))
        return refuse(model, diagnostics, "export the model with torch.onnx.export(...)", "is text, not an ONNX model");
    if (!wire_scan(file->bytes, file->size, &onnx__model_proto__descriptor, model->path, diagnostics)) return false;
    Buffer thin = {0};
    wire_strip_weights(file->bytes, file->size, &thin, &model->weights, &model->weight_count);
    ProtobufCAllocator allocator = onnx_allocator(&model->arena);
    model->proto = onnx__model_proto__unpack(&allocator, thin.size, (const uint8_t *)buffer_text(&thin));
    buffer_free(&thin);
    if (!model->proto) return refuse(model, diagnostics, NULL, "is not a valid ONNX model");
    if (!model->proto->graph) return refuse(model, diagnostics, "the file may be cut short", "has no graph");
    return true;
}

bool onnx_model_open(OnnxModel *model, const char *path, bool tolerate_missing_data, Diagnostics *diagnostics)
{
    *model = (OnnxModel){.path = path, .external = {.model_path = path, .tolerate_missing = tolerate_missing_data}};
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
    file_unmap(&model->file);
    free(model->weights);
    arena_free(&model->arena);
    *model = (OnnxModel){0};
}
