/* Half-precision weights (FLOAT16, BFLOAT16) are trained as float32: where a model has some, all of its tensors of
 * these types become float32 while it is imported, so that nothing is computed with fewer digits than are kept. Export
 * writes weights back in their own type. Internal to the importer. */
#ifndef FRONTEND_ONNX_WIDEN_H
#define FRONTEND_ONNX_WIDEN_H

#include "frontend/onnx/importer.h"

/* Sets importer->widens, with a warning, if a weight on the way to an output is of half precision. */
void choose_widening(Importer *importer);
/* The type that an element type of the file has in the graph. DTYPE_NONE: none. */
DType imported_dtype(const Importer *importer, int32_t data_type);
/* Converts a tensor of the file, where it must be; its elements are in the model's arena then, and in no file. */
void widen_tensor(const Importer *importer, OnnxTensor *tensor);

#endif
