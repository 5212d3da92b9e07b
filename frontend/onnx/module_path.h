/* The place of a node in the exported program, if the exporter gives it. Internal to the importer. */
#ifndef FRONTEND_ONNX_MODULE_PATH_H
#define FRONTEND_ONNX_MODULE_PATH_H

#include "base/arena.h"
#include "onnx/onnx.pb-c.h"

/* The module that the node belongs to, with dots: "bert.encoder.layer.0.output.dense". From the node's metadata
 * (pkg.torch.onnx.name_scopes or namespace, by PyTorch's default exporter), else from a name with slashes (by the
 * TorchScript exporter). NULL if neither is there. In the arena. */
const char *module_path(Arena *arena, const Onnx__NodeProto *node);

/* The value of an entry of the node's metadata; NULL if there is none. In the arena. */
const char *node_metadata(Arena *arena, const Onnx__NodeProto *node, const char *key);

/* The program line that made the node, with its callers; "" if the exporter does not give it. */
const char *source_lines(Arena *arena, const Onnx__NodeProto *node);

#endif
