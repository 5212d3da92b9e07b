/* The inputs of `skycc run`: tensors from safetensors, .npy, .npz and ONNX .pb files. */
#ifndef DRIVER_COMPILE_INPUT_TENSORS_H
#define DRIVER_COMPILE_INPUT_TENSORS_H

#include "base/safetensors.h"

typedef struct InputTensor {
    const char *name; /* NULL: not in the file; the tensor is the next graph input in order */
    const char *file;
    DType dtype;
    Shape shape;
    const void *data;
} InputTensor;

typedef struct InputTensors {
    Arena arena;
    InputTensor *tensors;
    size_t count, capacity;
    SafeTensors *files; /* kept open: tensors point into them */
    size_t file_count, file_capacity;
} InputTensors;

/* Adds the tensors of a file, whose kind follows from its suffix. Safetensors drop a leading "in/" of names; if a
 * file has such names, its other tensors are ignored. Free with input_tensors_free in any case. */
bool input_tensors_add(InputTensors *inputs, const char *path, Diagnostics *diagnostics);
/* The tensor for the graph's input `position` called `name`; NULL if there is none. */
const InputTensor *input_tensors_find(const InputTensors *inputs, const char *name, size_t position);
void input_tensors_free(InputTensors *inputs);

#endif
