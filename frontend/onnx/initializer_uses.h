/* Which nodes read an initializer, and which of those uses are one parameter. Internal to the importer. */
#ifndef FRONTEND_ONNX_INITIALIZER_USES_H
#define FRONTEND_ONNX_INITIALIZER_USES_H

#include "frontend/onnx/importer.h"

/* One place that reads an initializer: input `input` of node `node` of the importer; of graph outputs, OUTPUT_USE. */
typedef struct InitializerUse {
    uint32_t node;
    int input;
    size_t leader;     /* number of the first use that is the same parameter: perhaps this one */
    const char *owner; /* that parameter, if the exporter tells it, or the module that reads it; NULL: not known */
    bool told;
    bool
        constant; /* the exporter tells that it reads a buffer or a literal, merged with the parameter: the last uses */
    bool passed;  /* Identity nodes pass the initializer on, so direct uses are of what has its name */
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
 * - TorchScript's exporter merges through Identity nodes, each with the name of its own parameter, if it has one. All
 *   direct uses are one parameter.
 * - PyTorch's default exporter tells which parameters a call got. Where it does not, uses of the same kind in the same
 *   module are one parameter, that of a module called several times (ALBERT), and so are several nodes of one call; all
 *   others are apart. */
void find_initializer_uses(Importer *importer, InitializerUses *uses);

/* A name for the use by its module, such as "bert.pooler.dense.bias"; NULL if the module is unknown. */
const char *initializer_use_name(Importer *importer, const InitializerUse *use);

/* Whether the exporter tells of two uses that they are parameters of the same name in two layers of a list. Where these
 * start with the same numbers, drawn once, the layers are clones. */
bool uses_show_clones(const InitializerUses *uses);

/* Whether the uses' leaders are parameters of their own that only start equal: the exporter tells their names, or their
 * modules are layers of one list, in a model with clones. */
typedef enum UseSharing { USES_SHARE, USES_OPEN, USES_APART } UseSharing;

/* USES_OPEN: several modules share it, and nothing tells why; sets `other` to the use by one of them. */
UseSharing uses_sharing(Importer *importer, const char *initializer, const InitializerUses *uses,
                        const InitializerUse **other);

/* The name of the parameter that the initializer is, as PyTorch's exporters tell; NULL: they do not. */
const char *initializer_owner(Importer *importer, const char *name);

/* Whether two initializers with these owners are parameters of their own even if they hold the same numbers. */
bool owners_are_apart(const Importer *importer, const char *a, const char *b);

#endif
