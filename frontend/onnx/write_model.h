/* Writes an opened model with other initializers. */
#ifndef FRONTEND_ONNX_WRITE_MODEL_H
#define FRONTEND_ONNX_WRITE_MODEL_H

#include "frontend/onnx/model.h"

/* Makes the elements raw data of the message, wherever they were before. They are not copied. */
void onnx_set_raw_data(Onnx__TensorProto *tensor, const void *data, size_t bytes);

/* Gives a tensor that is not replaced its elements, which unpacking left in the file (frontend/onnx/wire.h). `tensor`
 * is the initializer of that number, or a copy. */
bool onnx_restore_initializer(OnnxModel *model, size_t index, Onnx__TensorProto *tensor, Diagnostics *diagnostics);

/* Writes the model, whose initializers have their elements. Where these do not fit into one protobuf message (2 GiB)
 * they go into `output`.data, and the message refers to them. */
bool onnx_write_model(OnnxModel *model, const char *output, Diagnostics *diagnostics);

#endif
