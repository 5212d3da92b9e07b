/* Tensors named on the command line: by the first byte .npy, .npz or ONNX's .pb. */
#include "frontend/numpy/npy.h"
#include "frontend/onnx/tensor.h"
#include "tests/fuzz/fuzz.h"

static void touch(DType dtype, const Shape *shape, const void *data)
{
    static volatile unsigned char last;
    const unsigned char *bytes = data;
    size_t size = (size_t)shape_elements(shape) * dtype_size(dtype);
    for (size_t i = 0; i < size; i++) last = bytes[i];
    (void)last;
}

static bool read_npy(const char *path, Arena *arena, Diagnostics *diagnostics)
{
    NpyArray *arrays;
    size_t count;
    if (!npy_read(path, arena, &arrays, &count, diagnostics)) return false;
    for (size_t i = 0; i < count; i++) touch(arrays[i].dtype, &arrays[i].shape, arrays[i].data);
    return true;
}

static bool read_onnx(const char *path, Arena *arena, Diagnostics *diagnostics)
{
    DType dtype;
    Shape shape;
    const void *elements;
    if (!onnx_tensor_read(path, arena, &dtype, &shape, &elements, diagnostics)) return false;
    touch(dtype, &shape, elements);
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size) return 0;
    static const char *const names[] = {"fuzz.npy", "fuzz.npz", "nowhere/fuzz.pb"};
    const char *path = names[*data % (sizeof names / sizeof *names)];
    fuzz_file(path, data + 1, size - 1);
    fuzz_begin();
    Diagnostics diagnostics = {0};
    Arena arena = {0};
    bool ok;
    switch (*data % (sizeof names / sizeof *names)) {
    case 2: ok = read_onnx(path, &arena, &diagnostics); break;
    default: ok = read_npy(path, &arena, &diagnostics);
    }
    arena_free(&arena);
    fuzz_end(ok, &diagnostics);
    return 0;
}
