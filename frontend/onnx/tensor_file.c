#include "frontend/onnx/tensor.h"

#include "frontend/onnx/model.h"

bool onnx_tensor_read(const char *path, Arena *arena, DType *dtype, Shape *shape, const void **data,
                      Diagnostics *diagnostics)
{
    OnnxModel file = {.path = path, .external = {.model_path = path}};
    if (!file_map(&file.file, path, diagnostics)) return false;
    const MappedFile *mapped = &file.file;
    if (!mapped->size) return input_error(diagnostics, path, NULL, "is empty, not an ONNX tensor");
    OnnxTensor tensor;
    bool ok = wire_scan(mapped->bytes, mapped->size, &onnx__tensor_proto__descriptor, path, diagnostics);
    Onnx__TensorProto *proto = NULL;
    if (ok) {
        ProtobufCAllocator allocator = onnx_allocator(&file.arena);
        proto = onnx__tensor_proto__unpack(&allocator, mapped->size, mapped->bytes);
        ok = proto || input_error(diagnostics, path, NULL, "is not a valid ONNX tensor");
    }
    /* Graphs have no uint16, but the reader of elements only copies words: it is told that they are bfloat16. */
    bool is_word = ok && proto->data_type == ONNX__TENSOR_PROTO__DATA_TYPE__UINT16;
    if (is_word) proto->data_type = ONNX__TENSOR_PROTO__DATA_TYPE__BFLOAT16;
    ok = ok && onnx_tensor_elements(&file, proto, NULL, "tensor", &tensor, diagnostics);
    if (ok) {
        *dtype = is_word ? DTYPE_U16 : tensor.dtype;
        *shape = tensor.shape;
        *data = arena_copy(arena, tensor.data, tensor.bytes);
    }
    onnx_model_close(&file);
    return ok;
}
