#include "driver/compile/input_tensors.h"

#include <stdlib.h>
#include <string.h>

#include "base/parts.h"
#include "frontend/numpy/npy.h"
#include "frontend/onnx/tensor.h"

static void add(InputTensors *inputs, InputTensor tensor)
{
    array_push(inputs->tensors, inputs->count, inputs->capacity, tensor);
}

static bool add_safetensors(InputTensors *inputs, const char *path, Diagnostics *diagnostics)
{
    SafeTensors file;
    if (!safetensors_open(&file, path, diagnostics)) return false;
    array_push(inputs->files, inputs->file_count, inputs->file_capacity, file);
    bool prefixed = false;
    for (size_t i = 0; i < file.count; i++) prefixed |= strncmp(file.tensors[i].name, "in/", 3) == 0;
    for (size_t i = 0; i < file.count; i++) {
        const SafeTensor *tensor = &file.tensors[i];
        if (prefixed && strncmp(tensor->name, "in/", 3) != 0) continue;
        add(inputs, (InputTensor){tensor->name + (prefixed ? 3 : 0), path, tensor->dtype, tensor->shape, tensor->data});
    }
    return true;
}

static bool add_npy(InputTensors *inputs, const char *path, Diagnostics *diagnostics)
{
    NpyArray *arrays;
    size_t count;
    if (!npy_read(path, &inputs->arena, &arrays, &count, diagnostics)) return false;
    for (size_t i = 0; i < count; i++)
        add(inputs, (InputTensor){arrays[i].name, path, arrays[i].dtype, arrays[i].shape, arrays[i].data});
    return true;
}

static bool add_onnx(InputTensors *inputs, const char *path, Diagnostics *diagnostics)
{
    InputTensor tensor = {.file = path}; /* its own name is often missing or made up, so its position counts */
    if (!onnx_tensor_read(path, &inputs->arena, &tensor.dtype, &tensor.shape, &tensor.data, diagnostics)) return false;
    add(inputs, tensor);
    return true;
}

bool input_tensors_add(InputTensors *inputs, const char *path, Diagnostics *diagnostics)
{
    if (text_ends_with(path, ".npy") || text_ends_with(path, ".npz")) return add_npy(inputs, path, diagnostics);
    if (text_ends_with(path, ".pb")) return add_onnx(inputs, path, diagnostics);
    return add_safetensors(inputs, path, diagnostics);
}

const InputTensor *input_tensors_find(const InputTensors *inputs, const char *name, size_t position)
{
    size_t nameless = 0;
    const InputTensor *by_position = NULL;
    for (size_t i = 0; i < inputs->count; i++) {
        const InputTensor *tensor = &inputs->tensors[i];
        if (tensor->name && strcmp(tensor->name, name) == 0) return tensor;
        if (!tensor->name && nameless++ == position) by_position = tensor;
    }
    return by_position;
}

void input_tensors_free(InputTensors *inputs)
{
    for (size_t i = 0; i < inputs->file_count; i++) safetensors_close(&inputs->files[i]);
    free(inputs->files);
    free(inputs->tensors);
    arena_free(&inputs->arena);
    *inputs = (InputTensors){0};
}
