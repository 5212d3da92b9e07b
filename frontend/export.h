/* Trained weights go back into ONNX: the same model with other initializers. */
#ifndef FRONTEND_EXPORT_H
#define FRONTEND_EXPORT_H

#include "base/dtype.h"
#include "frontend/import.h"

/* Trained values by parameter name, in that name's own shape, row-major. */
typedef struct TrainedTensor {
    DType dtype;
    Shape shape;
    const void *data;
} TrainedTensor;

/* Returns false if there is no parameter of that name. */
typedef bool FindTrained(void *context, const char *name, TrainedTensor *tensor);

/* Writes `output`: the model at `path` with every trained initializer replaced. An initializer that was split into
 * several parameters becomes several, each read by the Identity node that merged it. The other initializers keep their
 * elements. Where the weights do not fit into one protobuf message (2 GiB) they go into `output`.data. Reports
 * parameters that are missing or of another shape. */
bool export_onnx(const char *path, const char *output, FindTrained *find, void *context, Diagnostics *diagnostics);

#endif
