/* Internal to the importer: the state that its parts share during an import. */
#ifndef FRONTEND_ONNX_IMPORTER_H
#define FRONTEND_ONNX_IMPORTER_H

#include "base/string_map.h"
#include "frontend/onnx/import.h"

typedef enum SymbolKind { SYMBOL_INPUT, SYMBOL_INITIALIZER, SYMBOL_NODE } SymbolKind;

/* A name of the ONNX graph. */
typedef struct Symbol {
    const char *name;
    SymbolKind kind;
    uint32_t index; /* of the input, initializer or node in the ONNX graph */
    ValueId value;  /* 0: not made yet, or not to be had: the node that makes it failed */
    bool needed;    /* a graph output depends on it */
    bool trained;   /* ... through operators that pass gradients */
    bool scales;    /* a scale or a zero point of quantised numbers */
} Symbol;

struct Normalization;

/* A node of the model, or of the body of a function that it calls. */
typedef struct SourceNode {
    const Onnx__NodeProto *proto;
    const Onnx__FunctionProto *function; /* whose body it stands in; NULL: the graph itself */
    size_t number;                       /* 1 + its place in the graph; 0: in a body */
    const char *name;                    /* never empty */
    const struct Normalization *rule;    /* how to import it; NULL: unsupported */
    int64_t opset;                       /* of its domain */
    uint32_t *inputs, *outputs;          /* symbols; 0: absent */
    const char *condition_name;          /* of a branch's node: it counts where that value is `when`; else NULL */
    uint32_t condition;                  /* its symbol */
    bool when;
    bool needed;
} SourceNode;

typedef struct Importer {
    Graph *graph;
    ImportedModel *model;
    const ImportOptions *options;
    Diagnostics *diagnostics;
    const Onnx__GraphProto *proto;
    Arena arena;
    StringMap names; /* -> symbols */
    Symbol *symbols; /* [0] is unused */
    size_t symbol_count, symbol_capacity;
    SourceNode *nodes;
    size_t node_count;
    uint32_t *order;        /* of nodes, producers first */
    bool distinct;          /* every initializer is one parameter (PROPERTY_PARAMETERS) */
    bool widens;            /* half precision becomes float32 (widen.h) */
    size_t narrow_bytes;    /* of quantised weights in the file, one byte an element */
    size_t widened;         /* elements that were made floats so far */
    const char *shape_hint; /* what helps where shapes do not fit; NULL: nothing known */
} Importer;

/* "node 'NAME' (OP, opset N)" */
Place source_place(const Importer *importer, const SourceNode *node, char text[static 512]);

/* functions.c: makes the nodes, with bodies of functions instead of their calls. */
bool expand_functions(Importer *importer);

/* resolve.c: fills names, symbols, nodes and their order; marks what is needed. Reports undefined and repeated names,
 * cycles and unsupported operators. */
bool resolve_names(Importer *importer);

/* inputs.c: graph inputs, with their dimensions bound. */
bool import_inputs(Importer *importer);
/* The tensor or shape given for the graph's input number `position`; NULL: none. */
const InputShape *given_input(const ImportOptions *options, const char *name, size_t position);

/* initializers.c: parameters and constants, ties and splits. */
bool import_initializers(Importer *importer);

/* trained.c: decides which of them are trained, after the graph is built. */
bool choose_parameters(Importer *importer);

#endif
