/* Writes trained weights into the ONNX model that they came from. */
#ifndef FRONTEND_ONNX_EXPORT_H
#define FRONTEND_ONNX_EXPORT_H

#include "base/dtype.h"
#include "frontend/onnx/import.h"

/* Trained values by parameter name, in that name's own shape, row-major. */
typedef struct TrainedTensor {
    DType dtype;
    Shape shape;
    const void *data; /* NULL: it was frozen, and is still what the model says */
    uint64_t check;   /* of a frozen one: the low word of hash_bytes of its value then; 0: not known */
} TrainedTensor;

/* Returns false if there is no parameter of that name. */
typedef bool FindTrained(void *context, const char *name, TrainedTensor *tensor);

/* Called with the model when every initializer has its elements, trained or not. */
typedef bool WriteModel(void *context, OnnxModel *model, Diagnostics *diagnostics);

/* Replaces the trained initializers of the model at `path` and hands it to `write`. */
bool export_model(const char *path, FindTrained *find, void *context, WriteModel *write, void *writing,
                  Diagnostics *diagnostics);

/* Writes `output`: the model at `path` with every trained initializer replaced. An initializer that was split into
 * several parameters becomes several, each read by the Identity node that merged it. The other initializers keep their
 * elements. Weights that exceed one protobuf message (2 GiB) go into `output`.data. Reports missing parameters and
 * other shapes. */
bool export_onnx(const char *path, const char *output, FindTrained *find, void *context, Diagnostics *diagnostics);

#endif
