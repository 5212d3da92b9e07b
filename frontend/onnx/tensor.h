/* ONNX tensors in files of their own (.pb), as ONNX's test data come. */
#ifndef FRONTEND_ONNX_TENSOR_H
#define FRONTEND_ONNX_TENSOR_H

#include "base/arena.h"
#include "base/diagnostics.h"
#include "base/dtype.h"

/* The elements are row-major in the arena. Types are those of graphs, or uint16: ONNX before 1.13 wrote the bits of
 * bfloat16 numbers so. */
bool onnx_tensor_read(const char *path, Arena *arena, DType *dtype, Shape *shape, const void **data,
                      Diagnostics *diagnostics);

#endif
