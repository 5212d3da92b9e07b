/* Restores biases that the exporter removed. Internal to the importer. */
#ifndef FRONTEND_ONNX_RESTORE_BIAS_H
#define FRONTEND_ONNX_RESTORE_BIAS_H

#include "frontend/onnx/model.h"

/* PyTorch's default exporter drops the bias of a Gemm where it is all zeros, as that of a fresh model is, and notes it
 * in the node's metadata. Training needs it, so this function restores it as an initializer of zeros, with a
 * warning. */
void restore_removed_biases(OnnxModel *model, Diagnostics *diagnostics);

#endif
