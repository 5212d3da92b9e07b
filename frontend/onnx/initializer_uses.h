/* Which nodes read an initializer, and which of those uses are one parameter. Internal to the importer. */
#ifndef FRONTEND_ONNX_INITIALIZER_USES_H
#define FRONTEND_ONNX_INITIALIZER_USES_H

#include "frontend/onnx/importer.h"

/* One place that reads an initializer: input `input` of node `node` of the importer; of graph outputs, OUTPUT_USE. */
typedef struct InitializerUse {
    uint32_t node;
    int input;
    size_t leader; /* number of the first use that is the same parameter: perhaps this one */
} InitializerUse;

enum { OUTPUT_USE = -1 };

typedef struct InitializerUses {
    InitializerUse *items; /* direct uses in the order of the file, then Identity nodes that pass it on */
    size_t count, capacity;
    size_t direct; /* the first of them */
} InitializerUses;

/* Fills `uses`, one per initializer of the graph, with what depends on it and passes gradients. To be freed one by one
 * with free(items). The exporter's information on nodes decides the leaders:
 *
 * - TorchScript's exporter merges through Identity nodes, each with the name of its own parameter. All direct uses are
 *   one parameter.
 * - PyTorch's default exporter merges without a trace. Uses of the same kind in the same module are one parameter, that
 *   of a module called several times (ALBERT), and so are several nodes of one call; all others are apart. */
void find_initializer_uses(Importer *importer, InitializerUses *uses);

/* A name for the use by its module, such as "bert.pooler.dense.bias"; NULL if the module is unknown. */
const char *initializer_use_name(Importer *importer, const InitializerUse *use);

#endif
